"""Which paths of a workspace are control places, and of which kind.

Theory of operation. A caller lists what a contained call changed, and asks `control_of` for each
path. The answer follows from the path, from what git would take for a repository, and from
`names.toml`; the content of a file plays no part here. Some kinds may still stay when the caller
has looked at the content: a configuration that `git_settings.is_harmless` accepts, a pointer to a
repository that is judged by the same rules.

    src/main.py                     None: data
    .git/objects/ab/cd…             None: data of a repository
    .git/config, lib/.git/hooks/x   "configuration", "hook"
    .git/rebase-merge/strategy      "state"
    x/HEAD, x/objects, x/config     "configuration" of `x`, which git takes for a bare repository
    .claude/commands/a.md           "acted-on"
    .frobnicate/settings            "hidden": nobody knows who reads it

The rule is closed: inside a repository a name that is not listed as data is a control place, and
elsewhere a new hidden name that is not listed as harmless is one. A directory becomes a repository
when its last part appears. What lies in it was data until then, so a caller judges a directory
that was no repository before as if all of it were new.
"""

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

RelativeParts: TypeAlias = tuple[str, ...]
"""A path relative to the workspace, in components; bytes that are no UTF-8 are surrogates."""

ControlKind: TypeAlias = Literal[
    "configuration", "hook", "state", "pointer", "repository", "acted-on", "hidden", "version"
]
"""`configuration`: settings of git, and whatever else a repository holds that is not listed as
data. `hook`: a program that git runs. `state`: a waiting rebase, merge or bisect. `pointer`: a
`.git` that is no directory, or a link in a repository's data. `repository`: the name of a directory
of git itself. `acted-on`: a program of the host reads it by itself. `hidden`: an unknown new hidden
name. `version`: it names the version of a tool, or, to some managers, a path to it; or it holds
variables, with which some programs start what they start."""


class ControlPlace(Struct, frozen=True):
    """A control place that a path is, or lies in."""

    kind: ControlKind
    root: RelativeParts
    """The path to ask about and to keep back: the repository, the hidden directory, or the file."""


class _Git(Struct, frozen=True):
    data_files: frozenset[str]
    data_directories: frozenset[str]
    control_below_data: frozenset[str]
    state: frozenset[str]


class _ActedOn(Struct, frozen=True):
    names: frozenset[str]
    endings: tuple[str, ...]
    patterns: tuple[str, ...]
    program_directories: frozenset[str]
    programs: frozenset[str]
    looks: tuple[str, ...]
    within: dict[str, tuple[str, ...]]


class _Harmless(Struct, frozen=True):
    names: frozenset[str]
    beginnings: tuple[str, ...]
    endings: tuple[str, ...]
    documents: frozenset[str]
    loads_each: frozenset[str]
    caches: frozenset[str]
    cache_trees: frozenset[str]
    by_content: frozenset[str]


class _Names(Struct, frozen=True, forbid_unknown_fields=True):
    git: _Git
    acted_on: _ActedOn
    harmless: _Harmless
    commands: dict[str, tuple[str, ...]]
    homes: frozenset[str]
    of_envrc: dict[str, tuple[str, ...]]
    libraries: dict[str, tuple[str, ...]]
    readers: dict[str, tuple[str, ...]]
    waiting: dict[str, frozenset[str]]
    settings: dict[str, dict[str, str]]


_REPOSITORY: Final = ".git"
_STEERS_GIT: Final = frozenset({_REPOSITORY, "config", "config.worktree", "hooks"})
_DATA_PARTS: Final = frozenset({"objects", "refs"})
_NOT_SEEN: Final = frozenset({"Cf", "Mn"})
"""The kinds of signs that such file systems pass over, and some more."""


def folded(name: str) -> str:
    """Return a name as a file system compares it that makes no difference of case.

    There `Head` is `HEAD`, and `.g\u200dit` and `ob\u212aects` are read as what they look like. It
    is done on every file system: nobody knows where a mount or a link leads git.
    """
    if name.isascii():
        return name.lower()
    from unicodedata import category, normalize  # noqa: PLC0415  hardly ever needed

    seen = [one for one in normalize("NFKD", name) if category(one) not in _NOT_SEEN]
    return "".join(seen).casefold()


def looks_like_repository(names: Collection[str]) -> bool:
    """Return whether git would take a directory with these entries for a repository.

    This is wider than git, which also looks into `HEAD`. The directory of a worktree has
    `commondir` in place of `objects` and `refs`.
    """
    known = {folded(one) for one in names}
    return "head" in known and (known >= _DATA_PARTS or "commondir" in known)


def control_of(
    path: RelativeParts,
    *,
    is_directory: bool,
    is_link: bool,
    is_repository: Callable[[RelativeParts], bool],
    is_settled: Callable[[RelativeParts], bool],
) -> ControlPlace | None:
    """Return the control place that a changed path is or lies in, or None if it is data.

    Args:
        path: the path that was created, changed or removed.
        is_directory: whether the path is a directory now.
        is_link: whether the path is a symbolic link now.
        is_repository: whether git would take a directory for a repository, by what it holds now
            (`looks_like_repository`). It need not know about the name `.git`.
        is_settled: whether a hidden name was there before any contained call, is tracked by the
            repository, or was approved for this project.
    """
    for end in range(len(path), 0, -1):
        name = folded(path[end - 1])
        if name == _REPOSITORY and end == len(path) and not is_directory:
            return ControlPlace("pointer", path)
        if name == _REPOSITORY or (end < len(path) and is_repository(path[:end])):
            found = _in_repository(path[:end], path[end:], is_link=is_link)
            # Whoever makes a directory look like a repository must not hide settings in its data.
            is_git = any(folded(one) == _REPOSITORY for one in path[:end])
            return found if is_git or found else _by_name(path, is_settled)
    found = _in_repository((), path, is_link=is_link) if is_repository(()) else None
    return found or _by_name(path, is_settled)


