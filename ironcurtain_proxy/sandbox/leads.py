"""Paths that git's settings lead to: hooks, included configurations, targets of links.

A file at such a path acts like a file of the repository itself, even if it does not exist yet.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from ironcurtain_proxy.control_places.git_settings import named_files
from ironcurtain_proxy.sandbox.steering import HOOKS, Item, SteeringPlace, items_of, led_to

_LARGEST: Final = 1 << 20
_MOST: Final = 1000
"""The most paths; a configuration may include others without end."""
_HUSKY: Final = "_"
"""The directory of husky's hooks, which run scripts of the directory that holds it."""

_Items: TypeAlias = Mapping[str, Item]


class Leads:
    """The paths below some directories that settings lead to."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        """Begin with none. `roots`: absolute and real."""
        self._roots = roots
        self._paths: set[str] = set()
        self._missing: set[str] = set()
        """Directories on the way to a path that do not exist."""
        self._in_each: set[str] = set()
        """Relative paths of hooks that the user's own settings name for every repository."""
        self._in_linked: set[str] = set()
        """Relative paths of hooks in a repository's settings, which hold in its worktrees, too."""

    def holds(self, path: str) -> bool:
        """Whether settings lead to a path, or it is a link that came on the way to one."""
        return path in self._paths or (path in self._missing and os.path.islink(path))  # noqa: PTH114  text

    def of_start(self, places: Iterable[tuple[SteeringPlace, _Items]]) -> Iterator[SteeringPlace]:
        """The places that the user's settings, and those of the places that exist, lead to."""
        home = os.path.expanduser("~")  # noqa: PTH111  text
        beside = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        for file in (f"{home}/.gitconfig", f"{beside}/git/config", "/etc/gitconfig"):
            yield from self._follow(file, top=None)
        found = [*places]
        for place, items in found:
            linked = [os.path.realpath(one) for one in led_to(place, items)]
            for target in linked if place.kind == "pointer" else ():
                if os.path.isdir(f"{target}/{HOOKS}"):  # noqa: PTH112  text
                    repository = SteeringPlace(target, "git")
                    yield repository
                    yield from self.of_place(repository, items_of(repository))
        # Repositories before the files that point to them: both have hooks of the same name.
        for place, items in sorted(found, key=lambda one: one[0].kind):
            yield from self.of_place(place, items)

    def of_place(self, place: SteeringPlace, items: _Items) -> Iterator[SteeringPlace]:
        """The places that a place's files lead to; each is given once."""
        is_git = place.path.lower().endswith("/.git")
        top = place.path.rpartition("/")[0] if is_git or place.kind != "git" else place.path
        for path in led_to(place, items):
            yield from self._follow(path, top=top)
        if place.kind == "git":
            texts = [os.fsdecode(one.content) for one in items.values() if one.content]
            hooks = [path for text in texts for is_hooks, path in named_files(text) if is_hooks]
            self._in_linked.update([path for path in hooks if not path.startswith(("/", "~"))])
        elif not is_git:
            return
        for path in sorted(
            self._in_each if place.kind == "git" else self._in_each | self._in_linked
        ):
            yield from self._follow(f"{top}/{path}", top=top)

    def _follow(self, path: str, *, top: str | None) -> Iterator[SteeringPlace]:
        """The places at a path, on the way to it, and where the configuration at it leads to."""
        waiting, seen = [path], set[str]()
        while waiting and len(seen) < _MOST:
            one = os.path.normpath(waiting.pop())
            if one in seen:
                continue
            seen.add(one)
            target = os.path.realpath(one)
            yield from self._told((*self._links(one), target))
            waiting += self._named(one, target, top)

    def _told(self, paths: Iterable[str]) -> Iterator[SteeringPlace]:
        for path in paths:
            if self._is_ours(path) and path not in self._paths and len(self._paths) < _MOST:
                self._paths.add(path)
                self._missing.update(_missing_above(path))
                yield SteeringPlace(path, "pointer")

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

    def _is_ours(self, path: str) -> bool:
        return any(path.startswith(f"{root}/") for root in self._roots)


def _missing_above(path: str) -> Iterator[str]:
    above = path.rpartition("/")[0]
    while above and not os.path.lexists(above):
        yield above
        above = above.rpartition("/")[0]


def _text(path: str) -> str:
    with suppress(OSError, ValueError):
        if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  text
            with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  text
                return file.read(_LARGEST)
    return ""
