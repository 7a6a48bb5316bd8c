"""The meaning of a family of commands that is defined in files, as a digest.

Equal digests mean that the task is unchanged. Files that are unreadable or ambiguous give no
digest.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.facts.entries import (
    hosts_of,
    just_includes,
    make_includes,
    mise_entry,
    rules_of,
    scripts_entry,
)
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.git_process import beginning_of
from ironcurtain_proxy.facts.pushes import where_git_leads
from ironcurtain_proxy.model.request import CommandPlace, DiskLookups, Family
from ironcurtain_proxy.model.values import words

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_TEXT: Final = 512 * 1024
"""The most bytes of a file whose entries are separated."""
_MAX_FILES: Final = 64
"""The most files of one task."""
_MAX_DIRECTORIES: Final = 4000
"""The most directories that are searched for the packages of a workspace."""
_SKIPPED: Final = frozenset({"node_modules", ".git", ".venv", "target", "dist"})
_ABSENT: Final = "absent"


class _UnclearError(Exception):
    """The meaning of a task is unknown."""


class _Reading(Struct):
    """The files of one digest."""

    root: str | None = None
    """The workspace, below which paths are relative in the digest: equal files of another worktree
    are the same meaning."""
    seen: dict[str, str] = field(default_factory=dict)
    """The relevant part of each file, by path."""

    def text(self, path: str) -> str | None:
        """Return the text of a file, or None if there is none."""
        found = _content(path)
        if len(found or b"") > _MAX_TEXT:
            raise _UnclearError
        return None if found is None else found.decode()

    def note(self, path: str, counts: str | None = None) -> None:
        """Add a file to the digest: the part that counts, else all of it."""
        if len(self.seen) >= _MAX_FILES:
            raise _UnclearError
        if counts is None:
            found = _content(path)
            counts = _ABSENT if found is None else sha256(found).hexdigest()
        self.seen[path] = counts

    def digest(self) -> str:
        """Return the digest."""
        seen = sorted([(self._relative(path), counts) for path, counts in self.seen.items()])
        said = "\0".join(f"{path}\0{counts}" for path, counts in seen)
        return sha256(said.encode("utf-8", "surrogateescape")).hexdigest()

    def _relative(self, path: str) -> str:
        below = None if self.root is None else f"{self.root.rstrip('/')}/"
        # No absolute path begins with a dot.
        return f"./{path.removeprefix(below)}" if below and path.startswith(below) else path


def meaning_of(family: Family, remotes: GitRemotes | None, root: str | None = None) -> str | None:
    """Return the meaning of a family, or None if it is unknown. Blocks; never raises.

    Args:
        family: one whose meaning lies in files.
        remotes: git as the server would run it.
        root: the workspace.
    """
    try:
        if family.directory is None or os.path.realpath(family.directory) != family.directory:
            return None
        if family.defined_in[0].endswith("/.git/config"):
            return None if remotes is None else where_git_leads(family, remotes)
        reading = _Reading(root=root)
        program = family.program[0].rpartition("/")[2]
        name = os.path.basename(family.defined_in[0])  # noqa: PTH119  a text
        read, runners = _READERS.get(name, (_whole, {program}))
        if program not in runners:
            return None
        read(family, family.directory, reading)
        return reading.digest()
    except (_UnclearError, OSError, ValueError, RecursionError):
        return None


def _whole(family: Family, _directory: str, reading: _Reading) -> None:
    """Read all named files, completely."""
    for path in family.defined_in:
        reading.note(path)


def _repository(family: Family, directory: str, reading: _Reading) -> None:
    """Read the configuration of a repository elsewhere, which names programs that git runs."""
    _whole(family, directory, reading)
    text = reading.text(f"{directory}/.git/config")
    if text is None or "[include" in text.lower():
        raise _UnclearError


def _task_file(family: Family, directory: str, reading: _Reading) -> None:
    _no_options(family)
    _whole(family, directory, reading)
    _no_words(family, ("includes:", "dotenv:"), reading)


def _no_words(family: Family, words: tuple[str, ...], reading: _Reading) -> None:
    """Refuse words that lead to other files, which are not read."""
    for path in family.defined_in:
        text = reading.text(path) or ""
        if any(word in text for word in words):
            raise _UnclearError


def _compose(family: Family, directory: str, reading: _Reading) -> None:
    _whole(family, directory, reading)
    for one in family.kept:
        name, _, value = one.partition("=")
        if name in {"-f", "--file"} and re.fullmatch(r"[\w./-]+", value):
            reading.note(os.path.join(directory, value))  # noqa: PTH118  a text
        elif name in {"-f", "--file", "--project-directory", "--env-file"}:
            raise _UnclearError
    _no_words(family, ("include:", "extends:"), reading)


def _turbo(family: Family, directory: str, reading: _Reading) -> None:
    _whole(family, directory, reading)
    _packages(_nearest(directory, ("turbo.json",)), reading)


def _nx(family: Family, directory: str, reading: _Reading) -> None:
    _whole(family, directory, reading)
    if any(said != _ABSENT for said in reading.seen.values()):
        # Its plugins define tasks in files all over the tree.
        raise _UnclearError


def _package(family: Family, directory: str, reading: _Reading) -> None:
    """Read a script of a `package.json`, and the package tool's settings."""
    said = [word for word in family.program if word not in {"run", "run-script", "r"}]
    root = _nearest(directory, ("package.json", "node_modules"))
    for top in dict.fromkeys((directory, root)):
        for name in _SETTINGS_OF.get(said[0], ()):
            reading.note(f"{top}/{name}")
    task = {"t": "test"}.get(said[-1], said[-1]) if len(said) > 1 else None
    chooses = any(one.startswith("-") or " " in one for one in family.kept if one != "--")
    if chooses or task == "workspace" or (task is None and family.kept):
        _packages(root, reading)
    else:
        _scripts(f"{root}/package.json", task, reading)


