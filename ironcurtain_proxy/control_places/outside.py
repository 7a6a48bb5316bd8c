"""The user's settings that lie outside of the workspace, and start what lies in it.

    ~/.claude/settings.json, ~/.codex/config.toml, ~/.claude.json     agents
    ~/.config/*/*, ~/.config/systemd/user/*.service, ~/.vimrc         what starts by itself
    ../.envrc, ../.vscode/tasks.json, ../../.mcp.json                 above the workspace
    /etc/cron.d/*, /etc/systemd/system/*, /var/spool/cron/crontabs    the system, where it is read

A directory of settings is read whole, a few levels deep; further below, in other hidden
directories, and for large files, what a name or the text itself says is read alone.
"""

import os
import stat
import subprocess
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import glob
from itertools import islice
from typing import Final

import orjson

from ironcurtain_proxy.control_places.commands import COMMANDS, INTERPRETED
from ironcurtain_proxy.control_places.python_modules import (
    LARGEST,
    above,
    entries_of,
    is_below,
    modules_of,
    text_of,
)
from ironcurtain_proxy.control_places.rules import is_acted_on, read_names
from ironcurtain_proxy.control_places.words import SCRIPTS, WORDS, is_shells, relative, unescaped
from ironcurtain_proxy.model.values import lazy

_LARGE: Final = 1 << 16
"""The bytes beyond which settings are mostly a program's memory: they must name the workspace."""
_LARGEST_STATE: Final = 16 << 20
_STATE: Final = ".claude.json"
"""Claude Code's memory, in which it keeps the servers of each project."""
_MOST_ENTRIES: Final = 1000
"""The most entries of one directory. In a larger one a program keeps what it makes."""
_MOST_DIRECTORIES: Final = 4000
_WHOLE: Final = 3
"""The levels of a directory of settings of which every file is read."""
_DEEPEST: Final = 8
_OF_OTHERS: Final = 2
"""The levels of a hidden directory that nobody knows, of which some names are read."""
_SHORT: Final = 2
_LISTS_CRONTAB: Final = "/usr/bin/crontab"
_PTH: Final = ".local/lib/python3*/site-packages/*.pth"
_CRONTABS: Final = ("/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/cron/tabs")
_PATIENCE: Final = 5
"""Seconds for what prints the user's crontab."""
_ELSEWHERE: Final = lazy(
    r"\b(?:\w{0,99}CONFIG\w{0,99}|ZDOTDIR|CODEX_HOME|GEMINI_CLI_HOME)=[\"']?([^\s\"':;]+)"
)
"""Variables that name a directory of settings."""
OF_PROJECTS: Final = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""Settings that hold where an agent, or an editor, is started."""
_OF_HOME: Final = lazy(
    r"(?:(?<![\w~/.])~|%h|\$(?:HOME\b|\{(?:env:)?HOME\}|env\.HOME\b|USER_HOME\$))(?=/)"
)
"""How settings say the home directory: what stands behind it lies nowhere else."""
_SET_HERE: Final = lazy(r"\b(?!PATH=)([A-Za-z]\w*)=[\"']?(/[^\s\"';&|)$:]*)")
_VARIABLE: Final = lazy(r"\$(?:\{(\w+)\}|(\w+))")
"""`A=/x`, and then `$A/y`."""
_LOADS_HERE: Final = lazy(r"(?:\bsource|(?<!\S)\.)[ \t]+[\"']?[\w.]")
"""What a shell loads of the directory in which it is."""
_OBJECT: Final = lazy(r"\{\s*\"")
_HOME: Final = lazy(r"\A\$(?:HOME|\{HOME\})(?=/)")


def settings_outside(roots: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of settings outside, links to settings, and what they hold.

    Args:
        roots: the directories that servers may write in, absolute and real.
        names: the paths by which the user knows them.
    """
    home = os.path.expanduser("~")  # noqa: PTH111  text
    yield f"{home}/{_STATE}", _servers_of(f"{home}/{_STATE}", roots)
    entries = frozenset([one.lstrip(".") for root in roots for one in entries_of(root)])
    around = {"", home, *above(home)}
    with suppress(OSError):
        changed = [os.stat(one).st_mtime_ns for one in _CRONTABS if os.path.isdir(one)]  # noqa: PTH112, PTH116  text
        yield f"{home}/crontab", _spelled_out(_crontab(tuple(changed)), home)
    for path, says_enough in _paths(home, roots):
        text = ""
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116  text
            is_read = stat.S_ISREG(status.st_mode) and 0 < status.st_size <= _LARGEST_STATE
            # Of what is larger, settings alone.
            if is_read and (status.st_size <= LARGEST or path.endswith(OF_PROJECTS)):
                version = (status.st_mtime_ns, status.st_size)
                is_known = says_enough and status.st_size <= _LARGE
                tops = around.union(above(path))
                inner = [(one, top) for one in names for top in tops if is_below(one, [top])]
                said = tuple(sorted(f"{one[len(top) + 1 :]}/".lstrip("./") for one, top in inner))
                text = _leading_text(path, version, said, entries if is_known else None)
        yield path, text


