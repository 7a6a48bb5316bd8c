"""A moment counted since the machine booted, which no change of the wall clock moves."""

from msgspec import Struct

from ironcurtain_proxy.model.json import Json


class BootMoment(Struct, frozen=True):
    """A moment within one boot of the machine."""

    boot: str
    seconds: float

    def as_json(self) -> dict[str, Json]:
        """The moment as a JSON value for a file."""
        return {"boot": self.boot, "seconds": self.seconds}


def boot_moment(value: object) -> BootMoment | None:
    """Read a moment from a file's JSON value; None: it holds no valid moment."""
    if not isinstance(value, dict) or value.keys() != {"boot", "seconds"}:
        return None
    boot, seconds = value["boot"], value["seconds"]
    if not isinstance(boot, str) or isinstance(seconds, bool):
        return None
    return BootMoment(boot, float(seconds)) if isinstance(seconds, int | float) else None
