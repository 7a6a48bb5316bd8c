"""The look at control places where servers may write: what a server left there is put back.

Sandboxes close the control places that exist at the start (`closed`). Whatever comes later, or is
closed no longer because a program of the user has replaced it, is judged by its content at every
look. A look is complete: it needs no event, reads every control file that is not closed, and ends
what it cannot judge.

    begin ── the present state is the user's ──▶ look ─┬─ the same, or harmless: known from now on
                                                       └─ anything else: taken away or put back

Two looks differ. A look at the end (`is_end`) is made when no process of a server runs, and accepts
only what is whole. A look while a call runs lets pass what git is just writing.

The methods block, and may be called from any thread.
"""

import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from ironcurtain_proxy.control_places.git_files import (
    EntryKey,
    NotedFile,
    UnreadableIndexError,
    hash_length_of,
    is_harmless,
    is_harmless_state,
    keeps_worktree,
    looked_at_again,
    names_worktree_alone,
    notes_of,
    resolves_no_more,
)
from ironcurtain_proxy.control_places.leads import CONFIGURATIONS, Leads
from ironcurtain_proxy.control_places.links import changes_looks_alone, is_activation, is_plain
from ironcurtain_proxy.control_places.python_modules import is_compiled
from ironcurtain_proxy.inotify import InotifyQueue
from ironcurtain_proxy.model.reply import PutBack
from ironcurtain_proxy.sandbox.putting_back import (
    CAN,
    EXECUTABLE,
    ClosedIdentity,
    ControlFile,
    Found,
    Index,
    Inode,
    Mishaps,
    RemovedFiles,
    has_one_name,
    holds_more,
    identity_of,
    inode_of,
    let_in,
    read_control_file,
    read_index,
    remove,
    replace_index,
    restore,
    shown,
)
from ironcurtain_proxy.sandbox.settled_names import SettledNames
from ironcurtain_proxy.sandbox.survey import Survey, follow, head_of, lies_in, may_point

_MOST_CLOSED: Final = 200
"""Each is a mount in every sandbox: with 1,000 it starts in 15 seconds, with 2,000 not at all."""
_CLOSED: Final = (*CONFIGURATIONS, "commondir", "info/attributes", "objects/info/alternates")
"""Of a repository's settings, those that are closed where they exist."""
_CHANGING: Final = frozenset({"state", "configuration", "index", "version"})
_ALLOWED: Final = frozenset({"acted-on", "hidden"})
_SEEN: Final = _ALLOWED | {"version", "led-to"}
"""What a call may change that names it: once it is allowed, and once a person has allowed it."""
_MOST_FILES: Final = 20_000
"""The most control files of which the state is known."""
_MOST_SINGLE: Final = 50
"""Refused entries that are taken away one by one. Of more, their directory is, if it holds no
other: what else is there is the user's."""
_LOOKS: Final = 5
"""The most times that one look puts back what came meanwhile."""
_RESOLVED: Final = "MERGE_RR"
_CONFIG: Final = ("configuration", "config")
_COPIES: Final = "would make git copy files into the repository"
_UNKNOWN: Final = "is a new hidden name that no known tool uses"
_WORKTREE_FILE: Final = re.compile(r".+/worktrees/[^/]+/(commondir|gitdir|locked)")
_ORDERS_TO_RUN: Final = re.compile(rb"^[ \t]*(?:exec|x)\b", re.MULTILINE)


