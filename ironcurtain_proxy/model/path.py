"""Where a path really leads."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class RealPath:
    """An absolute path with every link followed, as a tuple of its components.

    `/srv/a.txt` is `("srv", "a.txt")`, `/` is `()`. Comparing components, not text, is what keeps
    `/ab` out of `/a` and lets `/` contain everything.
    """

    parts: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> "RealPath":
        """Split an absolute path that is already real. Empty components do not count."""
        return cls(tuple([part for part in text.split("/") if part]))

    def is_within(self, directory: "RealPath") -> bool:
        """Whether this is `directory` itself or lies below it."""
        return self.parts[: len(directory.parts)] == directory.parts

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)