@lru_cache(maxsize=4)
def _crontab(_changed_ns: tuple[int, ...]) -> str:
    """Return the user's crontab. Only this program reads it, and it is asked once a version."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603  a program of the system
            [_LISTS_CRONTAB, "-l"],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            encoding="utf-8",
            errors="surrogateescape",
        ).stdout
    return ""


def _paths(home: str, roots: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield files and links, and whether each is settings by where it lies."""
    table, tops = read_names().commands, [one for root in roots for one in above(root)]
    for directory in sorted({home, *tops} - {*roots}):
        yield from _beside(directory, roots, is_home=directory == home)
        for place in table["also_settings"]:
            yield from _below(f"{directory}/{place}", roots, _WHOLE, _DEEPEST)
        for place in table["places_of_links"]:
            # Programs that the user installed are no settings: they count if they name a root.
            yield from [(one, False) for one, _ in _below(f"{directory}/{place}", roots, 0, 1)]
    shells = [text_of(f"{home}/{one}") for one in table["files_of_shells"]]
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    for said in _ELSEWHERE.findall("\n".join([*shells, *variables])):
        place = os.path.expanduser(_HOME.sub("~", said))  # noqa: PTH111  text
        if place.startswith(f"{home}/") and not is_below(place, roots):
            yield from _below(os.path.normpath(place), roots, _WHOLE, _DEEPEST)
    yield from [(one, False) for one in glob(f"{home}/{_PTH}")]  # noqa: PTH207  text
    for place in table["of_system"]:
        yield from [(path, False) for path, _ in _below(place, roots, _WHOLE, _WHOLE)]


def _beside(directory: str, roots: Sequence[str], *, is_home: bool) -> Iterator[tuple[str, bool]]:
    """Yield what programs act on of a directory, and in a home what else is hidden."""
    table = read_names()
    with suppress(OSError), os.scandir(directory) as found:
        for one in found:
            is_hidden = is_home and one.name.startswith(".")
            if one.name in table.commands["not_settings"] or one.path in roots:
                continue
            if is_acted_on(one.name):
                yield from _below(one.path, roots, _WHOLE, _DEEPEST)
            elif is_hidden and one.is_dir() and one.name not in table.harmless.caches:
                yield from _below(one.path, roots, 0, _OF_OTHERS)
            elif is_hidden and not _is_one_of(one.name, "memories"):
                yield one.path, False


def _is_one_of(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, one) for one in read_names().commands[patterns])


def _below(top: str, roots: Sequence[str], whole: int, most: int) -> Iterator[tuple[str, bool]]:
    """Yield the files at and below a path, those that lie less deep first."""
    table = read_names().commands
    if os.path.islink(top) or not os.path.isdir(top):  # noqa: PTH112, PTH114  text
        yield top, True
    waiting, left = deque([(top, 1)]), _MOST_DIRECTORIES
    while waiting and left:
        directory, depth = waiting.popleft()
        left -= 1
        with suppress(OSError), os.scandir(directory) as found:
            for one in islice(found, _MOST_ENTRIES):
                if one.name in table["not_settings"] or one.path in roots:
                    continue
                is_link = one.is_symlink()
                if one.is_dir() and depth < most and not _leads_back(one, roots):
                    waiting.append((one.path, depth + 1))
                is_named = depth <= whole or _is_one_of(one.name, "deep_settings")
                if is_link or (is_named and not one.is_dir()):
                    yield one.path, True


def _leads_back(entry: "os.DirEntry[str]", roots: Sequence[str]) -> bool:
    """Return whether a link leads to what holds it, or into the workspace."""
    if not entry.is_symlink():
        return False
    target = os.path.realpath(entry.path)
    return is_below(entry.path, [target]) or is_below(target, roots)


