"""The paths of a workspace that control places lead to.

A file at a path that a control place leads to acts like one, even if it does not exist yet. So do
files that the user's own settings and hooks name: `"command": "./tools/lint.sh"` in the settings of
an agent makes the agent run that file by itself. The user's settings may lie outside: in the home
directory, in a directory above the workspace, or in the repository of which it is a worktree.

    ~/.claude/settings.json, ~/.codex/config.toml, ~/.claude.json     agents
    ~/.config/*/*, ~/.config/systemd/user/*.service, ~/.vimrc         what starts by itself
    ../.envrc, ../.vscode/tasks.json, ../../.mcp.json                 above the workspace
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Final

import orjson

from ironcurtain_proxy.control_places.commands import (
    LONGEST,
    Commands,
    loaded_by_shell,
    may_lead,
    named_files,
    named_programs,
    read_commands,
)
from ironcurtain_proxy.control_places.python_modules import LedModules, above, entries_of, is_below
from ironcurtain_proxy.control_places.rules import is_acted_on, is_inert_hook, read_names
from ironcurtain_proxy.lazy_pattern import lazy

_HOME: Final = lazy(r"\A(?:~|\$HOME|\$\{HOME\})/")
_OF_SERVERS: Final = "mcp"
"""In the name of settings that start servers alone."""
_STARTED_BY_HAND: Final = "launch.json"
_MOST_PLACES: Final = 32
"""The most directories to which the commands of one file may go."""
_LARGEST_OUTSIDE: Final = 1 << 16
"""The bytes of settings. What is larger is a program's memory, or nobody has written it."""
_LARGEST_STATE: Final = 16 << 20
_STATE: Final = ".claude.json"
"""Claude Code's memory, in which it keeps the servers of each project."""
_MOST_ENTRIES: Final = 1000
"""The most entries of one directory. In a larger one a program keeps what it makes."""
_DEEPEST: Final = 3
_OF_PROJECTS: Final = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""Settings that hold where an agent, or an editor, is started."""
CONFIGURATIONS: Final = ("config", "config.worktree")
_LARGEST: Final = 1 << 20
_MOST_FOLLOWED: Final = 1000
"""The most configurations that are followed from one: they may include each other without end."""
_HUSKY: Final = "_"
"""The directory of husky's hooks, which run scripts of the directory that holds it."""


