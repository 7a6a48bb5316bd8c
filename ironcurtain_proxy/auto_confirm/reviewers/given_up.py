"""The abandoned reviewers of a running session, in a file for `status`."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.mailbox.mailboxes import is_alive, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.private_files import read_beginning, write_whole

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