def _scripts(path: str, task: str | None, reading: _Reading) -> None:
    text = reading.text(path)
    entry = _ABSENT if text is None else scripts_entry(text, task)
    if entry is None:
        raise _UnclearError
    reading.note(path, entry)


def _packages(root: str, reading: _Reading) -> None:
    """Read the scripts of all packages below a directory: an option says which of them run."""
    if not os.path.lexists(root):
        reading.note(root, _ABSENT)
        return
    for count, (place, directories, files) in enumerate(os.walk(root, onerror=_raise)):
        directories[:] = [name for name in directories if name not in _SKIPPED]
        if count > _MAX_DIRECTORIES:
            raise _UnclearError
        if "package.json" in files or place == root:
            _scripts(f"{place}/package.json", None, reading)


def _raise(error: OSError) -> None:
    raise error


def _nearest(directory: str, names: tuple[str, ...]) -> str:
    """Return the directory itself or its nearest parent that has one of the names."""
    place = directory
    while True:
        if any(os.path.lexists(f"{place}/{name}") for name in names):
            return place
        if place in {"", "/"}:
            return directory
        place = place.rpartition("/")[0]


def _make(family: Family, directory: str, reading: _Reading) -> None:
    _no_options(family)
    names = [os.path.basename(path) for path in family.defined_in]  # noqa: PTH119
    _rule_file(family, directory, names, reading, is_make=True)


def _just(family: Family, directory: str, reading: _Reading) -> None:
    _no_options(family)
    directory = _nearest(directory, ("justfile", "Justfile", ".justfile"))
    _rule_file(family, directory, ["justfile", "Justfile", ".justfile"], reading, is_make=False)
    reading.note(f"{directory}/.env")


def _no_options(family: Family) -> None:
    """Refuse options in a family: they may name another file or directory."""
    if any(one.startswith(("-", "+")) and one != "--" for one in family.kept):
        raise _UnclearError


def _rule_file(
    family: Family, directory: str, names: list[str], reading: _Reading, *, is_make: bool
) -> None:
    path = next((f"{directory}/{name}" for name in names if os.path.lexists(f"{directory}/{name}")),
                f"{directory}/{names[-1]}")  # fmt: skip
    text = reading.text(path)
    if text is None:
        reading.note(path, _ABSENT)
        return
    targets = [one for one in family.kept if "=" not in one and one != "--"]
    if not is_make:
        targets = targets[:1]
    reading.note(path, rules_of(text, is_make=is_make).entry(targets))
    _included(text, directory, reading, is_make=is_make)


def _included(text: str, directory: str, reading: _Reading, *, is_make: bool) -> None:
    names = make_includes(text) if is_make else just_includes(text)
    if names is None:
        raise _UnclearError
    for name in names:
        path = os.path.join(directory, name)  # noqa: PTH118  a text
        if path not in reading.seen:
            reading.note(path)
            more = reading.text(path)
            if more is not None:
                _included(more, directory, reading, is_make=is_make)


