"""A path with all links resolved."""

from urllib.parse import quote

from msgspec import Struct


class RealPath(Struct, frozen=True, order=True):
    """An absolute path with every link followed, as a tuple of its components.

    `/srv/a.txt` is `("srv", "a.txt")`, `/` is `()`. Components are compared instead of text, so
    that `/ab` does not lie in `/a`, and everything lies in `/`.
    """

    parts: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> "RealPath":
        """Split an absolute path without links. Empty components are dropped."""
        return cls(tuple([part for part in text.split("/") if part]))

    def is_within(self, directory: "RealPath") -> bool:
        """Whether this path is `directory` or lies below it."""
        return self.parts[: len(directory.parts)] == directory.parts

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)


def file_uri(path: str) -> str:
    """An absolute path as a `file:` URI; what a URI cannot hold is percent-encoded."""
    return "file://" + quote(path.encode("utf-8", "surrogateescape"))
