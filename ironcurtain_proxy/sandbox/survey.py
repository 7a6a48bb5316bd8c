"""A complete survey of the control places below some directories, at the cost of what changed.

Every directory is looked at each time, and listed again if its stamp is another one. Whoever makes,
renames or removes an entry changes the directory's time of change, which only the kernel sets. So
no event is needed, and none can be lost. Of what stays in a directory the caller reads the files.

A bound that is reached is reported (`too_many`, `refused`): it never means that nothing is there.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.control_places.git_files import is_index
from ironcurtain_proxy.control_places.leads import CONFIGURATIONS, Leads
from ironcurtain_proxy.control_places.links import leads_into, leads_into_cache
from ironcurtain_proxy.control_places.python_modules import decoded
from ironcurtain_proxy.control_places.rules import (
    control_of,
    folded,
    looks_like_repository,
    may_be_control,
)
from ironcurtain_proxy.sandbox.putting_back import ControlFile, FileKind, Found, Inode

_WITH_COMMANDS: Final = frozenset({"acted-on", "hook", "led-to"})


def follow(leads: Leads, files: Iterable[tuple[Found, ControlFile]]) -> None:
    """Add the paths that files of control places lead to."""
    # Repositories before the files that point to them: both have hooks of the same name.
    for found, file in sorted(files, key=lambda one: one[0].kind == "pointer"):
        content = file.content or b""
        text = os.fsdecode(content) if file.is_link else decoded(content)
        holder, _, name = found.path.rpartition("/")
        is_git = folded(found.anchor).endswith("/.git")
        top = found.anchor.rpartition("/")[0] if is_git else found.anchor
        if file.is_link:
            # A repository is looked at as any other.
            if found.kind != "pointer" or not _is_repository(found.path):
                leads.of_link(found.path, text, top, is_hook=found.kind in {"hook", "led-to"})
        elif found.kind == "configuration" and found.path.endswith(CONFIGURATIONS):
            leads.of_configuration(text, holder, top)
            leads.of_repository(top, is_pointer=False)
        elif found.kind == "pointer":
            leads.of_pointer(found.path, holder)
        elif found.kind in _WITH_COMMANDS and not (found.kind == "led-to" and "." in name):
            leads.of_commands(found.path, text, is_hook=found.kind != "acted-on")


def may_point(one: Found, text: bytes, roots: Collection[str], *, is_end: bool) -> bool:
    """Return whether a new `.git` file leads to a repository that is looked at, too."""
    if not folded(one.path).endswith("/.git") or not text.startswith(b"gitdir: "):
        # A file that is just being written is empty.
        return not is_end and not text
    written = os.fsdecode(text.removeprefix(b"gitdir: ").removesuffix(b"\n"))
    if any(one < " " for one in written):
        # Git stops reading at NUL, and drops a carriage return at the end.
        return False
    holder = one.path.rpartition("/")[0]
    target = os.path.normpath(os.path.join(holder, written))  # noqa: PTH118  text
    # A link can be changed later, and a link of the kernel leads each process to another file.
    if os.path.realpath(target) != target or not lies_in(target, roots):
        return False
    with suppress(OSError):
        return looks_like_repository(os.listdir(target)) or (  # noqa: PTH208  names
            not is_end and "/.git/" in folded(target)
        )
    return False


def lies_in(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path lies in one of some directories, and is none of them."""
    return any(path.startswith(f"{root}/") for root in roots)


def head_of(repository: str) -> str:
    """Return the path of the file whose removal makes a bare repository none, or the next one."""
    with suppress(OSError):
        heads = [one for one in os.listdir(repository) if folded(one) == "head"]  # noqa: PTH208
        # Capitals come first: git looks for `HEAD` where names are compared as they are.
        return f"{repository}/{min(heads, default='HEAD')}"
    return f"{repository}/HEAD"


def _is_repository(link: str) -> bool:
    with suppress(OSError):
        return looks_like_repository(os.listdir(link))  # noqa: PTH208  names are enough
    return False


MOST_DIRECTORIES: Final = 60_000
"""Beyond it a look takes too long for each call: the caller ends containment."""
_DEEPEST: Final = 200
"""Levels of directories. Beyond it a path can be longer than the kernel takes."""
_COARSE_NS: Final = 2_000_000_000
"""A directory that changed no longer ago is listed again: a file system rounds times."""
_READABLE: Final = stat.S_IRUSR | stat.S_IXUSR
_ALWAYS: Final = frozenset({"alternates", "http-alternates"})

_Stamp: TypeAlias = tuple[int, int, int]


class _Context(Struct, frozen=True):
    """What a directory is a part of."""

    anchor: str = ""
    inode: Inode = (0, 0)
    kind: FileKind | None = None
    """Of every file below the anchor, or None if the rules say it for each."""
    repository: str = ""
    """The directory of git that holds it, or empty if none does."""


