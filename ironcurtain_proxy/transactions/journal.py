"""What a commit writes down before its first step, for whoever starts after it was cut off.

    prepared    the changes, once the command has ended
    journal     the same once more, from before the first step until after the last one (`ended`),
                or until a later start has taken back what was done (`undone`)

Theory of operation. Before `journal` gets its name all of this is on the disk: both records, and
the new content, which no view brings there by itself (`mounting` makes volatile ones). Before the
first step the name is there, too. So a process that is killed, or a machine without power, leaves
no journal and no step done, or a whole journal and some steps done. Each record has a checksum:
where the disk damaged one of them, the other one is enough.

File systems keep the order of renames and removals among each other, so nothing waits for the disk
after the steps: what a commit replaced is not removed there before the journal is.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ironcurtain_proxy.private_files import closed_after
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import Changes, Step

PREPARED: Final = "prepared"
JOURNAL: Final = "journal"
_NEW, _ENDED, _UNDONE = "new", "ended", "undone"
_HEAD: Final = b"ironcurtain view 3\n"
_SUM: Final = 16
_MOST_SINGLE: Final = 32
"""Files that are brought to the disk one by one. For more, the whole file system is."""


class Prepared(Struct, frozen=True, array_like=True):
    """The changes of an ended command, as they are written down."""

    workspace: bytes
    inode: int
    """Of the workspace: another directory at its path is left alone."""
    started_ns: int
    """The time of the file system before the command began; see `files.sure_time`."""
    changes: Changes
    indexes: dict[bytes, str]
    """The changed indexes of git, with the files that hold what they were, or empty if it is not
    known."""
    call: str = ""
    """The request id of the call whose changes are committed."""
    booted_ns: int = 0
    """See `files.booted_ns`, before the command began."""
    boot: str = ""
    """Which start of the machine that was."""


def write_prepared(directory: Path, prepared: Prepared) -> None:
    """Write the changes down, whole or not at all.

    Raises:
        OSError: such as a full disk.
    """
    _write(directory / _NEW, _written(prepared))
    (directory / _NEW).rename(directory / PREPARED)


def read_prepared(directory: Path, name: str = PREPARED) -> Prepared:
    """Return what was prepared in a view.

    Raises:
        OSError: nothing was.
        msgspec.MsgspecError: what is written there is damaged.
    """
    found = (directory / name).read_bytes()
    start = len(_HEAD) + _SUM
    if found[:start] != _HEAD + _sum(found[start:]):
        raise msgspec.DecodeError("it is not what was written")
    return msgspec.msgpack.decode(found[start:], type=Prepared)


def begin(directory: Path, upper: int, prepared: Prepared) -> int:
    """Bring all to the disk that the steps need to be taken back. None may be done before.

    Args:
        directory: that of the view.
        upper: the upper directory of the view.
        prepared: what was prepared.

    Returns:
        The time of the file system when it was written down.

    Raises:
        OSError: such as a full disk. Nothing is begun.
    """
    journal, new = directory / JOURNAL, directory / _NEW
    try:
        _write(new, _written(prepared))
        with ExitStack() as opened:
            contents = _new_files(upper, prepared.changes.steps, opened)
            written = (directory, directory / PREPARED, new, *directory.parents[:2])
            ours = [os.open(one, os.O_RDONLY | os.O_CLOEXEC) for one in written]
            for one in ours:
                opened.callback(os.close, one)
            if contents is None:
                files.flush_all(upper)
            files.flush([*(contents or ()), *ours])
            new.rename(journal)
            files.flush(ours[:1])
        return journal.stat().st_mtime_ns
    except OSError:
        journal.unlink(missing_ok=True)
        raise


def _new_files(upper: int, steps: Iterable[Step], opened: ExitStack) -> list[int] | None:
    """Open the new files, or None if there are too many, or whole trees."""
    found: list[int] = []
    for step in steps:
        if step.act not in {"make", "swap"} or step.after is None:
            continue
        if stat.S_ISLNK(step.after.mode):
            continue
        if len(found) == _MOST_SINGLE or stat.S_ISDIR(step.after.mode):
            return None
        above, _, name = step.path.rpartition(b"/")
        try:
            with files.below(upper, above) as parent:
                found.append(os.open(name, files.READ, dir_fd=parent))
        except OSError:
            return None  # not readable for us
        opened.callback(os.close, found[-1])
    return found


def end(directory: Path) -> None:
    """Say that all steps are done, or none. A start after this only removes the view."""
    (directory / JOURNAL).rename(directory / _ENDED)


def undo(directory: Path) -> None:
    """Say that what was done of the steps has been taken back, which is not recorded yet."""
    (directory / JOURNAL).rename(directory / _UNDONE)


def reopen(directory: Path) -> None:
    """Say that the steps, which are all done, are being taken back.

    Raises:
        OSError: they were not done.
    """
    (directory / _ENDED).rename(directory / JOURNAL)


def forget(directory: Path) -> None:
    """Say that a view is being removed: a start in the middle of it finds nothing to tell of.

    Raises:
        OSError: it cannot be said.
    """
    for name in (PREPARED, _UNDONE):
        (directory / name).unlink(missing_ok=True)


def is_waiting(directory: Path) -> bool:
    """Return whether the changes of a command wait for their commit."""
    return (directory / PREPARED).exists() and not (directory / _ENDED).exists()


def read_undone(directory: Path) -> Prepared | None:
    """Return what an earlier start took back, or None if none did."""
    with suppress(msgspec.MsgspecError, OSError):
        return read_prepared(directory, _UNDONE)
    return None


def is_begun(directory: Path) -> bool:
    """Return whether steps may be done, and not all of them."""
    return (directory / JOURNAL).exists()


def read_begun(directory: Path) -> tuple[Prepared, int]:
    """Return what was being committed, and the time when it was written down.

    The time is earlier where the clock was set back since then: what the user has changed stays. A
    machine without a clock of its own starts in the past, which is no such case.

    Raises:
        msgspec.MsgspecError: both records are damaged.
        OSError: they cannot be read.
    """
    for name in (JOURNAL, PREPARED):
        try:
            found, written_ns = (
                read_prepared(directory, name),
                (directory / name).stat().st_mtime_ns,
            )
            is_same_start = found.boot == files.boot()
            return found, files.sure_time(written_ns, found.booted_ns if is_same_start else 0)
        except (msgspec.MsgspecError, FileNotFoundError):
            continue
    raise msgspec.DecodeError("no record is whole")


def _written(prepared: Prepared) -> bytes:
    content = msgspec.msgpack.encode(prepared)
    return _HEAD + _sum(content) + content


def _sum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SUM).digest()


def _write(path: Path, content: bytes) -> None:
    with closed_after(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    ) as descriptor:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
