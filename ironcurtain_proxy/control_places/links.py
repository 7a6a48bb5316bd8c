"""Control places that are judged by content, or by where a link leads to.

Some links of a workspace lead to where servers may write and nobody looks. A server has directories
of its own in the proxy's, such as its `/tmp`, which are not looked after as the workspace is.
Through a link a repository there would be one of the workspace. So would the settings of an editor
in `node_modules`, where names are not judged. This module reads links and changes nothing.
"""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import glob
from typing import Final

import orjson

from ironcurtain_proxy.control_places.python_modules import is_below, text_of
from ironcurtain_proxy.control_places.rules import (
    is_in_cache,
    looks_activated,
    read_names,
)
from ironcurtain_proxy.model.values import lazy

_KERNELS: Final = "/proc"
"""Its links lead each process to another file, also into the mounts of a sandbox."""
_MOST: Final = 100
"""Links that are followed, more than the kernel does."""
_SCRIPTS: Final = "lib*/python3*/venv/scripts/*"
_SPELLED: Final = lazy(r"[\w./+-]+", re.ASCII)
"""A directory that no shell reads as anything else."""
_ASSIGNED: Final = lazy(
    r"(?:#.*|(?:export )?(\w+=)(?:[^\s$`;&|()<>\\\"']*|\"[^$`\\\"]*\"|'[^']*'))?[ \t]*", re.ASCII
)
_DATA: Final = lazy(
    r"(?:#.*|(?:export )?\w+=([\"']?)"
    r"(?:(?!file:)[A-Za-z][\w+.-]*://[^$`\\\"']*|[^$`\\\"'/~]*)\1)?[ \t]*",
    re.ASCII,
)
"""A variable that is data: neither a path, nor what a shell's prompt would run."""
_VERSIONS: Final = lazy(r"(?:\s|[\w.+*~^<>=|@#-]|(?<=\blts)/|(?<=\d)/envs/)*", re.ASCII)


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
    found = [_ASSIGNED.fullmatch(one) if _DATA.fullmatch(one) else None for one in lines]
    new = [f"^{one[1]}" if one else "^path=" for one in found]
    return not any(map("".join(new).lower().__contains__, read_names().commands["variables"]))


def is_activation(path: str, content: bytes | None, roots: Collection[str]) -> bool:
    """Return whether a file activates its virtual environment, as `python -m venv` writes it.

    What activates differs from the installed template in the directory and its name alone.

    Args:
        path: the file's, absolute: `.venv/bin/activate`.
        content: what it holds.
        roots: where servers may write: no template there counts.
    """
    directory, _, name = path.rpartition("/bin/")
    if content is None or not name.startswith("activate") or _SPELLED.fullmatch(directory) is None:
        return False
    title = os.path.basename(directory)  # noqa: PTH119  text
    bases = [sys.base_prefix, *map(os.path.expanduser, read_names().commands["pythons"])]
    for template in [one for base in bases for one in glob(f"{base}/{_SCRIPTS}/{name}")]:  # noqa: PTH207  text
        if not is_below(os.path.realpath(template), roots):
            text = text_of(template).replace("__VENV_DIR__", directory)
            text = text.replace("__VENV_NAME__", title).replace("__VENV_BIN_NAME__", "bin")
            for prompt in (title, f"({title}) ", f"'({title}) '"):
                if content == text.replace("__VENV_PROMPT__", prompt).encode():
                    return True
    return False


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
