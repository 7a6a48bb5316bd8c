"""Where links and commands of control places lead.

Links of a workspace that lead to where servers may write and nobody looks.

A server has directories of its own in the proxy's, such as its `/tmp`, which are not looked after
as the workspace is. Through a link a repository there would be one of the workspace. So would the
settings of an editor in `node_modules`, where names are not judged. This module reads links and
changes nothing.

Files that the commands of the user's own settings and hooks name: `"command": "./tools/lint.sh"` in
the settings of an agent makes the agent run that file by itself.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import orjson

from ironcurtain_proxy.control_places.git_files import SCRIPTS, WORDS
from ironcurtain_proxy.control_places.rules import is_in_cache, looks_activated, programs_of_prompts

_KERNELS: Final = "/proc"
"""Its links lead each process to another file, also into the mounts of a sandbox."""
_MOST: Final = 100
"""Links that are followed, more than the kernel does."""


_COMMANDS: Final = re.compile(
    r"(?:command|args|cmd|run|entry|enter|exec|runner|linker|wrapper)s?[\"']?\s*[:=]\s*"
    r"(\[[^\]]{0,4096}|\"(?:[^\"\\]|\\.){0,4096}|'[^']{0,4096}|[^\n]{0,4096})",
    re.IGNORECASE,
)
"""In JSON, YAML and TOML alike. What is longer is cut, so that the time stays in proportion."""
_FILES: Final = re.compile(
    r"(?:path|file|source|interpreter|executable|program)s?[\"']?\s*[:=]\s*"
    r"(\[[^\]]{0,4096}|\"[^\"]{0,4096}|'[^']{0,4096}|[^\n]{0,4096})",
    re.IGNORECASE,
)
"""Programs and variables of the environment that settings name: `"clangd.path": "tools/clangd"`."""
_NAMES_OPENED_FILES: Final = "xml"
_LOADED: Final = re.compile(
    r"(?:^|[;&|]|\bthen\b)[ \t]*"
    r"((?:source_env|dotenv)(?:_if_exists)?|source|\.|PATH_add|path_add[ \t]+PATH)"
    r"(?:[ \t]+[\"']?([^\s\"';&|)]+))?",
    re.MULTILINE,
)
"""What an allowed `.envrc` loads, or puts where programs are looked for."""
_PATH_OF_MISE: Final = re.compile(r"_\.path\s*=\s*(\[[^\]]{0,4096}|[^\n]{0,4096})")
_OF_VARIABLE: Final = re.compile(r"\$(?:\w+|\{[\w.-]+\})/|/+")
_LONGEST: Final = 1 << 16
"""The characters of a script that are read."""
_OF_SHELLS: Final = frozenset({"sh", "bash", "zsh"})
_STARTED_BY_HAND: Final = "launch.json"
_VERSIONS: Final = re.compile(r"(?:\s|[\w.+*~^<>=|@#-]|(?<=\blts)/|(?<=\d)/envs/)*", re.ASCII)
_LOOKS: Final = re.compile(
    r"editor\.(?:tabSize|insertSpaces|rulers|fontSize|wordWrap|minimap\.\w+|renderWhitespace)"
    r"|workbench\.(?:colorTheme|iconTheme|colorCustomizations)|cSpell\.(?:words|ignoreWords)"
    r"|files\.(?:exclude|eol|insertFinalNewline|trimTrailingWhitespace|trimFinalNewlines)"
    r"|search\.exclude|peacock\.\w+"
)


def words_of_commands(name: str, text: str) -> Iterator[str]:
    """Yield the words of the commands in a control file, which may be relative paths.

    Args:
        name: the file's. What has an ending is settings, and all else a script of a shell.
        text: what it holds.
    """
    stem, _, ending = name.rpartition(".")
    is_settings = stem and ending not in _OF_SHELLS and not name.startswith(".envrc")
    if name == _STARTED_BY_HAND or ending == "md" or "\0" in text:
        return
    commands = [one[1] for one in _COMMANDS.finditer(text)] if is_settings else [text[:_LONGEST]]
    named = is_settings and ending != _NAMES_OPENED_FILES
    files = [one[1] for one in _FILES.finditer(text)] if named else []
    for part in commands:
        yield from map(_relative, WORDS.findall(part))
    for part in files:
        for word in map(_relative, WORDS.findall(part)):
            # What packages bring counts as data there: `.venv/bin/python`.
            if not is_in_cache(word.split("/")):
                yield word


def _relative(word: str) -> str:
    return _OF_VARIABLE.sub("", word, count=1) if word[0] in "$/" else word


def files_to_come(name: str, text: str) -> Iterator[str]:
    """Yield the relative paths that a control file loads as soon as something is there.

    Args:
        name: the file's.
        text: what it holds.
    """
    directories = [one[1] for one in _PATH_OF_MISE.finditer(text)]
    if name.startswith(".envrc"):
        for verb, word in _LOADED.findall(text[:_LONGEST]):
            if verb.lower().startswith("path"):
                directories.append(word)
            elif word or verb.startswith("dotenv"):
                yield word or ".env"
    else:
        named = words_of_commands(name, text)
        yield from [one for one in named if "/" in one and SCRIPTS.search(one) and "*" not in one]
    for word in map(_relative, WORDS.findall(" ".join(directories))):
        yield from [f"{word}/{program}" for program in programs_of_prompts()]


def is_plain_version(content: bytes) -> bool:
    """Return whether a file such as `.python-version` names versions, and no path to a program.

    Some managers take `path:…`, and look for `../x` beside the versions that they have.
    """
    text = content.decode("ascii", "replace")
    return _VERSIONS.fullmatch(text) is not None and ".." not in text


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
        elif not _LOOKS.fullmatch(key):
            return False
    return True


def stays_below(depth: int, target: str) -> bool:
    """Return whether a link stays in a tree, whatever other links there are in it.

    Each link of the tree is judged by itself, so that only the text counts.

    Args:
        depth: how many directories of the tree lie above the link.
        target: what the link says.
    """
    if target.startswith("/"):
        return False
    parts = [one for one in target.split("/") if one not in {"", "."}]
    upwards = next((at for at, one in enumerate(parts) if one != ".."), len(parts))
    return upwards <= depth and ".." not in parts[upwards:]


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