_PLAIN: Final = _Context()


class _Directory(Struct):
    """A listed directory."""

    path: str
    stamp: _Stamp
    given: _Context
    """The context by what is above it."""
    is_sure: bool
    """Whether it cannot have changed since, within the grain of its times."""
    context: _Context = _PLAIN
    found: list[Found] = field(default_factory=list)
    inner: list[tuple[str, _Context]] = field(default_factory=list)
    """The directories in it, by their paths."""

    def is_still(self, stamp: _Stamp, given: _Context) -> bool:
        """Return whether it holds the same entries, and is a part of the same."""
        return self.is_sure and (self.stamp, self.given) == (stamp, given)


class _Judge(Struct, frozen=True):
    """The judgement on the entries of one directory, the cheapest question first."""

    rules: Callable[..., FileKind | None]
    parts: tuple[str, ...]
    context: _Context
    is_searched: bool
    """Whether each entry is asked about, as in a repository's own directory."""
    leads: Leads
    leads_away: Callable[[str], bool]

    def kind_of(self, entry: "os.DirEntry[str]", *, is_directory: bool) -> FileKind | None:
        """Return what an entry is, or None if it is data."""
        name, is_link = entry.name, entry.is_symlink()
        if self.leads.is_path(entry.path, is_directory=is_directory, is_link=is_link):
            return "led-to"
        if self.context.kind is not None:
            return self.context.kind
        if is_link and self.leads_away(entry.path):
            return "pointer"
        is_asked = (
            self.is_searched or folded(name) in _ALWAYS or (is_link and self.context.repository)
        )
        if self.is_searched and not is_directory and not is_link and is_index(name):
            return "index"
        if is_asked or may_be_control(self.parts[-1] if self.parts else "", name):
            return self.rules((*self.parts, name), is_directory=is_directory, is_link=is_link)
        return None


