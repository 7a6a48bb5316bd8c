"""Repositories of git: layout and branches, read from small files without git, and locks.

The target of a push is in the repository's configuration, which another call may rewrite. So from
the last check of its remotes until its answer, a push is the only call on its repository. Other
calls run concurrently: they share the lock.
"""

import os
import posixpath
import stat
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from tempfile import gettempdir
from typing import Final

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.errors import BusyError
from ironcurtain_proxy.facts.git_process import TICK, beginning_of
from ironcurtain_proxy.model.values import Arguments, RealPath, lazy


class _Traffic(Struct):
    """The calls on one repository."""

    working: int = 0
    pushing: bool = False
    pushes_waiting: int = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def admits(self, *, push: bool) -> bool:
        if self.pushing:
            return False
        # Later calls wait behind a waiting push, so that it is not starved.
        return self.working == 0 if push else self.pushes_waiting == 0

    @property
    def is_idle(self) -> bool:
        return self.working == 0 and not self.pushing and self.pushes_waiting == 0

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Repositories:
    """The repositories on which calls of one proxy work."""

    def __init__(self, *, deadline: float = 60.0) -> None:
        self._deadline = deadline
        self._traffic: dict[RealPath, _Traffic] = {}

    @asynccontextmanager
    async def undisturbed(self, repository: RealPath, *, push: bool) -> AsyncIterator[bool]:
        """Lock the repository: exclusively for a push, shared for any other call.

        Gives whether the call waited: earlier facts may no longer hold.

        Raises:
            BusyError: other calls on it did not end in time.
        """
        traffic = self._traffic.setdefault(repository, _Traffic())
        waited = not traffic.admits(push=push)
        await self._enter(repository, traffic, push=push)
        try:
            yield waited
        finally:
            self._leave(repository, traffic, push=push)

    async def _enter(self, repository: RealPath, traffic: _Traffic, *, push: bool) -> None:
        traffic.pushes_waiting += push
        try:
            with anyio.fail_after(self._deadline):
                while not traffic.admits(push=push):
                    await traffic.changed.wait()
        except TimeoutError:
            raise BusyError("another call on the same repository has not ended yet") from None
        else:
            if push:
                traffic.pushing = True
            else:
                traffic.working += 1
        finally:
            traffic.pushes_waiting -= push
            self._tidy(repository, traffic)

    def _leave(self, repository: RealPath, traffic: _Traffic, *, push: bool) -> None:
        if push:
            traffic.pushing = False
        else:
            traffic.working -= 1
        self._tidy(repository, traffic)

    def _tidy(self, repository: RealPath, traffic: _Traffic) -> None:
        traffic.notify()
        if traffic.is_idle and self._traffic.get(repository) is traffic:
            del self._traffic[repository]


# --- branches


_HEADS: Final = "ref: refs/heads/"
_MAX_BYTES: Final = 4096
_MAX_PACKED: Final = 4 * 1024 * 1024
_ORIGIN: Final = "refs/remotes/origin/"
_BRANCH: Final = lazy(r"\w[\w./-]*")
_NO_END: Final = (".lock", ".", "/")
_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")  # noqa: S108  compared alone


def current_branch(root: RealPath) -> str | None:
    """Return the branch that a commit would go to, or None if there is none, or it is unknown.

    Args:
        root: what holds `.git`: a directory, or the file that a worktree has in its place.
    """
    head = _first_line(f"{_git_directory(root)}/HEAD")
    if head is None or not head.startswith(_HEADS):
        return None
    branch, shared = head.removeprefix(_HEADS), str(shared_directory(root))
    known = branch and not (
        _is_table(shared) or _stands_for_another(f"{shared}/refs/heads/{branch}")
    )
    return branch if known else None


def current_commit(root: RealPath) -> str | None:
    """Return the commit that a push of the current branch would publish; None: it is not known.

    Args:
        root: what holds `.git`.
    """
    branch = current_branch(root)
    if branch is None:
        return None
    shared, name = shared_directory(root), f"refs/heads/{branch}"
    return _first_line(f"{shared}/{name}") or (_packed(str(shared)) or {}).get(name)


def _is_table(shared: str) -> bool:
    """Return whether references lie in a table, so that no other file tells the branch."""
    return os.path.lexists(f"{shared}/reftable")