@lru_cache(maxsize=4096)
def _leading_text(
    path: str, version: tuple[int, int], inner: tuple[str, ...], entries: frozenset[str] | None
) -> str:
    """Return what settings outside hold, or an empty text if they cannot name what lies in a root.

    Each version is read once: each server's sandbox has a look of its own. What programs keep
    beside settings is much, and to read all of it as commands would take seconds.

    Args:
        path: the file's.
        version: its time of change and its size.
        inner: as for `may_lead`.
        entries: what lies in the roots, where some settings start commands, or None if the text
            must name a root.
    """
    text, name = text_spelled_out(path), path.rpartition("/")[2]
    if version[1] > LARGEST:
        text = _spelled_out("\n".join(_lines_with(path, inner)), os.path.expanduser("~"))  # noqa: PTH111  text
    # Programs keep JSON in files without an ending.
    is_shell = is_shells(name) and _OBJECT.match(text) is None
    begins = (os.path.expanduser("~") in text, _LOADS_HERE.search(text) is not None)  # noqa: PTH111  text
    if is_shell and entries is not None and any(begins):
        return text  # what it loads may start what lies there, or lie there
    is_led = may_lead(
        name, text, inner, entries if is_shell or path.endswith(OF_PROJECTS) else None
    )
    return text if is_led else ""


def _lines_with(path: str, inner: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a large file that name a root: to read all for commands takes seconds."""
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123  text
        for line in file:
            if any(os.fsencode(one.rstrip("/")) in line for one in inner):
                yield line[:LARGEST].decode("utf-8", "surrogateescape")


def text_spelled_out(path: str) -> str:
    """Return the beginning of a text, with whole paths for those from the home or a variable."""
    return _spelled_out(text_of(path), os.path.expanduser("~"))  # noqa: PTH111  text


def _servers_of(state: str, roots: Sequence[str]) -> str:
    """Return the servers that an agent's memory names for everywhere, and for some projects."""
    with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):
        if os.stat(state).st_size <= _LARGEST_STATE:  # noqa: PTH116  text
            with open(state, "rb") as file:  # noqa: PTH123  text
                said = orjson.loads(file.read())
            projects = [said.get("projects", {}).get(root, {}) for root in roots]
            return orjson.dumps([one.get("mcpServers", {}) for one in (said, *projects)]).decode()
    return ""


def _spelled_out(text: str, home: str) -> str:
    """Return a text with whole paths in place of those that begin with the home or a variable."""
    text = text.replace(f"~{home.rpartition('/')[2]}/", f"{home}/")
    # Most texts have neither, and are not to be searched slowly.
    if any(one in text for one in ("~/", "HOME", "%h/")):
        text = _OF_HOME.sub(lambda _: home, text)
    known = {found[1]: found[2] for found in _SET_HERE.finditer(text)} if "$" in text else {}
    return (
        _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)
        if known
        else text
    )


def may_lead(name: str, text: str, inner: tuple[str, ...], entries: Collection[str] | None) -> bool:
    """Return whether settings may name something in a directory: reading them whole is dear.

    Args:
        name: the file's.
        text: what it holds.
        inner: the directory's path from where commands may start, each with a slash at its end and
            without dots at its beginning. It is empty if the text lies in the directory.
        entries: what lies in the directory, without the dots at the beginning, or None if no
            commands start there.
    """
    text = unescaped(name, text)
    odd = [one.rstrip("/") for one in inner if WORDS.fullmatch(one) is None]
    is_there = entries is not None
    # A whole path may stand behind an option: `-r/a/b`.
    said = [one in text for one in odd]
    said += [f"/{one}" in text for one in inner if one.count("/") > _SHORT]
    said += [one in text.lower() for one in read_names().commands["signs"] if is_there]
    if any(said) or (is_there and (COMMANDS.search(text) is not None or modules_of("", text))):
        return True
    for word in {*WORDS.findall(text)}:
        path = relative(word).lstrip("./")
        if f"{path}/".startswith(inner) or "/../" in path:
            return True
        if is_there and "/" in word and SCRIPTS.search(word):
            return True
        if entries and path.partition("/")[0] in entries:
            return True
    return is_there and INTERPRETED.search(text) is not None