class Leads:
    """The paths below some directories that settings lead to."""

    def __init__(
        self,
        roots: tuple[str, ...],
        known: Iterable[str] = (),
        in_each: Iterable[str] = (),
        modules: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Begin with what is known.

        Args:
            roots: absolute and real.
            known: the paths that settings lead to, as `paths`.
            in_each: as the property of that name.
            modules: the names of modules, as `LedModules.names`.
        """
        self._roots = roots
        self._paths: set[str] = set()
        self._above: set[str] = set()
        """Directories on the way to a path. No link may come in their place."""
        self._inner: dict[str, tuple[str, ...]] = {}
        """The roots below a directory, from there; one empty text if it lies in a root itself."""
        self.modules = LedModules(roots, modules)
        self._in_each = {*in_each}
        """Relative paths of hooks that the user's own settings name for every repository."""
        self._in_linked: set[str] = set()
        """Relative paths of hooks in a repository's settings, which hold in its worktrees, too."""
        self._hooks: list[Commands] = []
        """The hooks of repositories, which run in their worktrees, too."""
        self.know(known, {})

    def __len__(self) -> int:
        return len(self._paths) + len(self.modules)

    @property
    def paths(self) -> frozenset[str]:
        """The paths that settings lead to, absolute."""
        return frozenset(self._paths)

    def know(self, paths: Iterable[str], modules: Mapping[str, Collection[str]]) -> None:
        """Add what an earlier look found: settings may lead elsewhere by what has come since."""
        for path in paths:
            self._add(path)
        for directory, names in modules.items():
            self.modules.know(directory, names)

    def is_path(self, path: str) -> bool:
        """Return whether settings lead to a path itself."""
        return path in self._paths or self.modules.hold(path)

    def holds(self, path: str) -> bool:
        """Return whether settings lead to a path, or to a directory that holds it."""
        return self.is_path(path) or any(one in self._paths for one in above(path))

    def is_on_the_way(self, path: str) -> bool:
        """Return whether a link at a path would lead to other files than those that are led to."""
        return path in self._above or self.modules.hold_link(path)

    def is_above(self, path: str) -> bool:
        """Return whether settings lead to something that is there below a path."""
        below = f"{path}/"
        return path in self._above and any(
            one.startswith(below) and os.path.lexists(one) for one in self._paths
        )

    @property
    def in_each(self) -> tuple[str, ...]:
        """Where the user's own settings say that every repository has its hooks."""
        return tuple(sorted(self._in_each))

    def of_user(self) -> None:
        """Add what the user's own settings of git, shells, and links to settings lead to."""
        home = os.path.expanduser("~")  # noqa: PTH111  text
        beside = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        files = (f"{home}/.gitconfig", f"{beside}/git/config", "/etc/gitconfig")
        for file in (*files, os.environ.get("GIT_CONFIG_GLOBAL") or files[0]):
            self._follow(file, top=None)
        for file in read_names().commands["files_of_shells"]:
            text = _text(f"{home}/{file}")
            self._of_shell(home, loaded_by_shell(text), read_commands("", text).named)
        self._of_shell(home, [f"{one}/" for one in os.environ.get("PATH", "").split(":")])
        for directory in filter(None, os.environ.get("PYTHONPATH", "").split(":")):
            self.modules.import_from(directory)
        for place in read_names().commands["places_of_links"]:
            with suppress(OSError), os.scandir(f"{home}/{place}") as found:
                for one in found:
                    if one.is_symlink() and (place or one.name.startswith(".")):
                        target = os.path.join(home, place, os.readlink(one))  # noqa: PTH115, PTH118  text
                        self._run(target, None, set())

    def _of_shell(self, home: str, words: Iterable[str], started: Collection[str] = ()) -> None:
        """Add what the user's shell loads, and the programs of a directory of its `PATH`.

        `started`: what it may start by name.
        """
        programs = {*read_names().acted_on.programs, *[one for one in started if "/" not in one]}
        for word in words:
            path = _HOME.sub(f"{home}/", word)
            real = os.path.realpath(path) if path.startswith("/") else "/"
            for program in programs if path.endswith("/") else ():
                self._add(f"{real}/{program}")
            if path.startswith("/") and not path.endswith("/"):
                self._run(path, None, set())

    def of_link(self, path: str, target: str, top: str, *, is_hook: bool = False) -> None:
        """Add where a link of a control place leads to, and what a hook there starts."""
        self._follow(os.path.join(_holder(path), target), top=top)  # noqa: PTH118  text
        if is_hook:
            self.of_commands(path, _text(path), is_hook=True)

    def of_git(self, path: str, top: str) -> None:
        """Add the paths that a directory of git, and the settings in it, lead to."""
        if os.path.islink(f"{path}/hooks"):  # noqa: PTH114  text
            self._follow(f"{path}/hooks", top=top)
        for name in CONFIGURATIONS:
            self.of_configuration(_text(f"{path}/{name}"), path, top)
        self._of_hooks(f"{path}/hooks", top)
        self.of_repository(top, is_pointer=False)

    def of_pointer(self, pointer: str, top: str) -> None:
        """Add what holds in a worktree: the hooks of its repository, which may lie outside."""
        git = directory_of_git(pointer)
        if self._is_ours(git):
            self.of_repository(top, is_pointer=True)
        else:
            self.of_git(git, top)

    def of_outside(self) -> None:
        """Add what the user's own settings name, wherever they lie outside of the roots."""
        self.of_user()
        for root in self._roots:
            for directory in (root, *above(root)):
                git = directory_of_git(f"{directory}/.git")
                if not self._is_ours(git):
                    self.of_git(git, directory)
        for path, text in _settings_outside(self._roots):
            self.of_commands(path, text, self._roots if path.endswith(_OF_PROJECTS) else ())

    def _of_hooks(self, directory: str, top: str | None) -> None:
        """Add what hooks that lie outside start. `top` is `None` if they hold in each repository.

        Those inside are looked at as other control places are.
        """
        if self._is_ours(directory):
            return
        with suppress(OSError), os.scandir(directory) as found:
            for one in found:
                text = "" if is_inert_hook(one.name) else _text(one.path)
                if top is not None:
                    self.of_commands(one.path, text, [top], is_hook=True)
                elif text:
                    self._in_each.update(read_commands("", text).coming)

    def of_configuration(self, text: str, holder: str, top: str) -> None:
        """Add the paths that a configuration of git names.

        Args:
            text: what it holds.
            holder: the directory of git that it lies in.
            top: the directory of the repository.
        """
        for is_hooks, named in named_files(text):
            if is_hooks and not named.startswith(("/", "~")):
                self._in_linked.add(named)
            path = os.path.expanduser(named)  # noqa: PTH111  text
            self._follow(os.path.join(top if is_hooks else holder, path), top=top)  # noqa: PTH118  text
        for named in named_programs(text):
            self._run(named, top, self._in_linked)

    def of_commands(
        self, path: str, text: str, beside: Sequence[str] = (), *, is_hook: bool = False
    ) -> None:
        """Add the files that the commands of settings, or a hook, name.

        Args:
            path: the file's, absolute.
            text: what it holds.
            beside: directories in which the commands start, besides those that hold the file.
            is_hook: whether git starts it, also in the worktrees of its repository.
        """
        name = path.rpartition("/")[2]
        is_prose = name.rpartition(".")[2] in read_names().commands["prose"]
        if is_prose or name == _STARTED_BY_HAND or "\0" in text:
            return
        said = read_commands(name, text[:LONGEST])
        if is_hook and said not in self._hooks:
            self._hooks.append(said)
        # A hook runs at the top of its worktree, settings beside them or at the top of the project.
        is_outside = not self._is_ours(path)
        around = [one for one in above(path) if is_outside or self._is_ours(one)]
        # What is written from the root of the system is read without its first slash.
        tops = [*beside, *around, os.path.expanduser("~"), ""]  # noqa: PTH111  text
        self._start(said, tops, () if is_hook else beside)

    def _start(self, said: Commands, tops: Sequence[str], many: Sequence[str] = ()) -> None:
        """Add what commands name that start in some directories.

        Args:
            said: the commands.
            tops: the directories.
            many: those of them that are one of many: not each word is the name of a file there.
        """
        follows = _OF_SERVERS not in said.name
        places = [*tops, *self._gone_to(tops, said.named)]
        for place in places:
            for one in self._of_ours(place, said.named):
                is_name = place not in many or "/" in one or "." in one
                if is_name and os.path.isfile(f"{place}/{one}"):  # noqa: PTH113  text
                    self._run(f"{place}/{one}", place, set(), follows=follows)
        # Direnv goes to where its file lies.
        at = {tops[0], *tops[-2:]} if said.name.startswith(".envrc") else places
        beside = [one for one in said.coming if "/" not in one.removeprefix("./")]
        for place in at:
            # Of a directory to which commands may go, no further directories are meant.
            is_top = place in tops or place in self._roots
            for one in self._of_ours(place, said.coming if is_top else beside):
                if one.endswith("/"):
                    self._follow(f"{place}/{one}", top=place)
                elif not os.path.isdir(f"{place}/{one}"):  # noqa: PTH112  text
                    self._run(f"{place}/{one}", place, set(), follows=follows)
            self._start_python(said, place)

    def _start_python(self, said: Commands, place: str) -> None:
        for directory in self._of_ours(place, said.places):
            self.modules.import_from(f"{place}/{directory}")
        if (said.starts_python or said.modules) and self._is_ours(place):
            if said.starts_python:
                self.modules.import_from(place)
            for program in self.modules.start(place, said.modules):
                self._add_linked(program)

    def _gone_to(self, tops: Iterable[str], named: Collection[str]) -> Sequence[str]:
        """Return the directories to which commands may go: `cd tools && ./x`, `"cwd": "tools"`."""
        found = dict.fromkeys(
            os.path.normpath(f"{top}/{one}")
            for top in tops
            for one in self._of_ours(top, named)
            if os.path.isdir(f"{top}/{one}")  # noqa: PTH112  text
        )
        return [one for one in found if one not in tops][:_MOST_PLACES]

    def _of_ours(self, top: str, words: Collection[str]) -> Collection[str]:
        """Return the words that may be paths below the roots, from a directory."""
        inner = self._inner.get(top)
        if inner is None:
            below = [one[len(top) + 1 :] for one in self._roots if one.startswith(f"{top}/")]
            inner = self._inner[top] = ("",) if self._is_ours(top) else tuple(below)
        return [
            one
            for one in words
            if one.startswith(inner)
            or (".." in one and self._is_ours(os.path.normpath(f"{top}/{one}")))
        ]

    def of_repository(self, top: str, *, is_pointer: bool) -> None:
        """Add the hooks that hold in a repository by the settings of the user, or of its owner."""
        for path in sorted(self._in_each | self._in_linked if is_pointer else self._in_each):
            self._follow(f"{top}/{path}", top=top)
        for said in self._hooks if is_pointer else ():
            self._start(said, [top])

    def _follow(self, path: str, *, top: str | None) -> None:
        """Add a path, what lies on the way to it, and where the configuration at it leads to."""
        waiting, seen = [path], set[str]()
        while waiting and len(seen) < _MOST_FOLLOWED:
            one = os.path.normpath(waiting.pop())
            # No file has a name with NUL.
            if one in seen or "\0" in one:
                continue
            seen.add(one)
            target = os.path.realpath(one)
            for each in (*self._links(one), target):
                self._add(each)
            self._of_hooks(target, top)
            waiting += self._named(one, target, top)

    def _add(self, path: str) -> None:
        if self._is_ours(path) and path not in self._roots and path not in self._paths:
            self._paths.add(path)
            self._above.update(above(path))

    def _add_linked(self, path: str) -> None:
        """Add a path, and each link on the way to it: it could be exchanged."""
        for each in (*self._links(os.path.normpath(path)), os.path.realpath(path)):
            self._add(each)

    def _named(self, path: str, target: str, top: str | None) -> Iterator[str]:
        """Yield the paths that the file or directory at a path leads to in turn."""
        if target.endswith(f"/{_HUSKY}"):
            yield target.rpartition("/")[0]
        text = _text(target)
        for program in named_programs(text):
            self._run(program, top, self._in_each if top is None else set())
        for is_hooks, written in named_files(text):
            named = os.path.expanduser(written)  # noqa: PTH111  text
            if not is_hooks:
                yield os.path.join(path.rpartition("/")[0], named)  # noqa: PTH118  text
            elif top is None and not named.startswith("/"):
                self._in_each.add(named)
            else:
                yield os.path.join(top or "/", named)  # noqa: PTH118  text

    def _run(
        self, program: str, top: str | None, relative: set[str], *, follows: bool = True
    ) -> None:
        """Add a program that git runs in a worktree: what it reads in turn is not followed.

        But for the modules beside it that one of Python imports, if `follows`.
        """
        if "\0" in program:
            return
        if not program.startswith(("/", "~")):
            relative.add(program)
        if top is not None or program.startswith(("/", "~")):
            path = os.path.join(top or "/", os.path.expanduser(program))  # noqa: PTH111, PTH118  text
            self._add_linked(path)
            if path.endswith(".py"):
                real = os.path.realpath(path)
                self.modules.import_from(_holder(real), real, follows=follows)

    def _is_ours(self, path: str) -> bool:
        return is_below(path, self._roots)

    def _links(self, path: str) -> list[str]:
        return [one for one in (path, *above(path)) if os.path.islink(one)]  # noqa: PTH114  text


def _holder(path: str) -> str:
    return path.rpartition("/")[0]


def _text(path: str) -> str:
    with suppress(OSError, ValueError):
        if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  text
            with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  text
                text = file.read(_LARGEST)
                # A hook may be a link to a program.
                return "" if "\0" in text else text
    return ""


def directory_of_git(path: str) -> str:
    """Return the directory that holds the settings of a repository, from the path of its `.git`."""
    for name in ("", "/commondir"):
        with suppress(OSError, ValueError):
            with open(path + name, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  text
                named = file.read(LONGEST).removeprefix("gitdir: ").rstrip("\n")
            beside = path if name else _holder(path)
            path = os.path.normpath(os.path.join(beside, named))  # noqa: PTH118  text
    return path


# --- outside


def _settings_outside(roots: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of settings outside, and what they hold."""
    home = os.path.expanduser("~")  # noqa: PTH111  text
    yield f"{home}/{_STATE}", _servers_of(f"{home}/{_STATE}", roots)
    # Of a home that lies in a root every file is read.
    tops = frozenset(
        [one.rpartition("/")[2] for one in roots] if not is_below(home, roots) else [""]
    )
    entries = frozenset([one.lstrip(".") for root in roots for one in entries_of(root)]) | tops
    for directory in sorted({home, *[one for root in roots for one in above(root)]} - {*roots}):
        for path in (*_below(directory, roots, 0), f"{directory}/.ssh/config"):
            with suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= _LARGEST_OUTSIDE:
                    version = (status.st_mtime_ns, status.st_size)
                    yield path, _leading_text(path, version, tops, entries)


def _below(directory: str, roots: Sequence[str], depth: int) -> Iterator[str]:
    """Yield the files of a directory that programs act on."""
    skipped = read_names().commands["not_settings"]
    with suppress(OSError), os.scandir(directory) as found:
        entries = [*found] if depth == 0 else [*islice(found, _MOST_ENTRIES)]
        for one in entries:
            is_settings = depth > 0 or is_acted_on(one.name)
            if not is_settings or one.path in roots or one.name in skipped:
                continue
            if not one.is_dir(follow_symlinks=False):
                yield one.path
            elif depth < _DEEPEST:
                yield from _below(one.path, roots, depth + 1)


@lru_cache(maxsize=4096)
def _leading_text(
    path: str, _version: tuple[int, int], tops: frozenset[str], entries: frozenset[str]
) -> str:
    """Return what settings outside hold, or an empty text if they cannot name what lies in a root.

    Each version is read once: each server's sandbox has a look of its own. What programs keep
    beside settings is much, and to read all of it as commands would take seconds.

    Args:
        path: the file's.
        tops: the names of the roots, of which a path from elsewhere says one.
        entries: what lies in the roots, where some settings start commands.
    """
    text = _text(path)
    is_led = any(one in text for one in tops)
    is_led = is_led or (path.endswith(_OF_PROJECTS) and may_lead(text, entries))
    return text if is_led else ""


def _servers_of(state: str, roots: Sequence[str]) -> str:
    """Return the servers that an agent's memory names for everywhere, and for some projects."""
    with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):
        if os.stat(state).st_size <= _LARGEST_STATE:  # noqa: PTH116  text
            with open(state, "rb") as file:  # noqa: PTH123  text
                said = orjson.loads(file.read())
            projects = [said.get("projects", {}).get(root, {}) for root in roots]
            return orjson.dumps([one.get("mcpServers", {}) for one in (said, *projects)]).decode()
    return ""
