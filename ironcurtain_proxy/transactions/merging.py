"""Changes of git that the commit merges with those which somebody else made meanwhile.

Objects have their content for a name, so those of both sides come in. An index is one file, in
which two commands that ran at once, or the user's own git, have each changed entries of their own:
they are merged by path. Where that cannot be, nothing of that repository comes in: with the commit
of one side and the index of the other, git would take what was committed for removed.
"""

import os
import re
import stat
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.control_places.git_files import (
    UnreadableIndexError,
    hash_length_of,
    looked_at_again,
    merged,
    notes_of,
)
from ironcurtain_proxy.control_places.rules import folded, looks_like_repository
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import KeptBack, Step
from ironcurtain_proxy.transactions.journal import Prepared, write_prepared

INDEX: Final = b"index"
OWN: Final = b".git"
"""The directory of git of the workspace's own repository."""
_MERGED: Final = "merged"
_BEING_WRITTEN: Final = b"index.lock"
_MOST_INDEXES: Final = 64
"""Each is open while a command runs. An index beyond these cannot be merged."""
_PATIENCE: Final = 2.0
"""Seconds that a commit waits for the user's git to have written an index."""
_PAUSE: Final = 0.01
_OBJECTS: Final = re.compile(rb"(?:^|/)(?:\.git|\.git/modules/.+)/objects/[0-9a-f]{2}\Z")
_WORKTREE: Final = re.compile(rb"/worktrees/[^/]+\Z")
_NOT_READ: Final = (UnreadableIndexError, FileNotFoundError, NotADirectoryError, TimeoutError)
_SAME_ENTRY: Final = (
    "git's index was changed in the workspace, in the same entries or in a way that is not read, "
    "so nothing of this repository came in but files of its work tree"
)


class Indexes:
    """The indexes of the workspace's repositories as they were before a command."""

    def __init__(self, host: int, repositories: Iterable[bytes]) -> None:
        """Open them.

        Args:
            host: the workspace, opened.
            repositories: the directories of git in it that are known, relative to it.
        """
        self._opened: dict[bytes, int] = {}
        for one in (OWN, *repositories):
            if len(self._opened) == _MOST_INDEXES:
                break
            path = one + b"/" + INDEX
            if path not in self._opened:
                with suppress(OSError), files.below(host, one) as git:
                    # Git replaces the file, and never writes into it.
                    self._opened[path] = os.open(INDEX, files.READ, dir_fd=git)

    def keep(self, directory: Path, changed: Collection[bytes]) -> dict[bytes, str]:
        """Write down what the changed ones were. Return the names of the files by their paths.

        Raises:
            OSError: such as a full disk.
        """
        found: dict[bytes, str] = {}
        for number, path in enumerate(changed):
            found[path] = ""
            if path in self._opened:
                found[path] = f"{os.fsdecode(INDEX)}-{number}"
                (directory / found[path]).write_bytes(files.content_of(self._opened[path]))
        return found

    def close(self) -> None:
        """Close them."""
        for one in self._opened.values():
            os.close(one)


def merge(
    directory: Path, prepared: Prepared, upper: int, host: int
) -> tuple[Prepared, list[KeptBack]]:
    """Merge what is prepared in a view with the workspace as it is by now.

    Args:
        directory: that of the view.
        prepared: its changes.
        upper: its upper directory, opened.
        host: the workspace, opened.

    Returns:
        What to commit, as it is written down now; and the indexes that could not be merged.

    Raises:
        OSError: such as a full disk.
    """
    judged, steps = dict(prepared.changes.judged_as), list[Step]()
    for step in prepared.changes.steps:
        steps += _each_of(step, upper, host, judged)
    late: list[KeptBack] = []
    for path, base in prepared.indexes.items():
        place = next((n for n, one in enumerate(steps) if one.path == path), None)
        if place is None or steps[place].act not in {"make", "swap"}:
            continue
        with suppress(*_NOT_READ):
            if _merge_index(directory / base, prepared, steps, place, (upper, host)):
                continue
        repository = _repository_of(path) + b"/"
        steps = [one for one in steps if not one.path.startswith(repository)]
        late.append(KeptBack(path, _SAME_ENTRY))
    if (*steps,) != prepared.changes.steps:
        changes = replace(prepared.changes, steps=tuple(steps), judged_as=judged)
        prepared = replace(prepared, changes=changes)
        write_prepared(directory, prepared)
    return prepared, late


