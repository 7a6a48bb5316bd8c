"""The changes of a command, read from the upper directory of its view.

Theory of operation. The upper directory holds what the command changed and nothing else, so the
look is complete and costs what the command did. Nobody writes there any more: every process of the
view has ended. Each entry is compared with the workspace as it is now:

    upper                      workspace now                  step
    device 0/0 (a whiteout)    something, as at the start     remove
    file or link               nothing                        make
    file or link               something, as at the start     swap
    directory                  a directory                    look into both; mode
    directory, opaque          a directory                    swap the whole tree
    directory                  nothing                        make the whole tree

"As at the start" means that the inode has not changed since: its time of change is set by the
kernel alone, by every write, rename and change of mode. What has changed is a conflict, and stays
as it is. Control places and what cannot be represented are taken out of the upper directory, so
that a whole tree can be renamed. A bound that is reached refuses all changes.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.control_places.python_modules import is_compiled
from ironcurtain_proxy.control_places.rules import folded
from ironcurtain_proxy.private_files import closed_after, opened_to_owner
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import (
    Changes,
    KeptBack,
    RefusedChangesError,
    Reported,
    ReportedKind,
    Step,
    StepAct,
)
from ironcurtain_proxy.transactions.control import (
    BECOMES,
    REPOSITORY_PARTS,
    Control,
    Judged,
    gravest_first,
    names_that_decide,
)
from ironcurtain_proxy.transactions.merging import INDEX, rewrite_index
from ironcurtain_proxy.transactions.moving import STAYS, Moves, is_another, staying

MOST_ENTRIES: Final = 1_000_000
MOST_COPIED: Final = 4 << 30
"""The bytes of second names. A few megabytes with names enough would fill any disk."""
_MOST_SHOWN: Final = 5
_SET_ID: Final = 0o6000
_SET_USER: Final = 0o4000
_WITH_MODE: Final = frozenset({stat.S_IFREG, stat.S_IFDIR})
_OTHERS_WRITE: Final = 0o022
_CHANGED: Final = "it was changed in the workspace while the command ran"
_SET_BACK: Final = "the clock was set back meanwhile: nobody knows whether it was changed"
_REMOVED: Final = "it was removed from the workspace while the command ran"
_MIXED: Final = "it is another kind of file in the workspace by now"
_OPEN: Final = "the right of all users to write there; the rest of it came in"
_LIST: Final = "a list of other users who may use it; the rest of it came in"
_REPORTED: Final[Mapping[StepAct, ReportedKind]] = {
    "make": "created",
    "swap": "changed",
    "remove": "deleted",
    "mode": "mode",
}
_NOTES_OF_FILES: Final = frozenset({"origin", "impure", "uuid", "protattr"})
"""The overlay's notes on a file that say nothing of its content."""


class _Place(Struct, frozen=True):
    """A directory of the view, and the one of the workspace that it stands for."""

    path: bytes
    parts: tuple[str, ...]
    upper: int
    host: int | None
    """None: there is none in the workspace."""
    is_new: bool
    """Whether all of it comes from the view, so that it is renamed with a directory above it."""
    settled: int
    """How many of its components from the left are in the workspace, too."""
    has_lists: bool = False
    """Whether the user has given what comes into it an access list."""
    is_late: bool = False
    """Whether the command made it, and somebody else made or moved one of its name meanwhile."""

    def path_of(self, name: bytes) -> bytes:
        return self.path + b"/" + name if self.path else name


