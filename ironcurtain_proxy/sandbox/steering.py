"""Files that steer git or an agent's own client.

Commands in them run outside any sandbox, with all rights of the user, the next time the user
commits or starts an agent. A place is a directory that holds such files: a repository's `.git`, a
bare repository, an editor's or an agent's own, and `.ironcurtain` with a project's layer of policy.
This module reads files and changes none.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.control_places.git_settings import is_harmless, named_files, worktrees
from ironcurtain_proxy.model.steering import STEERING, STEERING_FILES

SteeringKind: TypeAlias = Literal["git", "claude", "pointer"]
"""`git`: a directory of git. `claude`: a directory of settings, such as `.claude`. `pointer`: a
file or link with such a name, a file such as `.mcp.json`, or a file to which settings lead."""

_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LARGEST: Final = 1 << 20
_MOST_ITEMS: Final = 2000
_DEEPEST: Final = 32
"""Levels of directories below one item that are read."""
_CONFIGURATIONS: Final = ("config", "config.worktree")
_ITEMS: Final = (*_CONFIGURATIONS, "commondir")
HOOKS: Final = "hooks"
_TODO: Final = "rebase-merge/git-rebase-todo"
"""The commands of a rebase that waits for the user to go on."""
_RUNS: Final = re.compile(rb"^[ \t]*(?:exec|x)\b", re.MULTILINE)
_BARE: Final = ("HEAD", "objects", "refs")
NOT_SEARCHED: Final = frozenset({"node_modules"})
"""The names of directories that are not searched: nobody works in them, and they hold most of a
large tree."""


class Item(Struct, frozen=True):
    """One file of a place."""

    content: bytes | None
    """The content; None: no file, too large to be kept, or not readable."""
    mode: int = 0
    signature: tuple[int, ...] = ()
    """The stamp of a file whose content is not kept: inode, size and times; of a directory, its
    inode."""
    entries: tuple[tuple[bytes, tuple[int, ...]], ...] = ()
    """Of a directory, the files below it, with the stamp of each."""

    def is_same(self, other: "Item | None") -> bool:
        """Whether the content is certainly the same, or less: of a directory files may be gone."""
        if other is None or self.content != other.content:
            return False
        return self.content is not None or (
            self.signature == other.signature and {*self.entries} <= {*other.entries}
        )

    def added_to(self, other: "Item | None") -> list[str]:
        """The new and changed files of a directory; empty too if it is not the earlier one."""
        if other is None or not other.signature or self.signature != other.signature:
            return []
        return [os.fsdecode(path) for path, _ in sorted({*self.entries} - {*other.entries})]


class SteeringPlace(Struct, frozen=True):
    """A directory with steering files."""

    path: str
    kind: SteeringKind


def place_of(directory: str, name: str) -> SteeringPlace | None:
    """The steering place of a directory's entry; None: it steers nothing."""
    lower = name.lower()
    if lower != ".git" and lower not in STEERING and lower not in STEERING_FILES:
        return None
    path = f"{directory}/{name}"
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            if lower in STEERING_FILES:
                return None
            return SteeringPlace(path, "git" if lower == ".git" else "claude")
        return SteeringPlace(path, "pointer")
    return None


def is_bare(directory: str) -> bool:
    """Whether git would accept a directory as a bare repository."""
    head, *parts = [os.path.lexists(f"{directory}/{name}") for name in _BARE]
    # The directory of a worktree has `HEAD` and `commondir`, which says where its settings lie.
    return head and (all(parts) or os.path.lexists(f"{directory}/commondir"))


def items_of(place: SteeringPlace) -> Mapping[str, Item]:
    """The steering files of a place, by their names in it."""
    try:
        with opened(place.path.rpartition("/")[0] or "/") as parent:
            name = place.path.rpartition("/")[2]
            if place.kind == "pointer":
                return {"": _read(parent, name)}
            with _directory(name, parent) as inner:
                return _settings(inner, name) if place.kind == "claude" else _of_git(inner)
    except FileNotFoundError:
        return {}
    except OSError:
        # A server may have closed it, and may open it again: one unreadable item stands for all.
        return {"": Item(None)}


def _settings(directory: int, kind: str) -> dict[str, Item]:
    steering = STEERING.get(kind.lower(), ())
    names = [name for name in _names(directory) if name.lower().startswith(steering)]
    return _read_each(directory, names)


def _of_git(directory: int) -> dict[str, Item]:
    return {**_read_each(directory, _ITEMS), **_hooks(directory), **_running_todo(directory)}


