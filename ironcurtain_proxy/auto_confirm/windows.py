"""Testing windows and deployments that the operator announces, as small files.

A file `windows/testing` or `windows/deployment` in the state directory holds the time at which it
ends. The state directory is protected, so that no agent opens a window for itself.
"""

from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.private_files import write_whole

WindowName: TypeAlias = Literal["testing", "deployment"]
NAMES: Final[tuple[WindowName, ...]] = ("testing", "deployment")


class OpenWindows(Struct, frozen=True):
    """The open windows."""

    testing: bool = False
    deployment: bool = False


class Windows(Struct, frozen=True):
    """The windows of this user."""

    directory: Path
    """`windows` in the state directory; it may not exist."""

    def read(self, now: datetime) -> OpenWindows:
        """Return the windows that are open now.

        A file that cannot be understood closes a testing window, which approves, and keeps a
        deployment, which holds.
        """
        return OpenWindows(
            testing=self._is_open("testing", now, unclear=False),
            deployment=self._is_open("deployment", now, unclear=True),
        )

    def ends(self, name: WindowName) -> datetime | None:
        """Return the end of a window, or None if it is closed or its file is damaged."""
        try:
            text = (self.directory / name).read_text(encoding="ascii").strip()
            moment = datetime.fromisoformat(text)
        except (OSError, ValueError):
            return None
        return moment if moment.tzinfo is not None else None

    def open(self, name: WindowName, until: datetime) -> None:
        """Open a window.

        Args:
            name: which.
            until: aware.

        Raises:
            OSError: it cannot be written.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self.directory / name, until.isoformat().encode("ascii"))

    def close(self, name: WindowName) -> bool:
        """End a window. Return False if it was not open."""
        try:
            (self.directory / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _is_open(self, name: WindowName, now: datetime, *, unclear: bool) -> bool:
        if not (self.directory / name).exists():
            return False
        ends = self.ends(name)
        return unclear if ends is None else now < ends
