"""Where control places lead: by the settings of git, by commands, and by links.

A file at a path that a control place leads to acts like one, even if it does not exist yet. So do
files that the user's own settings and hooks name: `"command": "./tools/lint.sh"` in the settings of
an agent makes the agent run that file by itself.

Some links of a workspace lead to where servers may write and nobody looks. A server has directories
of its own in the proxy's, such as its `/tmp`, which are not looked after as the workspace is.
Through a link a repository there would be one of the workspace. So would the settings of an editor
in `node_modules`, where names are not judged. This module reads links and changes nothing.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

import orjson

from ironcurtain_proxy.control_places.git_files import other_settings
from ironcurtain_proxy.control_places.python_modules import (
    LedModules,
    above,
    is_below,
    modules_of,
)
from ironcurtain_proxy.control_places.rules import (
    is_in_cache,
    looks_activated,
    read_names,
)
from ironcurtain_proxy.lazy_pattern import lazy

_KERNELS: Final = "/proc"
"""Its links lead each process to another file, also into the mounts of a sandbox."""
_MOST: Final = 100
"""Links that are followed, more than the kernel does."""


_NAMED: Final = lazy(
    r"^(?:\[[^\]\n]*\])?[ \t]*(hookspath|path)[ \t]*=[ \t]*\"?([^\"\n;#]+)",
    re.ASCII | re.IGNORECASE | re.MULTILINE,
)

_WORDS: Final = lazy(r"[^\s\"'\\`=;|&()<>!,:\[\]]+")
"""The words of commands, which may be paths."""
_SCRIPTS: Final = lazy(r"\.(?:[bz]?a?sh|py|pl|rb|[cm]?[jt]s|lua|php|R|exe)\Z")
_ENDING: Final = lazy(r"[^.%]\.[A-Za-z]\w*\Z", re.ASCII)
"""Of a file: `sed -f strip.sed` runs what stands there, as `awk -f` does."""
_FROM_FILE: Final = frozenset({"-f", "-F", "--file"})
_OPTION: Final = lazy(r"\A-\w")

_COMMANDS: Final = lazy(
    r"(?:command|args|cmd|run|entry|enter|exec|runner|linker|wrapper|plugin|preload)s?[\"']?\s*[:=]\s*"
    r"(\[[^\]]{0,4096}|\"(?:[^\"\\]|\\.){0,4096}|'[^']{0,4096}|[^\n]{0,4096})",
    re.IGNORECASE,
)
"""In JSON, YAML and TOML alike. What is longer is cut, so that the time stays in proportion."""
_NAMES_OPENED_FILES: Final = "xml"
_VALUES: Final = lazy(
    r"\"((?:[^\"\\\n]|\\.){0,256})\"(?:\s*:)?|'([^'\n]*)'"
    r"|^[ \t]*(?:- +)*(?:[\w.-]+: +)?([\w./$][^\"'\n]*)$",
    re.MULTILINE,
)
"""Strings of JSON and TOML, keys with their colon, and values of lines of YAML."""
_SPOKEN_OF: Final = lazy(
    r"(?:exclude|ignore|associations|globs?|patterns?|files|match|url|schemas?)[\"']?\s*[:=]\s*"
    r"(?:\[[^\]]{0,4096}|\{[^}]{0,4096}|[^\n]{0,4096})",
    re.IGNORECASE,
)
_ASSIGNED: Final = lazy(
    r"(?:#.*|(?:export )?(\w+=)(?:[^\s$`;&|()<>\\\"']*|\"[^$`\\\"]*\"|'[^']*'))?[ \t]*", re.ASCII
)
_HOME: Final = lazy(r"\A(?:~|\$HOME|\$\{HOME\})/")
_PROMPTS: Final = (".md", ".mdc", ".txt")
_DIRECTORIES: Final = lazy(
    r"(?:source_dir(?:_local)?|tsdk|nodepath)[\"']?\s*[:=]\s*[\"']?([^\s\"',]+)", re.IGNORECASE
)
"""Where settings say that programs, or a library that is loaded, lie."""
_LOADED: Final = lazy(
    r"(?:^|[;&|]|\bthen\b)[ \t]*"
    r"((?:source_env|dotenv)(?:_if_exists)?|source|\.|PATH_add|path_add[ \t]+PATH)"
    r"(?:[ \t]+[\"']?([^\s\"';&|)]+))?",
    re.MULTILINE,
)
"""What an allowed `.envrc` loads, or puts where programs are looked for."""
_PATH_OF_ENVRC: Final = lazy(r"(?:\bPATH=|\bload_prefix\b)([^\n;]{0,4096})")
_PATH_OF_MISE: Final = lazy(r"_\.path\s*=\s*(\[[^\]]{0,4096}|[^\n]{0,4096})")
_REQUIRED: Final = lazy(r"\brequire\b[\s(]*[\"']([\w.]+)[\"']")
_OF_VARIABLE: Final = lazy(r"\$(?:\w+|\{[\w.-]+\})/|/+")
_LONGEST: Final = 1 << 16
"""The characters of a script that are read."""
_OF_SERVERS: Final = "mcp"
"""In the name of settings that start servers alone."""
_STARTED_BY_HAND: Final = "launch.json"
_VERSIONS: Final = lazy(r"(?:\s|[\w.+*~^<>=|@#-]|(?<=\blts)/|(?<=\d)/envs/)*", re.ASCII)


def named_files(text: str) -> Iterator[tuple[bool, str]]:
    """Yield directories of hooks (True) and configurations (False) that one names."""
    for found in _NAMED.finditer(text):
        yield found[1].lower() == "hookspath", found[2].strip()


def named_programs(text: str) -> Iterator[str]:
    """Yield what may be programs that a configuration names, relative to the worktree.

    Git runs filters, drivers, editors and the like there: `clean = python3 tools/strip.py %f`.
    """
    for section, value in other_settings(text):
        # What the user types speaks of many files.
        ending, before = _SCRIPTS if section.startswith("alias") else _ENDING, ""
        for word in _WORDS.findall(value):
            # A program without a slash does not lie there, but what follows it may.
            if "/" in word or (before and (ending.search(word) or before in _FROM_FILE)):
                # What stands behind `$(git rev-parse --show-toplevel)` begins with a slash.
                yield from {word, word.lstrip("/"), _OPTION.sub("", word)}
            before = word


def words_of_commands(name: str, text: str) -> Iterator[str]:
    """Yield the words of the commands in a control file, which may be relative paths.

    Args:
        name: the file's. What has an ending is settings, and all else a script of a shell.
        text: what it holds.
    """
    stem, _, ending = name.rpartition(".")
    table = read_names().commands
    if not stem or ending in table["shells"] or name.startswith(".envrc"):
        yield from map(_relative, _WORDS.findall(text[:_LONGEST]))
        return
    words = [one for part in _COMMANDS.finditer(text) for one in _WORDS.findall(part[1])]
    endings = table["endings"]
    if ending in table["code"]:
        words += [one for one in _WORDS.findall(text[:_LONGEST]) if "/" in one]
        endings += table["indexes"]
    elif ending != _NAMES_OPENED_FILES:
        values = map(_relative, _words_of_values(text))
        # What packages bring counts as data there: `.venv/bin/python`.
        yield from [one for one in values if not is_in_cache(one.split("/"))]
    for word in map(_relative, words):
        yield word
        if "/" in word and not _SCRIPTS.search(word):
            yield from [word + one for one in endings]


def _words_of_values(text: str) -> Iterator[str]:
    """Yield what may be programs in settings, whatever the names of their keys.

    Of one that begins with an interpreter every word; of others the first, if it is a path or all
    that there is: `"apiKeyHelper": "tools/key.sh --short"`, `_.file = "local.env"`.
    """
    for one in _VALUES.finditer(_SPOKEN_OF.sub("", text[:_LONGEST])):
        if one[0].endswith(":"):
            continue
        words = _WORDS.findall(next(filter(None, one.groups()), ""))
        if words and words[0].rpartition("/")[2] not in read_names().commands["interpreters"]:
            is_path = "/" in words[0] or len(words) == 1
            words = words[:1] if is_path and not words[0].endswith(_PROMPTS) else []
        yield from words


def _relative(word: str) -> str:
    return _OF_VARIABLE.sub("", word, count=1) if word[0] in "$/" else word


def files_to_come(name: str, text: str) -> Iterator[str]:
    """Yield the relative paths that a control file loads as soon as something is there.

    Args:
        name: the file's.
        text: what it holds.
    """
    directories = [one[1] for one in _PATH_OF_MISE.finditer(text)]
    if name.endswith(".lua"):
        for module in map(_relative, _REQUIRED.findall(text[:_LONGEST])):
            forms = read_names().commands["lua_modules"]
            yield from [form.format(module.strip(".").replace(".", "/")) for form in forms]
    if name.startswith(".envrc"):
        for path in _of_envrc(text[:_LONGEST]):
            if path.endswith("/"):
                directories.append(path)
            else:
                yield path
    else:
        named = words_of_commands(name, text)
        yield from [one for one in named if "/" in one and _SCRIPTS.search(one) and "*" not in one]
        yield from map(_relative, _DIRECTORIES.findall(text))
    for word in map(_relative, _WORDS.findall(" ".join(directories))):
        yield from [f"{word}/{program}" for program in read_names().acted_on.programs]


def _of_envrc(text: str) -> Iterator[str]:
    """Yield what an `.envrc` loads, and with a slash at the end where it finds programs."""
    for verb, word in _LOADED.findall(text):
        if verb.lower().startswith("path"):
            yield f"{word}/"
        elif word or verb.startswith("dotenv"):
            yield word or ".env"
    for part in _PATH_OF_ENVRC.findall(text):
        for word in _WORDS.findall(part):
            yield from (f"{word}/", f"{word}/bin/")
    table = read_names().of_envrc
    for word in {*_WORDS.findall(text)} & table.keys():
        yield from table[word]


def is_plain(name: str, content: bytes | None, before: bytes | None) -> bool:
    """Return whether a file such as `.python-version` names versions, and no path to a program.

    Some managers take `path:…`, and look for `../x` beside the versions that they have. `.env` is
    plain if it sets no variable newly that may steer a program, and runs nothing as a script:
    agents, Bun's programs and hooks of a shell load it by themselves.
    """
    text = (b":" if content is None else content).decode("utf-8", "replace")
    known = (before or b"").decode("utf-8", "replace").splitlines()
    if not name.lower().startswith(".env"):
        return _VERSIONS.fullmatch(text) is not None and ".." not in text
    lines = [one for one in text.splitlines() if one not in known or not _ASSIGNED.fullmatch(one)]
    # A line that does more than set a variable could set any.
    new = [f"^{one[1]}" if one else "^path=" for one in map(_ASSIGNED.fullmatch, lines)]
    return not any(map("".join(new).lower().__contains__, read_names().commands["variables"]))


def changes_looks_alone(before: bytes | None, now: bytes) -> bool:
    """Return whether settings of an editor differ in how it looks, and what it shows, alone.

    Args:
        before: the earlier content, or None if there was no file.
        now: the present content.
    """
    try:
        was, new = [orjson.loads(one) for one in (before or b"{}", now)]
    except orjson.JSONDecodeError:
        return False
    return isinstance(was, dict) and isinstance(new, dict) and _are_looks(was, new)


def _are_looks(was: Mapping[str, object], new: Mapping[str, object]) -> bool:
    for key in was.keys() | new.keys():
        old, value = was.get(key), new.get(key)
        if old == value and (key in was) == (key in new):
            continue
        if key.startswith("["):
            # Of one language.
            old, value = old or {}, value or {}
            if not isinstance(old, dict) or not isinstance(value, dict):
                return False
            if not _are_looks(old, value):
                return False
        elif not any(fnmatchcase(key, one) for one in read_names().acted_on.looks):
            return False
    return True


def leads_into_cache(root: str, parts: Sequence[str], target: str) -> bool:
    """Return whether a link shows a cache of a tree, where names are not judged, as something else.

    Or something else as a directory of programs, such as `.venv/bin`.

    Args:
        root: the top of the tree, absolute and real.
        parts: the path of the link below it.
        target: what the link says.
    """
    is_activated = looks_activated(parts)
    if is_in_cache(parts) and not is_activated:
        return False
    path = os.path.join(root, *parts[:-1], target)  # noqa: PTH118  text
    try:
        ends = (os.path.normpath(path), os.path.realpath(path))
    except OSError:
        return True  # a link of the kernel's that nobody may read
    below = [one.removeprefix(f"{root}/") for one in ends if one.startswith(f"{root}/")]
    return any(is_in_cache(one.split("/")) != is_activated for one in below)


def leads_into(link: str, target: str, places: Collection[str]) -> bool:
    """Return whether a link leads into one of some directories, now or once they hold more.

    Args:
        link: its path, absolute and with no link above it. It need not be there yet.
        target: what it says.
        places: absolute and real.
    """
    here, waiting, left = link.rpartition("/")[0], _parts(target), _MOST
    while waiting:
        here, more = _step(here, waiting.pop())
        left -= bool(more)
        if not left or here == _KERNELS or here in places:
            return True
        waiting += more
    return False


def _parts(path: str) -> list[str]:
    """Return the steps of a path, the last one first; `/` is the step to the root."""
    parts = [one for one in path.split("/")[::-1] if one not in {"", "."}]
    return [*parts, "/"] if path.startswith("/") else parts


def _step(here: str, part: str) -> tuple[str, list[str]]:
    """Return where a step leads, and the steps that come first where it is a link."""
    match part:
        case "/":
            return "", []
        case "..":
            return here.rpartition("/")[0], []
        case _:
            one = f"{here}/{part}"
            try:
                return here, _parts(os.readlink(one))  # noqa: PTH115  text
            except OSError:
                return one, []


# --- leads


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
        self.modules = LedModules(roots, modules)
        self._in_each = {*in_each}
        """Relative paths of hooks that the user's own settings name for every repository."""
        self._in_linked: set[str] = set()
        """Relative paths of hooks in a repository's settings, which hold in its worktrees, too."""
        for path in known:
            self._add(path)

    def __len__(self) -> int:
        return len(self._paths) + len(self.modules)

    @property
    def paths(self) -> frozenset[str]:
        """The paths that settings lead to, absolute."""
        return frozenset(self._paths)

    def is_path(self, path: str) -> bool:
        """Return whether settings lead to a path itself."""
        return path in self._paths or self.modules.hold(path)

    def holds(self, path: str) -> bool:
        """Return whether settings lead to a path, or to a directory that holds it."""
        return self.is_path(path) or any(one in self._paths for one in above(path))

    def is_on_the_way(self, path: str) -> bool:
        """Return whether a link at a path would lead to other files than those that are led to."""
        return path in self._above or self.modules.hold_link(path)

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
            self._of_shell(home, _of_envrc(_text(f"{home}/{file}")))
        self._of_shell(home, [f"{one}/" for one in os.environ.get("PATH", "").split(":")])
        for directory in os.environ.get("PYTHONPATH", "").split(":"):
            self.modules.import_from(directory)
        for place in read_names().commands["places_of_links"]:
            with suppress(OSError), os.scandir(f"{home}/{place}") as found:
                for one in found:
                    if one.is_symlink() and (place or one.name.startswith(".")):
                        target = os.path.join(home, place, os.readlink(one))  # noqa: PTH115, PTH118  text
                        self._run(target, None, set())

    def _of_shell(self, home: str, words: Iterable[str]) -> None:
        """Add what the user's shell loads, and the programs of a directory of its `PATH`."""
        for word in words:
            path = _HOME.sub(f"{home}/", word)
            real = os.path.realpath(path) if path.startswith("/") else "/"
            for program in read_names().acted_on.programs if path.endswith("/") else ():
                self._add(f"{real}/{program}")
            if path.startswith("/") and not path.endswith("/"):
                self._run(path, None, set())

    def of_link(self, path: str, target: str, top: str) -> None:
        """Add where a link of a control place leads to."""
        self._follow(os.path.join(_holder(path), target), top=top)  # noqa: PTH118  text

    def of_git(self, path: str, top: str) -> None:
        """Add the paths that a directory of git, and the settings in it, lead to."""
        if os.path.islink(f"{path}/hooks"):  # noqa: PTH114  text
            self._follow(f"{path}/hooks", top=top)
        for name in CONFIGURATIONS:
            self.of_configuration(_text(f"{path}/{name}"), path, top)
        self.of_repository(top, is_pointer=False)

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

    def of_commands(self, path: str, text: str) -> None:
        """Add the files that the commands of settings, or a hook, name."""
        name = path.rpartition("/")[2]
        is_prose = name.rpartition(".")[2] in read_names().commands["prose"]
        if is_prose or name == _STARTED_BY_HAND or "\0" in text:
            return
        # A hook runs at the top of its worktree, settings beside them or at the top of the project.
        tops = [one for one in above(path) if self._is_ours(one)]
        named = {*words_of_commands(name, text)}
        for top in tops:
            self._run_all([one for one in named if os.path.isfile(f"{top}/{one}")], top, name)  # noqa: PTH113  text
        modules, coming = modules_of(name, text[:_LONGEST]), {*files_to_come(name, text)}
        # Direnv goes to where its file lies.
        for top in tops[:1] if name.startswith(".envrc") else tops:
            self._run_all(coming, top, name)
            for program in self.modules.start(top, modules):
                self._add_linked(program)

    def _run_all(self, programs: Iterable[str], top: str, name: str) -> None:
        for one in programs:
            # A server is what many a project makes.
            self._run(one, top, set(), follows=_OF_SERVERS not in name)

    def of_repository(self, top: str, *, is_pointer: bool) -> None:
        """Add the hooks that hold in a repository by the settings of the user, or of its owner."""
        for path in sorted(self._in_each | self._in_linked if is_pointer else self._in_each):
            self._follow(f"{top}/{path}", top=top)

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