def may_be_control(directory: str, name: str) -> bool:
    """Return whether an entry outside of every repository can be a control place, by two names.

    This is what a caller asks first of each entry of a large tree: most have no such name.
    """
    return (
        folded(name).startswith(".")
        or is_acted_on(name)
        or folded(directory) in read_names().acted_on.within
        or _is_run_by_name((directory, name))
    )


def may_steer(name: str, *, is_written: bool) -> bool:
    """Return whether a new entry of this name may be acted on at once, or one that was written.

    Args:
        name: of an entry of any directory.
        is_written: whether it was written in a directory that holds control places.
    """
    git, lower = read_names().git, folded(name)
    is_data = lower.endswith(".lock") or lower in git.data_files
    return lower in _STEERS_GIT or is_acted_on(name) or (is_written and not is_data)


def is_acted_on(name: str) -> bool:
    """Return whether programs of the host act on a file or a directory of this name."""
    table, lower = read_names().acted_on, folded(name)
    return (
        lower in table.names
        or lower.endswith(table.endings)
        or _patterns().match(lower) is not None
    )


@cache
def _patterns() -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, read_names().acted_on.patterns)))


def _is_run_by_name(inner: RelativeParts) -> bool:
    """Return whether a path in a tree that a shell activates is a program that each prompt runs."""
    table = read_names().acted_on
    return (
        len(inner) == len(("bin", "git"))
        and folded(inner[1]) in table.programs
        and folded(inner[0]) in table.program_directories
    )


def looks_activated(path: Sequence[str]) -> bool:
    """Return whether a path is a tree that a shell activates, or its directory of programs."""
    names, lower = read_names(), [folded(one) for one in path[-2:]]
    return lower[-1] in names.harmless.cache_trees or (
        lower[0] in names.harmless.cache_trees and lower[-1] in names.acted_on.program_directories
    )


def _is_document(inner: RelativeParts) -> bool:
    """Return whether a file below a directory of settings is one that nothing loads."""
    table = read_names().harmless
    *above, name = [folded(one) for one in inner]
    loads = any(one in table.loads_each or one.endswith(".d") for one in above)
    return name in table.documents and not loads


def _is_version(lower: str) -> bool:
    is_version = lower.startswith(".") and lower.endswith(("-version", "-versions"))
    return is_version or lower in read_names().harmless.by_content or lower.startswith(".env.")


def is_in_cache(path: Iterable[str]) -> bool:
    """Return whether a path lies in a tree of a tool's own, whose hidden names are not judged."""
    return any(folded(one) in read_names().harmless.cache_trees for one in path)


def is_inert_hook(name: str) -> bool:
    """Return whether git never runs a file of this name in a directory of hooks."""
    return name.endswith(".sample")


def _in_repository(
    repository: RelativeParts, inner: RelativeParts, *, is_link: bool
) -> ControlPlace | None:
    """Judge a path in a repository. `inner` is empty for the directory of the repository itself."""
    if not inner:
        return None
    git = read_names().git
    lower = tuple(folded(name) for name in inner)
    whole, first = "/".join(lower), lower[0]
    if first in git.state:
        return ControlPlace("state", (*repository, inner[0]))
    if first == "hooks":
        # The directory may appear, as may the samples of a new repository.
        inert = not inner[2:] and all(map(is_inert_hook, inner[1:]))
        return None if inert and not is_link else ControlPlace("hook", (*repository, *inner))
    is_data = whole.removesuffix(".lock") in git.data_files or whole == "info"
    is_data = is_data or first.startswith("sharedindex.")
    is_data = is_data or (first in git.data_directories and whole not in git.control_below_data)
    if is_data:
        return ControlPlace("pointer", (*repository, *inner)) if is_link else None
    if first in {"modules", "worktrees"} and len(inner) == 1:
        return ControlPlace("pointer", (*repository, *inner)) if is_link else None
    return ControlPlace("configuration", (*repository, *inner))


def _by_name(
    path: RelativeParts, is_settled: Callable[[RelativeParts], bool]
) -> ControlPlace | None:
    """Judge a path outside of every repository's own directory by the names on the way to it."""
    names = read_names()
    for end, name in enumerate(path, 1):
        lower, below = folded(name), path[end:]
        if lower in names.harmless.cache_trees:
            return ControlPlace("acted-on", path) if _is_run_by_name(below) else None
        beginnings = names.acted_on.within.get(lower)
        if beginnings is not None and below and folded(below[0]).startswith(beginnings):
            return ControlPlace("acted-on", path[: end + 1])
        if is_acted_on(name):
            return None if below and _is_document(below) else ControlPlace("acted-on", path)
        if not lower.startswith(".") or beginnings is not None or _is_harmless(lower):
            continue
        if not below and _is_version(lower):
            return ControlPlace("version", path)
        if not is_settled(path[:end]):
            return ControlPlace("hidden", path[:end])
    return None


def _is_harmless(lower: str) -> bool:
    table = read_names().harmless
    return (
        lower in table.names
        or lower in table.caches
        or lower.startswith(table.beginnings)
        or lower.endswith(table.endings)
    )


@cache
def read_names() -> _Names:
    """Read the table once, when the first contained call is judged."""
    import tomllib  # noqa: PLC0415  only a session with containment needs it

    text = Path(__file__).with_name("names.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _Names)