def _stands_for_another(reference: str) -> bool:
    """Return whether a branch is symbolic: its file or link names another one."""
    is_link = os.path.islink(reference)  # noqa: PTH114  microseconds
    return is_link or (_first_line(reference) or "").startswith("ref:")


def shared_directory(root: RealPath) -> RealPath:
    """Return the common directory of a repository's worktrees, with its configuration.

    Args:
        root: what holds `.git`.
    """
    git = _git_directory(root)
    common = _first_line(f"{git}/commondir")
    place = git if not common else _joined(git, common)
    try:
        return RealPath.from_text(os.path.realpath(place))
    except ValueError:
        return root


class OriginBranches:
    """The branches of `origin` that one session has seen, and those that it pushed itself.

    Git's files say what `origin` has, and who brought it there, but a command of the agent's may
    write them. So a branch that was seen once stays somebody else's, whatever becomes of its files,
    and git's own log of pushes is not asked. What a session pushed as new is its own from then on;
    in a later session it is a branch like any other.
    """

    def __init__(self) -> None:
        self._theirs: dict[str, frozenset[str]] = {}
        self._read: dict[str, _References] = {}
        self._ours: set[tuple[str, str]] = set()
        self.tried: dict[str, tuple[tuple[str, str], ...]] = {}
        """The new branches of commands that were not carried out yet, by the text of each."""

    def watch(self, directory: str) -> None:
        """Look at a repository before a command runs there. Blocks; never raises."""
        with suppress(OSError, ValueError):
            self._look(str(shared_directory(RealPath.from_text(directory))))

    def new_among(self, directory: str, names: Iterable[str], command: str) -> tuple[str, ...]:
        """Return the branches among the names that `origin` never had, or has from this session.

        A name that also is a tag's may push the tag, and a symbolic branch another one. Blocks.

        Args:
            directory: of a repository.
            names: from a command.
            command: its text.
        """
        try:
            shared = str(shared_directory(RealPath.from_text(directory)))
            known = self._look(shared)
        except (OSError, ValueError):
            return ()
        if known is None:
            return ()
        tags, theirs = known
        found = [
            name
            for name in names
            if _is_plain_branch(shared, tags, name)
            and (name not in theirs or (shared, name) in self._ours)
        ]
        if len(self.tried) >= _MOST_TRIED:
            self.tried.clear()
        self.tried[command] = tuple([(shared, name) for name in found])
        return tuple(found)

    def succeeded(self, arguments: Arguments) -> None:
        """Note that a call was carried out. The new branches of its command are the session's."""
        for text in arguments.values():
            if isinstance(text, str):
                self._ours.update(self.tried.pop(text, ()))

    def _look(self, shared: str) -> tuple[frozenset[str], frozenset[str]] | None:
        """Return tags and branches of `origin`, or None if they are not known."""
        refs = self._read.get(shared)
        if _is_table(shared):
            return None
        if refs is None or not refs.is_current():
            refs = _references(shared)
            if refs is None:
                return None
            self._read[shared] = refs
            pushed = {name for here, name in self._ours if here == shared}
            theirs = self._theirs.get(shared, frozenset())
            self._theirs[shared] = theirs | (refs.branches - pushed)
        return refs.tags, self._theirs[shared]


class _References(Struct, frozen=True):
    """The references in a repository's directory, at one time."""

    changes: tuple[tuple[str, int], ...]
    """The files and directories that were read, with the times of their last changes."""
    at: int
    tags: frozenset[str]
    branches: frozenset[str]
    """Those of `origin`."""

    def is_current(self) -> bool:
        """Return whether nothing has changed since, as far as the clock of the disk tells."""
        return all(
            changed < self.at - TICK and _changed(path) == changed for path, changed in self.changes
        )


def _changed(path: str) -> int:
    """Return the time of the last change, which no program can set; 0: there is no such file."""
    try:
        return os.stat(path).st_ctime_ns  # noqa: PTH116  microseconds
    except FileNotFoundError:
        return 0


