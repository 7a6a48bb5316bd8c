"""Paths that git's settings lead to: hooks, included configurations, targets of links.

A file at such a path acts like a file of the repository itself, even if it does not exist yet.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from ironcurtain_proxy.control_places.git_settings import named_files
from ironcurtain_proxy.control_places.rules import looks_like_repository
from ironcurtain_proxy.sandbox.control_files import ControlFile, Found

CONFIGURATIONS: Final = ("config", "config.worktree")
_LARGEST: Final = 1 << 20
_MOST: Final = 1000
"""The most configurations that are followed from one: they may include each other without end."""
_HUSKY: Final = "_"
"""The directory of husky's hooks, which run scripts of the directory that holds it."""


class Leads:
    """The paths below some directories that settings lead to."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        """Begin with none. `roots`: absolute and real."""
        self._roots = roots
        self._paths: set[str] = set()
        self._names: dict[str, set[str]] = {}
        self._above: set[str] = set()
        """Directories on the way to a path."""
        self._in_each: set[str] = set()
        """Relative paths of hooks that the user's own settings name for every repository."""
        self._in_linked: set[str] = set()
        """Relative paths of hooks in a repository's settings, which hold in its worktrees, too."""

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def paths(self) -> frozenset[str]:
        """The paths that settings lead to, absolute."""
        return frozenset(self._paths)

    @property
    def in_each(self) -> tuple[str, ...]:
        """Where the user's own settings say that every repository has its hooks."""
        return tuple(sorted(self._in_each))

    def names_in(self, directory: str) -> set[str]:
        """Return the names in a directory that settings lead to."""
        return self._names.get(directory, set())

    def is_on_the_way(self, link: str) -> bool:
        """Return whether a link came in the place of a directory on the way to such a path."""
        return link in self._above

    def of_user(self) -> None:
        """Add the paths that the user's own settings of git lead to."""
        home = os.path.expanduser("~")  # noqa: PTH111  text
        beside = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        for file in (f"{home}/.gitconfig", f"{beside}/git/config", "/etc/gitconfig"):
            self._follow(file, top=None)

    def of_files(self, files: Iterable[tuple[Found, ControlFile]]) -> None:
        """Add the paths that files of control places lead to."""
        # Repositories before the files that point to them: both have hooks of the same name.
        for found, file in sorted(files, key=lambda one: one[0].kind == "pointer"):
            content = file.content or b""
            holder = found.path.rpartition("/")[0]
            is_git = found.anchor.lower().endswith("/.git")
            top = found.anchor.rpartition("/")[0] if is_git else found.anchor
            if file.is_link and found.kind == "pointer" and _is_repository(found.path):
                # It is looked at as any other.
                continue
            if file.is_link:
                self._follow(os.path.join(holder, os.fsdecode(content)), top=top)  # noqa: PTH118  text
            elif found.kind == "configuration" and found.path.endswith(CONFIGURATIONS):
                for is_hooks, named in named_files(os.fsdecode(content)):
                    if is_hooks and not named.startswith(("/", "~")):
                        self._in_linked.add(named)
                    path = os.path.expanduser(named)  # noqa: PTH111  text
                    self._follow(os.path.join(top if is_hooks else holder, path), top=top)  # noqa: PTH118  text
                self.of_repository(top, is_pointer=False)
            elif found.kind == "pointer":
                self.of_repository(holder, is_pointer=True)

    def of_repository(self, top: str, *, is_pointer: bool) -> None:
        """Add the hooks that hold in a repository by the settings of the user, or of its owner."""
        for path in sorted(self._in_each | self._in_linked if is_pointer else self._in_each):
            self._follow(f"{top}/{path}", top=top)

    def _follow(self, path: str, *, top: str | None) -> None:
        """Add a path, what lies on the way to it, and where the configuration at it leads to."""
        waiting, seen = [path], set[str]()
        while waiting and len(seen) < _MOST:
            one = os.path.normpath(waiting.pop())
            # No file has a name with NUL.
            if one in seen or "\0" in one:
                continue
            seen.add(one)
            target = os.path.realpath(one)
            for each in (*self._links(one), target):
                self._add(each)
            waiting += self._named(one, target, top)

    def _add(self, path: str) -> None:
        is_ours = any(path.startswith(f"{root}/") for root in self._roots)
        if is_ours and path not in self._paths:
            self._paths.add(path)
            parent, _, name = path.rpartition("/")
            self._names.setdefault(parent, set()).add(name)
            self._above.update(_above(path))

    def _named(self, path: str, target: str, top: str | None) -> Iterator[str]:
        """The paths that the file or directory at a path leads to in turn."""
        if target.endswith(f"/{_HUSKY}"):
            yield target.rpartition("/")[0]
        for is_hooks, written in named_files(_text(target)):
            named = os.path.expanduser(written)  # noqa: PTH111  text
            if not is_hooks:
                yield os.path.join(path.rpartition("/")[0], named)  # noqa: PTH118  text
            elif top is None and not named.startswith("/"):
                self._in_each.add(named)
            else:
                yield os.path.join(top or "/", named)  # noqa: PTH118  text

    def _links(self, path: str) -> list[str]:
        """The links on the way to a path: each could be exchanged."""
        parts = path.split("/")
        above = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
        return [one for one in above if os.path.islink(one)]  # noqa: PTH114  text


def _above(path: str) -> Iterator[str]:
    above = path.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


def _is_repository(link: str) -> bool:
    with suppress(OSError):
        return looks_like_repository(os.listdir(link))  # noqa: PTH208  names are enough
    return False


def _text(path: str) -> str:
    with suppress(OSError, ValueError):
        if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  text
            with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  text
                return file.read(_LARGEST)
    return ""