def _mise(family: Family, directory: str, reading: _Reading) -> None:
    task = family.program[-1] if len(family.program) > 2 else "".join(family.kept[:1])  # noqa: PLR2004
    if not task or task.startswith("-") or any(one.startswith("-") for one in family.kept):
        raise _UnclearError
    place = directory
    while place:
        for name in _MISE_FILES:
            _mise_file(f"{place}/{name}", place, task, reading)
        for name in _MISE_TASKS:
            path = f"{place}/{name}/{task.replace(':', '/')}"
            if os.path.lexists(path):
                reading.note(path)
        if os.path.lexists(f"{place}/.git"):
            break
        place = place.rpartition("/")[0]


def _mise_file(path: str, place: str, task: str, reading: _Reading) -> None:
    text = reading.text(path)
    if text is None:
        return
    entry = mise_entry(text, task)
    if entry is None:
        raise _UnclearError
    reading.note(path, entry.text)
    for name in entry.files:
        reading.note(os.path.join(place, name))  # noqa: PTH118  a text


_MISE_FILES: Final = (
    "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", "mise/config.toml",
    ".mise/config.toml", ".config/mise.toml", ".config/mise/config.toml", ".tool-versions",
)  # fmt: skip
_MISE_TASKS: Final = (
    "mise-tasks", ".mise-tasks", "mise/tasks", ".mise/tasks", ".config/mise/tasks",
)  # fmt: skip
_SETTINGS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "npm": (".npmrc",),
    "pnpm": (".npmrc", "pnpm-workspace.yaml", ".pnpmfile.cjs"),
    "yarn": (".yarnrc", ".yarnrc.yml", ".npmrc"),
    "bun": ("bunfig.toml", ".env", ".env.local", ".npmrc"),
}
"""Files that set the shell of scripts, or further programs."""

_MeaningReader: TypeAlias = Callable[[Family, str, _Reading], None]
_READERS: Final[Mapping[str, tuple[_MeaningReader, frozenset[str]]]] = {
    "commondir": (_repository, words("git")),
    "package.json": (_package, words("npm pnpm yarn bun")),
    "GNUmakefile": (_make, words("make gmake")),
    "justfile": (_just, words("just")),
    "mise.toml": (_mise, words("mise")),
    "Taskfile.yml": (_task_file, words("task")),
    "compose.yaml": (_compose, words("docker docker-compose")),
    "turbo.json": (_turbo, words("turbo npx pnpm yarn")),
    "nx.json": (_nx, words("nx npx pnpm yarn")),
}
"""The reader by the first file in which a family may be defined, and the programs that it holds
for. All files are read whole for another one."""


def _content(path: str) -> bytes | None:
    """Return the content of a regular file, or None if there is none.

    Raises:
        OSError: it is no regular file, or cannot be read.
        _UnclearError: it is too large, or a link that leads nowhere.
    """
    found = beginning_of(path, _MAX_BYTES + 1)
    if len(found or b"") > _MAX_BYTES or (found is None and os.path.islink(path)):  # noqa: PTH114
        raise _UnclearError
    return found


def settled(place: CommandPlace, sought: DiskLookups, remotes: GitRemotes | None) -> CommandPlace:
    """Return a place with the meanings of families."""
    found = tuple(
        [(family, meaning_of(family, remotes, place.workspace)) for family in sought.families]
    )
    hosts: dict[Family, tuple[str, ...]] = {}
    for family, directory in sought.reaching:
        reached = hosts_of(family, directory, place.home, remotes)
        hosts[family] = tuple(sorted({*hosts.get(family, ()), *reached}))
    known = tuple([one for one in hosts.items() if one[1]])
    scripts = tuple([(path, _digest_of(path)) for path in sought.scripts])
    return replace(place, meanings=found, hosts=known, scripts=scripts)


def _digest_of(path: str) -> str:
    """Return a digest that differs where the file may differ."""
    try:
        found = _content(path)
    except (_UnclearError, OSError, ValueError):
        with suppress(OSError, ValueError):
            status = os.stat(path)  # noqa: PTH116  a text
            return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return "unreadable"
    return _ABSENT if found is None else sha256(found).hexdigest()
