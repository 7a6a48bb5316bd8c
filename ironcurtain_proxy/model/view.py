"""What a command of our own shell changed in its view, before it comes into the workspace."""

from msgspec import Struct


class NotTaken(Struct, frozen=True):
    """A change that does not come into the workspace."""

    path: str
    """Below the workspace, as `os.fsdecode` gives it."""
    why: str

    def __str__(self) -> str:
        name = self.path.encode("utf-8", "backslashreplace").decode()
        return f"{name} ({self.why})"


class ViewChanges(Struct, frozen=True, kw_only=True):
    """The changes that are prepared in a view."""

    paths: tuple[str, ...]
    """Each changed path below the workspace; a directory stands for all that is in it."""
    kept_back: tuple[NotTaken, ...]
    """Control places, which need an approval of their own."""
    others: tuple[NotTaken, ...]
    """What does not come into the workspace for another reason."""
