"""A moment by the count of one boot of the machine, which no setting of the clock moves."""

from dataclasses import dataclass

from ironcurtain_proxy.model.json import Json


@dataclass(frozen=True, slots=True)
class BootMoment:
    """A moment by the count of one boot."""

    boot: str
    seconds: float

    def as_json(self) -> dict[str, Json]:
        """For a file."""
        return {"boot": self.boot, "seconds": self.seconds}


def boot_moment(value: object) -> BootMoment | None:
    """What a file says; None: it says nothing of the kind."""
    if not isinstance(value, dict) or value.keys() != {"boot", "seconds"}:
        return None
    boot, seconds = value["boot"], value["seconds"]
    if not isinstance(boot, str) or isinstance(seconds, bool):
        return None
    return BootMoment(boot, float(seconds)) if isinstance(seconds, int | float) else None