class Walk(Struct, eq=False):
    """One look at one upper directory."""

    upper: int
    """The upper directory, opened."""
    host: int
    """The workspace, opened."""
    aside: int
    """A directory on the same file system for what does not come into the workspace."""
    started_ns: int
    """The time of the file system before the command began; see `files.sure_time`."""
    control: Control
    """Judges the control places."""
    doubt_ns: int = 0
    """The time after that in which a change may also have come before the command."""
    left: int = MOST_ENTRIES
    """The entries that it may still look at."""
    left_to_copy: int = MOST_COPIED
    _taken: int = 0
    _steps: list[Step] = field(default_factory=list)
    _changed: list[Reported] = field(default_factory=list)
    _kept_back: list[KeptBack] = field(default_factory=list)
    _conflicts: list[KeptBack] = field(default_factory=list)
    _left_out: list[KeptBack] = field(default_factory=list)
    _copied: list[bytes] = field(default_factory=list)
    _judged_as: dict[bytes, frozenset[str]] = field(default_factory=dict)
    """The directories of the workspace, and what made them part of a repository, or none."""
    _unsure: list[tuple[int, Step]] = field(default_factory=list)
    """Files that were renamed, or removed by somebody: where in the steps they belong."""
    _moves: Moves = field(default_factory=Moves)
    indexes: list[bytes] = field(default_factory=list)
    """The changed indexes of git."""
    _names: set[int] = field(default_factory=set)
    """The files with several names of which one was seen."""

    def changes(self) -> Changes:
        """Return all that the command changed.

        Raises:
            RefusedChangesError: a bound was reached.
            OSError: something cannot be read, or no space is left for a copy.
        """
        lists = files.inherits_list(self.host)
        top = _Place(b"", (), self.upper, self.host, False, 0, lists)  # noqa: FBT003  as below
        self._moves.started_ns = self.started_ns
        self._directory(top, files.DEEPEST)
        if self._outside() or self._unsure:
            self._moves.look_into(self.host, self._steps)
        self._decide_renamed()
        self._hold_broken_histories()
        moved = self._hold_sources()
        return Changes(
            steps=tuple(self._steps),
            changed=tuple(self._changed),
            kept_back=gravest_first(self._kept_back),
            conflicts=tuple(self._conflicts),
            left_out=tuple(self._left_out),
            copied=tuple(self._copied),
            judged_as=self._judged_as,
            moved=moved,
        )

    def _directory(self, place: _Place, deepest: int) -> None:
        if deepest <= 0:
            raise RefusedChangesError(f"directories lie more than {files.DEEPEST} deep")
        with os.scandir(place.upper) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        self.left -= len(entries)
        if self.left < 0:
            raise RefusedChangesError("the command changed more entries than are looked at")
        spoils = self._enter(place, [entry.name for entry in entries])
        for entry in entries:
            name = os.fsencode(entry.name)
            status = entry.stat(follow_symlinks=False)
            host = None if place.host is None else files.look(place.host, name)
            status = self._closed_to_others(place, name, status, host)
            if spoils and folded(entry.name) in {*REPOSITORY_PARTS, ".git"}:
                self._keep_back(place, name, BECOMES)
            elif _is_whiteout(status):
                self._whiteout(place, name, host)
            elif stat.S_ISDIR(status.st_mode):
                self._below(place, name, status, host, deepest)
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                self._file(place, name, status, host)
            else:
                self._leave_out(place, name, "a device, a socket or a pipe")

    def _notes(self, place: _Place, name: bytes) -> dict[str, bytes]:
        """Return the overlay's notes. An access list stays that was there, or that all inherit."""
        notes = files.overlay_notes(place.upper, name)
        for one in files.ACCESS_LISTS & notes.keys():
            given = notes.pop(one)
            was = None if place.host is None else files.attribute(place.host, name, one)
            if given != was and not place.has_lists:
                files.remove_attribute(place.upper, name, one)
                self._left_out.append(KeptBack(place.path_of(name), _LIST))
        return notes

    def _closed_to_others(
        self, place: _Place, name: bytes, status: os.stat_result, host: os.stat_result | None
    ) -> os.stat_result:
        """Take away that other users of the machine could write where they could not before."""
        more = status.st_mode & ~(0 if host is None else host.st_mode) & stat.S_IWOTH
        is_program = not stat.S_ISDIR(status.st_mode) and status.st_mode & _SET_ID
        is_left_out = is_program or stat.S_IFMT(status.st_mode) not in _WITH_MODE
        if not more or is_left_out:
            return status
        self._left_out.append(KeptBack(place.path_of(name), _OPEN))
        os.chmod(name, stat.S_IMODE(status.st_mode) & ~stat.S_IWOTH, dir_fd=place.upper)
        return _present(place.upper, name)

    def _enter(self, place: _Place, names: list[str]) -> bool:
        """Tell the rules what the directory holds."""
        if place.host is not None:
            self.control.follow(place.parts, place.host)
        known = frozenset(map(folded, names))
        if ".git" in known and self.control.begins(place.parts, place.host):
            return True
        if place.host is None or place.is_new:
            return self.control.enter(place.parts, known & REPOSITORY_PARTS, ())
        host = self._judged_as[place.path] = names_that_decide(place.host)
        # What the view removes is counted: the judgement errs on the side of a repository.
        view = (known | host) & REPOSITORY_PARTS
        return bool(view) and self.control.enter(place.parts, view, os.listdir(place.host))  # noqa: PTH208  of a descriptor

    def _whiteout(self, place: _Place, name: bytes, host: os.stat_result | None) -> None:
        if place.is_new or host is None:
            # Of a tree that is new as a whole, or somebody was faster.
            with suppress(OSError):
                os.unlink(name, dir_fd=place.upper)
            return
        if (why := self._why_removal(place, name, host)) is not None:
            self._kept_back.append(KeptBack(place.path_of(name), why))
        elif self._is_as_before(place, name, host):
            self._add("remove", place, name, host, None)

    def _why_removal(self, place: _Place, name: bytes, host: os.stat_result) -> str | None:
        is_link = stat.S_ISLNK(host.st_mode)
        judged = self._judged(
            place, name, is_directory=False, is_link=is_link, settled=True, is_removed=True
        )
        if stat.S_ISDIR(host.st_mode):
            why = self.control.why_no_removal(judged.parts)
            # As a whole a repository steers nothing once it is gone.
            if why is not None or folded(judged.parts[-1]) == ".git":
                return why
            if self.control.is_in_repository(judged.parts):
                return self._why_removal_inside(place, name)
        return self.control.why_kept_back(judged)

    def _why_removal_inside(self, place: _Place, name: bytes) -> str | None:
        """Return why a directory of a repository may not go: for any control place in it."""
        assert place.host is not None  # noqa: S101  the caller has looked
        with files.directory(place.host, name) as opened:
            below = _Place(
                place.path_of(name),
                (*place.parts, os.fsdecode(name)),
                opened,
                opened,
                is_new=False,
                settled=place.settled + 1,
            )
            with os.scandir(opened) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    why = self._why_removal(below, os.fsencode(entry.name), status)
                    if why is not None:
                        return why
        return None

    def _below(
        self,
        place: _Place,
        name: bytes,
        status: os.stat_result,
        host: os.stat_result | None,
        deepest: int,
    ) -> None:
        notes = self._notes(place, name)
        is_there = host is not None and stat.S_ISDIR(host.st_mode)
        is_merged = is_there and not place.is_new and notes.get("opaque") != b"y"
        if not is_merged and not place.is_new and "origin" in notes:
            # It is a part of the workspace that the command only went through.
            why = _REMOVED if host is None else _MIXED
            self._conflicts.append(KeptBack(place.path_of(name), why))
            return
        if not is_merged and self._is_kept_back(place, name, status):
            return
        with ExitStack() as opened:
            upper = opened.enter_context(files.directory(place.upper, name))
            below_host = None
            if is_there and place.host is not None:
                below_host = opened.enter_context(files.directory(place.host, name))
            is_deep = host is not None and place.settled == len(place.parts)
            below = _Place(
                place.path_of(name),
                (*place.parts, os.fsdecode(name)),
                upper,
                below_host,
                not is_merged,
                place.settled + is_deep,
                place.has_lists or (below_host is not None and files.inherits_list(below_host)),
                place.is_late
                or is_another(
                    place.host, name, notes.get("origin"), status.st_atime_ns, self.started_ns
                ),
            )
            self._directory(below, deepest - 1)
        if is_merged and host is not None:
            self._mode(place, name, status, host)
        else:
            self._whole(place, name, status, host)

    def _whole(
        self, place: _Place, name: bytes, status: os.stat_result, host: os.stat_result | None
    ) -> None:
        """Note a new directory, which is renamed with all that it holds."""
        if status.st_mode & _SET_USER:
            os.chmod(name, stat.S_IMODE(status.st_mode) & ~_SET_USER, dir_fd=place.upper)
        if place.is_new:
            self._changed.append(Reported(place.path_of(name), "created"))
        elif host is None:
            self._add("make", place, name, None, _present(place.upper, name))
        elif (why := self._why_removal(place, name, host)) is not None:
            self._kept_back.append(KeptBack(place.path_of(name), why))
        elif self._is_as_before(place, name, host):
            self._add("swap", place, name, host, _present(place.upper, name))

    def _mode(
        self, place: _Place, name: bytes, status: os.stat_result, host: os.stat_result
    ) -> None:
        new, old = stat.S_IMODE(status.st_mode), stat.S_IMODE(host.st_mode)
        if new == old:
            return
        if new & _SET_ID & ~old:
            self._leave_out(place, name, "a mode with set-user or set-group")
        elif (why := self._why_mode(place, name, new & ~old, old & ~new)) is not None:
            self._kept_back.append(KeptBack(place.path_of(name), why))
        else:
            self._add("mode", place, name, host, status)

    def _why_mode(self, place: _Place, name: bytes, more: int, less: int) -> str | None:
        """Return why a directory may not get another mode, or None if it may."""
        judged = self._judged(place, name, is_directory=True, is_link=False, settled=True)
        if self.control.is_in_repository(judged.parts):
            if more & _OTHERS_WRITE:
                return "others could write in a repository"
            if less & stat.S_IRWXU:
                return "git would pass over what it cannot read, such as your hooks"
        return self.control.why_kept_back(judged)

    def _file(
        self, place: _Place, name: bytes, status: os.stat_result, host: os.stat_result | None
    ) -> None:
        notes = self._notes(place, name)
        if not notes.keys() <= _NOTES_OF_FILES:
            raise RefusedChangesError("the kernel wrote down changes in a way that is not read")
        path = place.path_of(name)
        self._moves.comes(place.upper, name, path, notes.get("origin"), place.host)
        if status.st_mode & _SET_ID and not stat.S_ISLNK(status.st_mode):
            self._leave_out(place, name, "a set-user or set-group program")
            return
        if host is not None and not place.is_new and self._is_left(place, name, status, host):
            return
        if self._is_kept_back(place, name, status) or self._keeps_directory(place, name, host):
            return
        if status.st_nlink > 1:
            status = self._own_copy(place, name, status)
        is_index = self._is_index(place, name)
        if place.is_new or host is None:
            self._made(place, name, status, notes.get("origin"))
        elif is_index or self._is_as_before(place, name, host):
            self._add("swap", place, name, host, status)

    def _keeps_directory(self, place: _Place, name: bytes, host: os.stat_result | None) -> bool:
        """Keep a file back that takes the place of a directory which may not go."""
        if host is None or not stat.S_ISDIR(host.st_mode) or place.is_new:
            return False
        if (why := self._why_removal(place, name, host)) is not None:
            self._keep_back(place, name, why)
        return why is not None

    def _is_index(self, place: _Place, name: bytes) -> bool:
        """Note an index of git, of which the commit merges both changes."""
        if name != INDEX or not self.control.is_in_repository(place.parts):
            return False
        if not place.is_new:
            self.indexes.append(place.path_of(name))
            return True
        # It comes in with the repository. What it says of files is believed as little.
        rewrite_index(place.upper, files.content_or_none(place.host, b"config"))
        return False

    def _is_left(
        self, place: _Place, name: bytes, new: os.stat_result, old: os.stat_result
    ) -> bool:
        """Return whether a file was opened for writing and left as it was.

        Its times say little: any program sets them, and reproducible builds always do.
        """
        times_count = not place.is_late and new.st_mtime_ns != old.st_mtime_ns
        is_alike = (new.st_mode, new.st_size) == (old.st_mode, old.st_size)
        if times_count or place.host is None or not is_alike:
            return False
        return files.is_same_content(place.upper, place.host, name, new.st_mode)

    def _made(
        self, place: _Place, name: bytes, status: os.stat_result, origin: bytes | None
    ) -> None:
        """Note a file where the workspace has none.

        `origin`: names the file of the workspace that it was. The command renamed that one, or
        somebody removed it here while the command changed it.
        """
        step = Step("make", place.path_of(name), None, files.identity(status))
        if origin is not None and not place.is_new and self._has_changed(place):
            self._unsure.append((len(self._steps), step))
            return
        if not place.is_new:
            self._steps.append(step)
        self._changed.append(Reported(place.path_of(name), "created"))

    def _has_changed(self, place: _Place) -> bool:
        """Return whether entries of a directory came or went in the workspace meanwhile."""
        return place.host is not None and os.fstat(place.host).st_ctime_ns > self.started_ns

    def _decide_renamed(self) -> None:
        """Decide on files of which it is unsure whether somebody removed them meanwhile."""
        for before, step in reversed(self._unsure):
            if self._moves.is_gone(step.path):
                self._steps.insert(before, step)
                self._changed.append(Reported(step.path, "created"))
            else:
                self._conflicts.append(KeptBack(step.path, _REMOVED))

    def _is_as_before(self, place: _Place, name: bytes, host: os.stat_result) -> bool:
        """Return whether nobody changed what is in the workspace; else note the conflict."""
        assert place.host is not None  # noqa: S101  something was found there
        newest = host.st_ctime_ns
        if stat.S_ISDIR(host.st_mode):
            newest = max(newest, files.newest_change(place.host, name))
        if newest <= self.started_ns and not place.is_late:
            return True
        is_unsure = self.started_ns < newest <= self.started_ns + self.doubt_ns
        self._conflicts.append(KeptBack(place.path_of(name), _SET_BACK if is_unsure else _CHANGED))
        return False

    def _is_kept_back(self, place: _Place, name: bytes, status: os.stat_result) -> bool:
        judged = self._judged(
            place,
            name,
            is_directory=stat.S_ISDIR(status.st_mode),
            is_link=stat.S_ISLNK(status.st_mode),
            settled=place.host is not None and files.look(place.host, name) is not None,
        )
        if (why := self.control.why_kept_back(judged)) is None:
            return False
        if judged.is_directory:
            inside: list[bytes] = []
            for one in files.inside(place.upper, name):
                # What is closed to its owner is open as long as it is gone through.
                inside.append(one)
                below = name + b"/" + one
                self._moves.comes(
                    place.upper,
                    below,
                    place.path_of(below),
                    files.attribute(place.upper, below, files.ORIGIN),
                    place.host,
                )
            first = os.fsdecode(b", ".join(inside[:_MOST_SHOWN]))
            more = f" and {len(inside) - _MOST_SHOWN:,} more" * (len(inside) > _MOST_SHOWN)
            why = f"{why}; it holds {first!r}{more}" if inside else None
        elif judged.is_link:
            why = f"{why}; a link to {judged.target()!r}"
        elif is_compiled("/".join(judged.parts)):
            # Tests make it each time, and so does the user's Python.
            why = None
        self._keep_back(place, name, why)
        return True

    def _judged(
        self,
        place: _Place,
        name: bytes,
        *,
        is_directory: bool,
        is_link: bool,
        settled: bool,
        is_removed: bool = False,
    ) -> Judged:
        return Judged(
            (*place.parts, os.fsdecode(name)),
            is_directory,
            is_link,
            is_removed,
            place.settled + (settled and place.settled == len(place.parts)),
            partial(files.content_or_none, place.upper, name),
            partial(files.content_or_none, place.host, name),
            partial(files.content_or_none, place.host, b"config"),
            partial(files.target, place.upper, name),
        )

    def _keep_back(self, place: _Place, name: bytes, why: str | None) -> None:
        """Take an entry out of the view; `why` is None where it is not worth a word."""
        self._put_aside(place, name)
        if why is not None:
            self._kept_back.append(KeptBack(place.path_of(name), why))

    def _leave_out(self, place: _Place, name: bytes, why: str) -> None:
        self._put_aside(place, name)
        self._left_out.append(KeptBack(place.path_of(name), why))

    def _put_aside(self, place: _Place, name: bytes) -> None:
        status = files.look(place.upper, name)
        if status is not None and _is_whiteout(status):
            return
        files.move(place.upper, name, self.aside, b"%d" % self._taken)
        self._taken += 1

    def _own_copy(self, place: _Place, name: bytes, status: os.stat_result) -> os.stat_result:
        """Give a second name of a file a file of its own."""
        if status.st_ino not in self._names:
            self._names.add(status.st_ino)
            return status
        self._copied.append(place.path_of(name))
        self.left_to_copy -= status.st_blocks * 512
        if self.left_to_copy < 0:
            raise RefusedChangesError("too many names of files, of which each is to be one")
        with files.open_to_owner(place.upper), opened_to_owner(place.upper, name):
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(name, dir_fd=place.upper)
                self._put_aside(place, name)
                os.symlink(target, name, dir_fd=place.upper)
                return _present(place.upper, name)
            with closed_after(os.open(name, files.READ, dir_fd=place.upper)) as source:
                self._put_aside(place, name)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with closed_after(os.open(name, flags, 0o600, dir_fd=place.upper)) as made:
                    files.copy(source, made)
                    os.fchmod(made, stat.S_IMODE(status.st_mode))
                    os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
            return _present(place.upper, name)

    def _outside(self) -> list[KeptBack]:
        return [*self._conflicts, *self._kept_back, *self._left_out]

    def _hold_sources(self) -> dict[bytes, tuple[bytes, ...]]:
        """Let files stay that were moved to where they do not come in; see `Changes.moved`."""
        moved = self._moves.sources(self._steps)
        held = staying(moved, [one.path for one in self._outside()])
        self._conflicts += [KeptBack(path, STAYS) for path in sorted(held)]
        self._steps = [step for step in self._steps if step.path not in held]
        self._changed = [one for one in self._changed if one.path not in held]
        return moved

    def _hold_broken_histories(self) -> None:
        """Keep back all of a repository whose waiting rebase was kept back.

        Otherwise its HEAD would stand in the middle of a rebase that git knows nothing of.
        """
        waiting = "which git continues"
        places = [one.path.rpartition(b"/")[0] for one in self._kept_back if waiting in one.why]
        for repository in dict.fromkeys(places):
            beginning = repository + b"/"
            held = [step for step in self._steps if step.path.startswith(beginning)]
            self._steps = [step for step in self._steps if not step.path.startswith(beginning)]
            self._changed = [one for one in self._changed if not one.path.startswith(beginning)]
            if held:
                why = f"its history would be left in the middle; {len(held)} changes"
                self._kept_back.append(KeptBack(repository, why))

    def _add(
        self,
        act: StepAct,
        place: _Place,
        name: bytes,
        before: os.stat_result | None,
        after: os.stat_result | None,
    ) -> None:
        if before is not None and stat.S_ISREG(before.st_mode) and place.host is not None:
            self._moves.goes(place.host, name, place.path_of(name))
        self._steps.append(
            Step(
                act,
                place.path_of(name),
                None if before is None else files.identity(before),
                None if after is None else files.identity(after),
            )
        )
        self._changed.append(Reported(place.path_of(name), _REPORTED[act]))


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _present(directory: int, name: bytes) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)