def _each_of(step: Step, upper: int, host: int, judged: dict[bytes, frozenset[str]]) -> list[Step]:
    """Return the steps that bring in what a new directory holds, or the step itself.

    Somebody else, such as a command that ran at once, may have made the directory meanwhile. Two
    repositories are not mixed.

    Args:
        step: of the changes.
        upper: the upper directory, opened.
        host: the workspace, opened.
        judged: gets the directory. See `Changes.judged_as`.
    """
    if step.act != "make" or step.after is None or not stat.S_ISDIR(step.after.mode):
        return [step]
    found: list[Step] = []
    with suppress(OSError), files.below(host, step.path) as theirs:
        with files.below(upper, step.path) as ours:
            names = os.listdir(ours)  # noqa: PTH208  of a descriptor
            own = folded(os.fsdecode(step.path.rpartition(b"/")[2])) == ".git"
            if own or looks_like_repository(names):
                return [step]
            for name in sorted(map(os.fsencode, names)):
                found += _one_of(step.path + b"/" + name, ours, theirs, (upper, host), judged)
        if not _OBJECTS.search(step.path):
            judged[step.path] = frozenset()
        return found
    return [step]


def _one_of(
    path: bytes, ours: int, theirs: int, trees: tuple[int, int], judged: dict[bytes, frozenset[str]]
) -> list[Step]:
    """Return the steps of one entry of a directory that both sides have made."""
    name = path.rpartition(b"/")[2]
    made, there = os.stat(name, dir_fd=ours, follow_symlinks=False), files.look(theirs, name)
    is_alike = there is not None and there.st_mode == made.st_mode
    is_file = is_alike and not stat.S_ISDIR(made.st_mode)
    if is_file and files.is_same_content(ours, theirs, name, made.st_mode):
        return []
    return _each_of(Step("make", path, None, files.identity(made)), *trees, judged)


def rewrite_index(git: int, settings: bytes | None) -> None:
    """Let git read each file again that the index of a new repository names.

    Args:
        git: the directory of git, opened, where nobody else writes.
        settings: the configuration of the repository that it replaces.

    Raises:
        OSError: such as a full disk.
    """
    with suppress(UnreadableIndexError):
        length = hash_length_of(settings or b"")
        content, _ = looked_at_again({}, files.content(git, INDEX), hash_length=length)
        opened = os.open(INDEX, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=git)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.truncate()


def _repository_of(index: bytes) -> bytes:
    """Return the directory of the branches that a commit with this index moves."""
    return _WORKTREE.sub(b"", index.removesuffix(b"/" + INDEX))


def _merge_index(
    base: Path, prepared: Prepared, steps: list[Step], place: int, trees: tuple[int, int]
) -> bool:
    """Let a step bring in both sides' entries. False: both sides changed the same ones.

    Raises:
        _NOT_READ: one of the three cannot be read.
        OSError: such as a full disk.
    """
    upper, host = trees
    step = steps[place]
    above = step.path.removesuffix(b"/" + INDEX)
    length = hash_length_of(b"")
    with suppress(FileNotFoundError), files.below(host, _repository_of(step.path)) as common:
        length = hash_length_of(files.content(common, b"config"))
    with files.below(host, above) as theirs, files.below(upper, above) as ours:
        mine = os.stat(INDEX, dir_fd=ours, follow_symlinks=False)
        content, now, before = files.content(ours, INDEX), mine, b""
        if step.act == "swap":
            now, before = _written_index(theirs), files.content(theirs, INDEX)
            if files.identity(now) != step.before or now.st_ctime_ns > prepared.started_ns:
                if not base.is_file():
                    return False
                both = merged(base.read_bytes(), content, before, hash_length=length)
                if both is None:
                    return False
                content = both
        made = base.with_name(_MERGED)
        known = notes_of(before, hash_length=length)
        made.write_bytes(looked_at_again(known, content, hash_length=length)[0])
        made.chmod(stat.S_IMODE(now.st_mode))
        # Git looks again at files that are newer than the index.
        oldest = min(now.st_mtime_ns, mine.st_mtime_ns)
        os.utime(made, ns=(oldest, oldest))
        after = files.identity(made.stat())
        os.rename(made, INDEX, dst_dir_fd=ours)
    was = files.identity(now) if step.act == "swap" else None
    steps[place] = Step(step.act, step.path, was, after)
    return True


def _written_index(git: int) -> os.stat_result:
    """Return the status of an index that nobody is writing anew.

    Raises:
        OSError: there is none, or git does not end.
    """
    end = time.monotonic() + _PATIENCE
    while files.look(git, _BEING_WRITTEN) is not None:
        if time.monotonic() > end:
            raise TimeoutError(0, "git is writing the index")
        time.sleep(_PAUSE)
    return os.stat(INDEX, dir_fd=git, follow_symlinks=False)