def _running_todo(directory: int) -> dict[str, Item]:
    """The commands of a rebase, if any of them runs a program."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = _read(directory, _TODO)
        if found.content is None or found.content.startswith(b"-> ") or _RUNS.search(found.content):
            return {_TODO: found}
    return {}


def _hooks(directory: int) -> dict[str, Item]:
    try:
        with _directory(HOOKS, directory) as inner:
            hooks = [name for name in _names(inner) if not name.endswith(".sample")]
            return {f"{HOOKS}/{name}": item for name, item in _read_each(inner, hooks).items()}
    except FileNotFoundError:
        return {}
    except OSError:
        return _read_each(directory, (HOOKS,))


def _read_each(directory: int, names: Iterable[str]) -> dict[str, Item]:
    found: dict[str, Item] = {}
    for name in names:
        with suppress(FileNotFoundError):
            found[name] = _read(directory, name)
    return found


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted([entry.name for entry in islice(entries, _MOST_ITEMS)])


def _read(directory: int, name: str) -> Item:
    """The current state of a file.

    Raises:
        FileNotFoundError: it is not there.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return Item(b"-> " + os.fsencode(os.readlink(name, dir_fd=directory)))
        if stat.S_ISDIR(status.st_mode):
            return _read_directory(directory, name, status)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return Item(None, signature=_signature(status))
        file = os.open(name, _OPEN, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError:
        return Item(None)
    try:
        content = os.read(file, _LARGEST + 1)
        return Item(content if len(content) <= _LARGEST else None, stat.S_IMODE(status.st_mode))
    except OSError:
        return Item(None)
    finally:
        os.close(file)


def _read_directory(directory: int, name: str, status: os.stat_result) -> Item:
    """The files below a directory; of one with too many or too deep ones, its stamp alone.

    Attacks that this stops: directories nested without end, which would end the walk with an error;
    files that come and go all the time, so that the directory would count as gone.
    """
    found: list[tuple[bytes, tuple[int, ...]]] = []
    seen = 0
    for place, names, files, at in os.fwalk(name, dir_fd=directory):
        seen += len(names) + len(files)
        if seen > _MOST_ITEMS or place.count("/") > _DEEPEST:
            return Item(None, signature=_signature(status))
        for one in (*files, *names):
            with suppress(FileNotFoundError):
                stamp = _status(one, at)
                if not stat.S_ISDIR(stamp.st_mode):
                    path = os.path.relpath(f"{place}/{one}", name)
                    found.append((os.fsencode(path), _signature(stamp)))
    return Item(None, signature=(status.st_ino,), entries=tuple(sorted(found)))


def _status(name: str, directory: int) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_accepted(place: SteeringPlace, name: str, before: Item | None, now: Item) -> bool:
    """Whether a changed item may stay: it is unchanged, or can run nothing."""
    if now.is_same(before):
        return True
    if place.kind == "git" and name in _CONFIGURATIONS and now.content is not None:
        was = None if before is None else before.content
        is_plain = not now.content.startswith(b"-> ") and is_harmless(was, now.content)
        return is_plain and _stays(place, was, now.content)
    if place.kind == "git" and name == "commondir" and now.content is not None:
        # As `git worktree add` writes it.
        return now.content == b"../..\n" and "/.git/worktrees/" in place.path
    return False


def _stays(place: SteeringPlace, before: bytes | None, now: bytes) -> bool:
    """Whether the worktree that a new configuration names is a submodule's of the same repository.

    Any other could be the home directory, where a checkout writes.
    """
    found = worktrees(now)
    if not found <= worktrees(before or b""):
        owner, modules, _ = place.path.partition("/.git/modules/")
        return bool(modules) and all(
            os.path.normpath(f"{place.path}/{one}").startswith(f"{owner}/") for one in found
        )
    return True


def inner_directories(place: SteeringPlace) -> Iterator[tuple[str, bool]]:
    """The directories below `modules` and `worktrees` of a repository.

    With each, whether it is a repository by now; it may become one later. A directory that cannot
    be listed counts as a repository.
    """
    if place.kind != "git":
        return
    unlisted: list[str] = []
    for holder in ("modules", "worktrees"):
        top = f"{place.path}/{holder}"
        for directory, names, files in os.walk(
            top, onerror=lambda error: unlisted.append(str(error.filename))
        ):
            is_repository = "HEAD" in files
            yield directory, is_repository
            if is_repository:
                names[:] = [name for name in names if name == "modules"]
    for directory in unlisted:
        if os.path.lexists(directory):
            yield directory, True


def led_to(place: SteeringPlace, items: Mapping[str, Item]) -> Iterator[str]:
    """The paths elsewhere that a place's files make git or an agent read: links, includes, hooks.

    Absolute. Only what these files name: the files that they lead to are not read.
    """
    for name, item in items.items():
        content = item.content or b""
        holder = (
            f"{place.path}/{name}".rpartition("/")[0] if name else place.path.rpartition("/")[0]
        )
        if content.startswith(b"-> "):
            yield os.path.join(holder, os.fsdecode(content.removeprefix(b"-> ")))  # noqa: PTH118  text
        elif place.kind == "git" and name in _CONFIGURATIONS:
            top = holder.rpartition("/")[0] if place.path.lower().endswith("/.git") else holder
            for is_hooks, path in named_files(os.fsdecode(content)):
                yield os.path.join(top if is_hooks else holder, os.path.expanduser(path))  # noqa: PTH111, PTH118  text


def may_point(
    text: bytes, place: SteeringPlace, roots: tuple[str, ...], known: frozenset[str]
) -> bool:
    """Whether a new `.git` file leads to a watched repository, or to one that no server can change.

    Args:
        text: its content.
        place: the file.
        roots: the directories where servers may write, watched or not.
        known: the watched repositories.
    """
    if not place.path.lower().endswith("/.git") or not text.startswith(b"gitdir: "):
        return False
    written = os.fsdecode(text.removeprefix(b"gitdir: ").rstrip(b"\n"))
    target = os.path.normpath(os.path.join(place.path.rpartition("/")[0], written))  # noqa: PTH118  text
    # A link can be changed later, and a link of the kernel leads each process to another file.
    if os.path.realpath(target) != target or target.startswith(("/proc/", "/dev/")):
        return False
    if any(target.startswith((f"{one}/modules/", f"{one}/worktrees/")) for one in known):
        return True
    return not any(target == root or target.startswith(f"{root}/") for root in roots)


@contextmanager
def opened(directory: str) -> Iterator[int]:
    """Open a directory without following any link, because a server may exchange links.

    Raises:
        OSError: there is none, or a link is on the way.
    """
    descriptor = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in directory.split("/"):
            if name:
                inner = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _directory(name: str, parent: int) -> Iterator[int]:
    descriptor = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