def _references(shared: str) -> _References | None:
    """Read the references of a repository, or return None if they are not known."""
    at, top, packs = time.time_ns(), f"{shared}/{_ORIGIN}".rstrip("/"), f"{shared}/packed-refs"
    changes = [(packs, _changed(packs))]
    packed = _packed(shared)
    if packed is None:
        return None
    found = {one.removeprefix(_ORIGIN) for one in packed if one.startswith(_ORIGIN)}
    places = [top]
    for place in places:
        changes.append((place, _changed(place)))
        with suppress(FileNotFoundError), os.scandir(place) as entries:
            for one in entries:
                if one.is_dir(follow_symlinks=False):
                    places.append(one.path)
                else:
                    found.add(one.path.removeprefix(f"{top}/"))
    return _References(tuple(changes), at, frozenset(packed), frozenset(found))


_MOST_TRIED: Final = 256


def _is_plain_branch(shared: str, tags: frozenset[str], name: str) -> bool:
    if not _BRANCH.fullmatch(name) or ".." in name or "//" in name or name.endswith(_NO_END):
        return False
    tag = f"refs/tags/{name}"
    is_tag = tag in tags or os.path.lexists(f"{shared}/{tag}")
    return not is_tag and not _stands_for_another(f"{shared}/refs/heads/{name}")


def _packed(shared: str) -> dict[str, str] | None:
    """Return the packed references with their objects, or None if they are not known."""
    try:
        content = beginning_of(f"{shared}/packed-refs", _MAX_PACKED + 1) or b""
    except OSError:
        return None
    if len(content) > _MAX_PACKED:
        return None
    lines = [line.partition(" ") for line in content.decode(errors="replace").splitlines()]
    return {name: value for value, _, name in lines if name.startswith("refs/")}


def is_worktree(directory: str, workspace: str | None) -> bool:
    """Return whether a `.git` file leads to a real worktree, which no agent can have faked.

    The worktree's data lies in the workspace's own `.git`, or outside of the workspace and of
    places for temporary files. It names the `.git` file in turn, and no link is on the way.

    Args:
        directory: real, absolute.
        workspace: the same, or None if it is not known.
    """
    file = f"{directory}/.git"
    if workspace is None or not stat.S_ISREG(os.lstat(file).st_mode):
        return False
    target = _git_directory(RealPath.from_text(directory))
    common, holder = posixpath.split(posixpath.dirname(target))
    if holder != "worktrees" or posixpath.basename(common) != ".git":
        return False
    writable = (workspace, *_TEMPORARY, gettempdir())
    is_ours = common == f"{workspace}/.git" or not any(
        f"{common}/".startswith(f"{place}/") for place in writable
    )
    return (
        is_ours
        and os.path.realpath(target) == target
        and _joined(target, _first_line(f"{target}/gitdir") or "") == file
        and _first_line(f"{target}/commondir") == "../.."
    )


def repository_of(workspace: str) -> str | None:
    """Return the `.git` directory that all worktrees of a workspace's repository share.

    It is None if it is unknown.

    A worktree of `git worktree add` counts where both sides say so: its `.git` file leads into the
    repository, and the repository names the file. Only who can write in the repository makes the
    second; grants given for it cover what such a program does in the repository anyway.

    Args:
        workspace: real, absolute. A directory below the top of a worktree has none.
    """
    own = f"{workspace}/.git"
    try:
        if not stat.S_ISDIR(os.lstat(own).st_mode):
            shared = posixpath.dirname(
                posixpath.dirname(_git_directory(RealPath.from_text(workspace)))
            )
            return shared if is_worktree(workspace, workspace) else None
    except (OSError, ValueError):
        return None
    # With `commondir` git would take another directory for the shared one.
    is_whole = os.path.lexists(f"{own}/HEAD") and not os.path.lexists(f"{own}/commondir")
    return own if is_whole else None


def _git_directory(root: RealPath) -> str:
    git = f"{root}/.git"
    kind, _, where = (_first_line(git) or "").partition(": ")
    return _joined(str(root), where) if kind == "gitdir" and where else git


def _joined(place: str, text: str) -> str:
    return os.path.normpath(os.path.join(place, text))  # noqa: PTH118  a text of git's


def _first_line(path: str) -> str | None:
    """Return the first line of a small regular file, or None if it is no such file."""
    try:
        data = beginning_of(path, _MAX_BYTES)
        return None if data is None else data.split(b"\n", 1)[0].decode().strip()
    except (OSError, ValueError):
        # ValueError: git's file names an impossible path, or is no text.
        return None