class Survey(Struct):
    """The control places below some directories."""

    roots: tuple[str, ...]
    leads: Leads
    let_in: Callable[[str], None]
    """Makes a directory readable that a server closed to us."""
    on_directory: Callable[[str, bool], None]
    """Is told each directory that is listed, and whether its files are control places."""
    open_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of a directory, the only names that a server can change."""
    settled: set[str] = field(default_factory=set)
    """Hidden names that were there before any server ran, in lower case."""
    own_places: tuple[str, ...] = ()
    """Directories where servers write and nobody looks."""
    learns: bool = False
    """Whether each hidden name that comes counts as settled."""
    too_many: bool = False
    """Whether there were more directories than are remembered, the last time."""
    refused: list[str] = field(default_factory=list)
    """Directories that cannot be looked into, the last time."""
    _listed: dict[str, _Directory] = field(default_factory=dict)
    _repositories: set[tuple[str, ...]] = field(default_factory=set)
    _closed: dict[str, _Stamp] = field(default_factory=dict)
    """The directories that were closed to us before any server ran."""

    def walk(self) -> list[Found]:
        """Return all control places that exist."""
        self.too_many, self.refused = False, []
        before, self._listed = self._listed, {}
        found: list[Found] = []
        now = time.time_ns()
        waiting = [(root, _PLAIN) for root in self.roots]
        while waiting:
            path, context = waiting.pop()
            listed = self._look_at(path, context, before.get(path), now)
            if listed is not None:
                # Those beyond the bound are looked at all the same, and each time anew.
                self.too_many = self.too_many or len(self._listed) >= MOST_DIRECTORIES
                if not self.too_many:
                    self._listed[path] = listed
                found += listed.found
                waiting += listed.inner
        return found

    def repositories(self) -> list[str]:
        """Return the directories of git that were found the last time."""
        return [path for path, one in self._listed.items() if one.context.repository == path]

    def forget(self) -> None:
        """List every directory again the next time."""
        self._listed = {}

    def _look_at(
        self, path: str, context: _Context, before: _Directory | None, now: int
    ) -> _Directory | None:
        try:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                return None
            stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
            if before is not None and before.is_still(stamp, context):
                return before
            if path.count("/") > _DEEPEST:
                self.refused.append(path)
                return None
            # Root looks in without.
            if status.st_uid == os.geteuid() != 0 and status.st_mode & _READABLE != _READABLE:
                self._enter(path, status)
            is_sure = abs(now - status.st_ctime_ns) > _COARSE_NS
            return self._list(_Directory(path, stamp, context, is_sure))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            # What is another user's, and closed to us, is closed to our servers. They reach what
            # has too long a path step by step.
            if error.errno == errno.ENAMETOOLONG or os.geteuid() in {0, _owner(path)}:
                self.refused.append(path)
            return None

    def _enter(self, path: str, status: os.stat_result) -> None:
        """Open a closed directory of ours, unless it is as it was before any server ran.

        The timeline opens it for a moment, which changes no more than its time of change.
        """
        stamp = status.st_mode, status.st_ino, status.st_mtime_ns
        if self.learns:
            self._closed[path] = stamp
        elif self._closed.get(path) != stamp:
            self.let_in(path)

    def _list(self, listed: _Directory) -> _Directory:
        path = listed.path
        with os.scandir(path) as scanned:
            entries = [*scanned]
        parts = self._parts(path)
        context = listed.context = self._context(listed, parts, {one.name for one in entries})
        self.on_directory(path, bool(context.anchor))
        # Of what lies alone in a plain directory, the directory is the anchor.
        of = context if context.anchor else _Context(path, listed.stamp[:2])
        is_data = bool(context.repository) and self._is_data(parts)
        judge = _Judge(
            rules=self._kind,
            parts=parts,
            context=context,
            is_searched=bool(context.repository) and not is_data,
            leads=self.leads,
            leads_away=self._leads_away,
        )
        open_names = self.open_names.get(path)
        for entry in [one for one in entries if open_names is None or one.name in open_names]:
            is_directory = entry.is_dir(follow_symlinks=False)
            kind = judge.kind_of(entry, is_directory=is_directory)
            if is_directory and kind != "hidden":
                listed.inner.append((entry.path, _inner(entry, kind, context)))
            elif kind is not None:
                at, is_whole = (of.anchor, of.inode), _is_whole(of)
                is_bare = bool(of.repository) and not is_whole
                listed.found.append(Found(entry.path, kind, *at, is_whole, is_bare))
        return listed

    def _parts(self, path: str) -> tuple[str, ...]:
        """Return the components of a path below the root that holds it."""
        root = next(one for one in self.roots if path == one or path.startswith(f"{one}/"))
        return tuple([one for one in path[len(root) :].split("/") if one])

    def _context(
        self, listed: _Directory, parts: tuple[str, ...], names: Collection[str]
    ) -> _Context:
        """Return what a directory is a part of, now that its entries are known."""
        context = listed.given
        self._repositories.discard(parts)
        # Below `.claude` and its like everything is judged as its own, whatever it looks like.
        if context.kind is None and looks_like_repository(names):
            self._repositories.add(parts)
            if context.repository != listed.path:
                return _Context(listed.path, listed.stamp[:2], repository=listed.path)
        return context

    def _leads_away(self, link: str) -> bool:
        try:
            target = os.readlink(link)  # noqa: PTH115  text
        except OSError as error:
            # One that comes and goes, or is replaced, must not hide what lies beside it.
            if error.errno not in {errno.ENOENT, errno.EINVAL, errno.ENOTDIR}:
                raise
            return False
        root = next(one for one in self.roots if link.startswith(f"{one}/"))
        return leads_into_cache(root, self._parts(link), target) or leads_into(
            link, target, self.own_places
        )

    def _kind(
        self, parts: tuple[str, ...], *, is_directory: bool, is_link: bool
    ) -> FileKind | None:
        place = control_of(
            parts,
            is_directory=is_directory,
            is_link=is_link,
            is_repository=self._repositories.__contains__,
            is_settled=self._is_settled,
        )
        return None if place is None else place.kind

    def _is_data(self, parts: tuple[str, ...]) -> bool:
        """Return whether a directory of a repository holds data alone, links excepted."""
        kind = self._kind((*parts, "?"), is_directory=False, is_link=False)
        return parts not in self._repositories and kind is None

    def _is_settled(self, parts: tuple[str, ...]) -> bool:
        name = parts[-1].lower()
        if self.learns:
            self.settled.add(name)
        return name in self.settled


def _inner(entry: "os.DirEntry[str]", kind: FileKind | None, context: _Context) -> _Context:
    """Return the context of a directory in a directory, by its name."""
    if context.kind is not None:
        return context
    if folded(entry.name) == ".git":
        return _Context(entry.path, _inode(entry), repository=entry.path)
    if kind in {"acted-on", "led-to"}:
        return _Context(entry.path, _inode(entry), kind)
    return context


def _owner(path: str) -> int | None:
    with suppress(OSError):
        return os.lstat(path).st_uid
    return None


def _is_whole(context: _Context) -> bool:
    """Return whether a directory holds no other files, as a bare repository may."""
    return context.kind is not None or "/.git" in folded(context.repository)


def _inode(entry: "os.DirEntry[str]") -> Inode:
    # An entry that is gone by now must not hide the others.
    with suppress(FileNotFoundError):
        status = entry.stat(follow_symlinks=False)
        return status.st_dev, status.st_ino
    return 0, 0