@dataclass(slots=True)
class ControlLookout:
    """The looks for all servers of a proxy."""

    roots: tuple[str, ...]
    """The directories where confined servers may write; absolute and real."""
    keeper: RemovedFiles
    inotify: InotifyQueue | None = None
    """Tells when to look while calls run, or None if the time alone does."""
    open_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of a directory, the only names that a server can change. No other is looked at."""
    is_known: Callable[[str, ControlFile], bool] = lambda _path, _file: False
    """Whether a new file is the user's own."""
    own_places: tuple[str, ...] = ()
    """The proxy's directories: servers write in some below them, and nobody looks there."""
    unseen: str = ""
    """The first reason why something is not looked after, or empty if everything is."""
    allowed: dict[object, str] = field(default_factory=dict)
    """Files of agents, editors and shells that calls in progress may change."""
    approved: set[str] = field(default_factory=set)
    """The paths that a person has approved."""
    settled: set[str] = field(default_factory=set)
    """Hidden names that are the user's."""
    names: Mapping[str, SettledNames] = field(default_factory=dict)
    """By root, the hidden names that a person has approved, in this session or before."""
    closed_files: dict[str, ClosedIdentity] = field(default_factory=dict)
    """What sandboxes closed, with the identity that it had then."""
    places: dict[Inode, str] = field(default_factory=dict)
    """The directories with control places that were there before any server ran."""
    known: dict[tuple[Inode, str], ControlFile] = field(default_factory=dict)
    """The accepted state of each control file."""
    _indexes: dict[tuple[Inode, str], Index] = field(default_factory=dict, init=False)
    """The accepted state of each index of git."""
    guards: Collection[Found] = ()
    """The user's hooks and configurations of git, without which git passes over the hooks."""
    _began_ns: int = field(default=0, init=False)
    _own: frozenset[tuple[Inode, str]] = field(default=frozenset(), init=False)
    """The control files that were there before any server ran."""
    _first: Mapping[str, ControlFile] = field(default_factory=dict, init=False)
    """The control files that were there before any server ran, by their paths."""
    _accepted: set[Inode] = field(default_factory=set, init=False)
    """The directories of which everything was accepted once."""
    _survey: Survey = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _stuck: set[str] = field(default_factory=set, init=False)
    """The files that could not be put back, each reported once."""
    _unsaid: list[PutBack] = field(default_factory=list, init=False)
    """The findings for the next `look`."""
    _mishaps: Mishaps = field(default_factory=Mishaps, init=False)

    def __post_init__(self) -> None:
        self._survey = Survey(
            self.roots,
            Leads(self.roots),
            let_in,
            self._listen,
            self.open_names,
            self.settled,
            self.own_places,
        )

    def begin(self) -> None:
        """Accept the present state as the user's own. Called before any server runs."""
        for approved in self.names.values():
            self.settled.update(approved.read())
        leads, self._began_ns = self._survey.leads, time.time_ns()
        leads.of_outside()
        self._survey.learns = True
        found: list[Found] = []
        files: list[tuple[Found, ControlFile]] = []
        for _ in range(_LOOKS):
            count = len(leads)
            found = self._survey.walk()
            files = [
                (one, file) for one in found if (file := read_control_file(one.path, one.kind))
            ]
            self.known = {one.key: file for one, file in files}
            follow(leads, files)
            if len(leads) == count:
                break
            self._survey.forget()
        self._survey.learns = False
        self.places = {one.inode: one.anchor for one in found}
        read = [(one.key, read_index(one.path)) for one in found if one.kind == "index"]
        self._indexes = {key: index for key, index in read if index is not None}
        # What cannot be looked into now is the user's own.
        self._stuck.update(self._survey.refused)
        self._begun(files)
        self._bounded(begun=False)

    @property
    def leads(self) -> Leads:
        """What settings and links lead to."""
        return self._survey.leads

    @property
    def repositories(self) -> list[str]:
        """The directories of git that the last look found."""
        return self._survey.repositories()

    def resume(self) -> None:
        """Begin with the state that an earlier proxy noted. It is called in place of `begin`."""
        self._survey.leads.of_outside()
        files = [(one, file) for one in self._survey.walk() if (file := self.known.get(one.key))]
        self._begun(files)
        follow(self._survey.leads, files)
        self._survey.forget()

    def _begun(self, files: Collection[tuple[Found, ControlFile]]) -> None:
        self._own = frozenset(self.known)
        self._accepted = {one for one, path in self.places.items() if path.endswith("/.git")}
        self._accepted |= {one.inode for one, _ in files if one.is_whole or one.is_bare}
        # A waiting operation that has ended is not to come again.
        self._first = {one.path: file for one, file in files if one.kind != "state"}
        self.guards = [
            one for one, _ in files if one.kind == "hook" or (one.kind, one.inner) == _CONFIG
        ]

    @property
    def own_configurations(self) -> Mapping[str, bytes]:
        """The configurations of git that were there before any server ran, by their paths."""
        paths = [one.path for one in self.guards if one.kind != "hook"]
        return {one: self._first[one].content or b"" for one in paths}

    def _before(self, one: Found) -> ControlFile | None:
        """Return the accepted state of a control file.

        Where the user's programs have made its directory anew, such as `git checkout`, that is what
        was at its path before any server ran.
        """
        return self.known.get(one.key) or self._first.get(one.path)

    def closed(self) -> tuple[str, ...]:
        """Return the files and directories that sandboxes are to close, the outermost first."""
        repositories = self._survey.repositories()
        found = {f"{one}/hooks" for one in repositories}
        for one in self._survey.walk():
            is_alone = one.is_whole and one.anchor not in repositories
            if is_alone and one.kind in {"acted-on", "led-to"}:
                found.add(one.anchor)
            elif one.kind not in _CHANGING or one.inner in _CLOSED:
                found.add(one.path)
        closed: list[str] = []
        for path in sorted(found, key=lambda one: (one.count("/"), one)):
            is_below = path.startswith(tuple([f"{one}/" for one in closed]))
            # A link has no content to close, and could be exchanged.
            is_link = os.path.islink(path)  # noqa: PTH114  text
            if not (is_below or is_link or is_compiled(path)) and (identity := identity_of(path)):
                if len(closed) == _MOST_CLOSED:
                    # What is not closed could be moved away, or be changed for a moment.
                    self._miss(
                        f"more than {_MOST_CLOSED} things that {CAN} would have to be closed",
                        say=False,
                    )
                    break
                closed.append(path)
                if has_one_name(path):
                    self.closed_files[path] = identity
        return tuple(closed)

    def look(self, *, is_last: bool = True) -> tuple[PutBack, ...]:
        """Restore the accepted state, and report it once. `is_last`: no call is under way."""
        with self._lock:
            self._look(is_end=True, is_last=is_last)
            said, self._unsaid = tuple(self._unsaid), []
            return said

    def look_for_later(self) -> tuple[PutBack, ...]:
        """Look while calls run, without reporting: the next `look` reports the findings again."""
        with self._lock:
            before = len(self._unsaid)
            self._look(is_end=False, is_last=False)
            return tuple(self._unsaid[before:])

    def _look(self, *, is_end: bool, is_last: bool) -> None:
        known = len(self._unsaid)
        for _ in range(_LOOKS):
            found = self._survey.walk()
            self._bounded(begun=True)
            if not self._judge(found, is_end=is_end):
                break
        else:
            self._miss("what was put back comes again and again")
        self._unsaid += self._mishaps.count(self._unsaid[known:], is_last=is_last)

    def _judge(self, found: list[Found], *, is_end: bool) -> bool:
        """Put back what may not stay. Return whether another look is needed."""
        held = [path for path, one in self.closed_files.items() if identity_of(path) == one]
        allowed = frozenset([*self.allowed.values()])
        closed, below = frozenset(held), tuple([f"{path}/" for path in held])
        refused: list[tuple[Found, ControlFile]] = []
        new: list[tuple[Found, ControlFile]] = []
        for one in found:
            is_closed = one.path in closed or one.path.startswith(below)
            before = self._before(one)
            if is_closed and before is not None and before.links == 1:
                # Every sandbox closes it under its only name: only the user can have changed it.
                continue
            if (now := read_control_file(one.path, one.kind)) is None:
                continue
            kinds = _SEEN if one.path in self.approved else _ALLOWED
            is_approved = one.path in allowed and one.kind in kinds
            if is_approved or (is_closed and before is None):
                self.known[one.key] = now
                if one.kind == "hidden" and one.path in self.approved:
                    self._note_name(one.path)
            elif not self._can_stay(one, before, now, is_end=is_end):
                refused.append((one, now))
            elif is_end and (before is None or not now.is_same(before)):
                # What a look in the middle lets pass may be unfinished: it is not known by that.
                again = read_control_file(one.path, one.kind) if one.kind == "index" else None
                self.known[one.key] = again or now
                new.append((one, now))
        bad = {one.inode for one, _ in refused}
        good = [one for one in found if one.inode not in bad]
        self._accepted |= {one.inode for one in good if one.is_whole or (is_end and one.is_bare)}
        self._restore_guards(below, is_end=is_end)
        return self._follow(new) | self._undo(refused) | self._end_hidden()

    def _restore_guards(self, closed: tuple[str, ...], *, is_end: bool) -> None:
        """Restore what was removed of the user's hooks and configurations, where git looks on."""
        # What lies in a closed directory only the user can have removed.
        apart = (*closed, *[f"{one}/" for one in self.allowed.values()])
        for one in self.guards if is_end else ():
            inode, guard = inode_of(one.anchor), self.known[one.key]
            is_gone = not os.path.lexists(one.path) and not f"{one.path}/".startswith(apart)
            if inode and is_gone:
                if not os.path.isdir(_holder(one.path)):  # noqa: PTH112  text
                    with suppress(OSError):
                        self.keeper.take(_holder(one.path))
                if self._bring_back(one.path, guard, "was removed"):
                    self.known[inode, one.inner] = guard
                    self._unsaid.append(PutBack(f"{shown(one.path)} was removed, and was put back"))

    def _note_name(self, path: str) -> None:
        """Take an approved hidden name for one of the project's."""
        name = path.rpartition("/")[2].lower()
        self.settled.add(name)
        for root, approved in self.names.items():
            if path.startswith(f"{root}/"):
                approved.add([name])

    def _end_hidden(self) -> bool:
        """Take away the directories that cannot be looked into. Returns whether there were any."""
        missed = [path for path in self._survey.refused if path not in self._stuck]
        for path in missed:
            self._put_back(path, None, f"cannot be looked into: it {CAN}")
        return bool(missed)

    def _follow(self, new: list[tuple[Found, ControlFile]]) -> bool:
        """Look after what new repositories and pointers lead to. Return whether that is more."""
        leads = self._survey.leads
        count = len(leads)
        follow(leads, new)
        if len(leads) == count:
            return False
        self._survey.forget()
        return True

    def _can_stay(
        self, one: Found, before: ControlFile | None, now: ControlFile, *, is_end: bool
    ) -> bool:
        """Return whether a control file may stay: one that cannot be judged may not."""
        try:
            return self._may_stay(one, before, now, is_end=is_end)
        except (OSError, ValueError):
            # Such as a path with NUL in it. One file must not end the look at all others.
            return False

    def _may_stay(
        self, one: Found, before: ControlFile | None, now: ControlFile, *, is_end: bool
    ) -> bool:
        """Return whether a control file is as it was, or can run nothing."""
        if self.is_known(one.path, now) or (not is_end and self._may_be_unfinished(one)):
            return True
        if now.links > (1 if before is None else before.links):
            # A file with a second name can be written under that name, at any time.
            return False
        # A pointer that came later is checked each time: its target may be another one by now.
        is_weaker = before and one.kind == "hook" and before.mode & ~now.mode & EXECUTABLE
        if (
            now.is_same(before)
            and not is_weaker
            and (one.kind != "pointer" or one.key in self._own)
        ):
            return True
        if now.links > 1 or now.is_link:
            return False
        if one.kind == "index":
            return self._shows_all(one, is_end=is_end)
        return now.content is not None and self._is_harmless(
            one, before, now.content, is_end=is_end
        )

    def _is_harmless(
        self, one: Found, before: ControlFile | None, now: bytes, *, is_end: bool
    ) -> bool:
        """Return whether the content of a control file makes nothing run."""
        match one.kind:
            case "pointer":
                return one.key not in self._own and may_point(one, now, self.roots, is_end=is_end)
            case "configuration" if one.inner == _RESOLVED:
                return resolves_no_more(before.content if before else None, now)
            case "configuration":
                return self._is_plain(one, before, now)
            case "state":
                is_waiting = is_end or _ORDERS_TO_RUN.search(now)
                return not is_waiting or is_harmless_state(one.inner, now)
            case "version":
                return is_plain(one.inner, now, before.content if before else None)
            case "hook" | "repository" | "acted-on" | "hidden" | "led-to" | "index":
                was = before.content if before else None
                is_settings = one.kind == "acted-on" and one.path.endswith("/.vscode/settings.json")
                is_led_to = one.kind == "led-to" and is_activation(one.path, now, self.roots)
                return is_led_to or (is_settings and changes_looks_alone(was, now))

    def _shows_all(self, one: Found, *, is_end: bool) -> bool:
        """Return whether an index may stay: git shows and reads all that may have changed.

        What it says newly of times and of files whose changes git does not show is taken out of it.
        """
        index, before = read_index(one.path), self._indexes.get(one.key)
        if index is None or not index.content.startswith(b"DIRC"):
            return index is not None
        length, was = hash_length_of(index.settings), before.content if before else b""
        known: Mapping[EntryKey, NotedFile] | None = None
        # The user's own may be split over several files, or keep directories as one entry.
        with suppress(UnreadableIndexError):
            known = notes_of(was, hash_length=length)
        if not is_end or known is None or not one.inner.endswith("index"):
            return names_worktree_alone(index.content, index.settings)
        try:
            now, hid = looked_at_again(known, index.content, hash_length=length, shows=True)
        except UnreadableIndexError:
            if before is None or not names_worktree_alone(index.content, index.settings):
                return one.key in self._own and before is None
            now, hid = was, True
        if hid:
            said = f"{shown(one.path)} let git show no change of some files, and shows them again"
            self._unsaid.append(PutBack(said, acts=False))
        oldest = min(index.written_ns, before.written_ns if before else index.written_ns)
        index = replace(index, written_ns=oldest)
        if now != index.content:
            replace_index(one.path, index, now)
        self._indexes[one.key] = replace(index, content=now)
        return True

    def _may_be_unfinished(self, one: Found) -> bool:
        """Return whether programs make such a file for a moment, and take it away themselves."""
        is_named = one.inner in CONFIGURATIONS or one.inner == "commondir"
        return one.kind == "hidden" or (one.kind == "configuration" and not is_named)

    def _is_plain(self, one: Found, before: ControlFile | None, now: bytes) -> bool:
        """Return whether a file of a repository that is no data makes git run nothing."""
        inner = one.inner
        if inner in CONFIGURATIONS:
            # A clone writes its configuration in pieces, with looks in between. So in a repository
            # that came later every remote and branch counts as new.
            # At the place of one of the user's they do not: that one may have been renamed away.
            own = before if one.key in self._own else self._first.get(one.path)
            if own is None and self.leads.would_run(_holder(one.anchor), self._began_ns):
                return False
            was = own.content if own else None
            return is_harmless(was, now) and keeps_worktree(one.anchor, was, now)
        if inner.endswith(".lock") and "/" not in inner:
            # Git reads none; the name is taken while a file is written.
            return True
        if (worktree := _WORKTREE_FILE.fullmatch(one.path)) is None:
            return False
        text = os.fsdecode(now).rstrip("\n")
        if worktree[1] == "gitdir":
            return lies_in(os.path.normpath(text), self.roots)
        return worktree[1] != "commondir" or text == "../.."

    def _undo(self, refused: list[tuple[Found, ControlFile]]) -> bool:
        """Put back the earlier state. Returns whether that was new."""
        by_directory: dict[str, list[Found]] = defaultdict(list)
        whole: dict[str, str] = {}
        for one, _ in refused:
            if (taken := self._whole(one)) is not None:
                whole.setdefault(taken, _why(one))
            else:
                by_directory[_holder(one.path)].append(one)
        did = True in [self._put_back(path, None, why) for path, why in whole.items()]
        for directory, those in by_directory.items():
            if len(those) > _MOST_SINGLE and self._take_directory(directory, those):
                did = True
                continue
            for one in those:
                before = self._before(one)
                # A file that was empty before was just being written: it is removed.
                is_new = one.kind == "pointer" and one.key not in self._own
                is_state = before is not None and bool(before.content) and not is_new
                beside = _holder(one.anchor) if one.is_whole else ""
                did |= self._put_back(one.path, before if is_state else None, _why(one), beside)
        return did

    def _whole(self, one: Found) -> str | None:
        """Return the path whose removal ends a new place; None: the place was accepted before."""
        if one.kind == "hidden":
            return one.path
        if one.is_bare and one.inode not in self._accepted:
            # It may be a directory of the user's, with files that are none of git's.
            return head_of(one.anchor)
        if one.kind == "state":
            state = one.inner.partition("/")[0]
            own = [inner for inode, inner in self._own if inode == one.inode]
            is_own = any(inner.partition("/")[0] == state for inner in own)
            return None if is_own else f"{one.anchor}/{state}"
        if one.inode in self._accepted or (one.kind == "pointer" and not one.is_whole):
            return None
        return one.anchor if one.is_whole and one.anchor not in self.roots else None

    def _take_directory(self, directory: str, those: list[Found]) -> bool:
        """Take a directory away, and restore what was there. Return False if it is the user's."""
        if holds_more(directory, those) or self._holds_root(directory):
            return False
        found = [one for one in self._survey.walk() if one.path.startswith(f"{directory}/")]
        was = [(one.path, file) for one in found if (file := self.known.get(one.key))]
        did = self._put_back(directory, None, f"holds too much that {CAN}")
        for path, file in was:
            if self._bring_back(path, file, "went with its directory") and (
                inode := inode_of(_holder(path))
            ):
                self.known[inode, path.rpartition("/")[2]] = file
        return did

    def _bring_back(self, path: str, file: ControlFile, why: str) -> bool:
        """Restore a file whose directory may be gone as well. Return whether that was done."""
        try:
            restore(path, file, makes=True)
        except OSError as error:
            self._fail(path, why, "put back", error)
            return False
        return True

    def _holds_root(self, directory: str) -> bool:
        """Return whether servers work in it, or below it: then nothing takes it away."""
        return any(f"{root}/".startswith(f"{directory}/") for root in self.roots)

    def _put_back(self, path: str, before: ControlFile | None, why: str, beside: str = "") -> bool:
        if is_compiled(path):
            with suppress(OSError):
                remove(path)
                return False
        how = "taken away"
        if self._holds_root(path):
            self._fail(path, why, how, OSError(0, "servers work in it"))
            return False
        try:
            kept = self.keeper.take(path, beside)
            how = "put back" if before is not None else "removed"
            if before is not None:
                restore(path, before)
        except (FileNotFoundError, NotADirectoryError):
            return False  # it went with what held it
        except OSError as error:
            self._fail(path, why, how, error)
            return False
        self._stuck.discard(path)
        said = f"{shown(path)} {why}, and was {how}"
        self._unsaid.append(PutBack(said, shown(kept), acts=why not in {_UNKNOWN, _COPIES}))
        return True

    def _fail(self, path: str, why: str, how: str, error: OSError) -> None:
        """Say once that something could not be put back: nothing is contained any more."""
        if path not in self._stuck:
            self._stuck.add(path)
            reason = (error.strerror or "unknown").lower()
            said = f"{shown(path)} {why}, and could not be {how}: {reason}"
            self._unsaid.append(PutBack(said, ends="all"))
            self.unseen = self.unseen or f"{shown(path)} cannot be {how}"

    def _bounded(self, *, begun: bool) -> None:
        """Note the bounds that are reached: beyond them nothing is contained."""
        if self._survey.too_many:
            self._miss("there are too many directories", say=begun)
        elif len(self.known) > _MOST_FILES:
            self._miss(f"there are too many files that {CAN}", say=begun)
        elif not begun and self._survey.refused:
            self._miss(f"{shown(self._survey.refused[0])} cannot be read", say=begun)

    def _miss(self, why: str, *, say: bool = True) -> None:
        if not self.unseen and say:
            said = f"{why}, so that no call is contained any more"
            self._unsaid.append(PutBack(said, ends="all"))
        self.unseen = self.unseen or why

    def _listen(self, directory: str, holds_control: bool) -> None:  # noqa: FBT001  a callback
        if self.inotify is not None:
            self.inotify.add(directory, contents=holds_control)

    def close(self) -> None:
        """Stop listening."""
        if self.inotify is not None:
            self.inotify.close()


def _why(one: Found) -> str:
    others = _COPIES if one.inner == _RESOLVED else CAN
    return _UNKNOWN if one.kind == "hidden" else others


def _holder(path: str) -> str:
    return path.rpartition("/")[0]
