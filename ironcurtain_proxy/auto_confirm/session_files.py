"""Small files of the engine: announced windows, and abandoned reviewers for `status`.

A file `windows/testing` or `windows/deployment` in the state directory holds the time at which it
ends. The state directory is protected, so that no agent opens a window for itself.

The abandoned reviewers of a running session, in a file for `status`.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import orjson
from msgspec import Struct

from ironcurtain_proxy.mailbox.mailboxes import is_alive, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.private_files import read_beginning, write_whole

# --- windows


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


# --- given up


FILE_NAME: Final = "given-up-reviewers.json"
_MOST_BYTES: Final = 1 << 16


class AbandonedReviewer(Struct, frozen=True):
    """A reviewer that a session no longer asks."""

    session: str
    reviewer: str


def note_given_up(directory: Path, reviewers: list[str]) -> None:
    """Write the reviewers that this process has abandoned.

    Args:
        directory: the session's; made if it is missing.
        reviewers: all of them.

    Raises:
        OSError: it cannot be written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = this_process()
    content = {"pid": owner.pid, "startTime": owner.start_time, "reviewers": reviewers}
    write_whole(directory / FILE_NAME, orjson.dumps(content))


def given_up(sessions: Path) -> Iterator[AbandonedReviewer]:
    """Yield the abandoned reviewers of all running sessions.

    Args:
        sessions: the directory with one for each session.
    """
    for file in sorted(sessions.glob(f"*/{FILE_NAME}")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = orjson.loads(read_beginning(file, _MOST_BYTES))
            if is_alive(Owner(int(found["pid"]), str(found["startTime"]))):
                for name in found["reviewers"]:
                    yield AbandonedReviewer(file.parent.name, str(name))
