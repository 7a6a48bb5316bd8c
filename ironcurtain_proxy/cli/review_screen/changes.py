"""What a call would change in a file, as a diff.

Knows the arguments by which file tools commonly name a text and its replacement; any other call has
no diff. Reads the present content of a file only if it is a regular and small one.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Final

from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.json import Json

_MAX_FILE_BYTES: Final = 256 * 1024
_MAX_LINES: Final = 4000
_PATHS: Final = ("path", "file_path", "filePath", "filename")
_OLD: Final = ("oldText", "old_text", "old_string", "old_str", "oldString")
_NEW: Final = ("newText", "new_text", "new_string", "new_str", "newString")
_CONTENT: Final = ("content", "contents", "text", "file_text")


def changes_of(tool: str, arguments: Mapping[str, Json]) -> list[str]:
    """The lines of the diff, safe to show; empty if the call is not known to change a text."""
    edits = arguments.get("edits")
    if isinstance(edits, list):
        return [line for edit in edits for line in _edit(edit)]
    replaced = _edit(dict(arguments))
    if replaced:
        return replaced
    path, content = _text(arguments, _PATHS), _text(arguments, _CONTENT)
    if path is None or content is None or "write" not in tool:
        return []
    return _diff(_present(path), content)


def _edit(edit: Json) -> list[str]:
    if not isinstance(edit, dict):
        return []
    old, new = _text(edit, _OLD), _text(edit, _NEW)
    return [] if old is None or new is None else _diff(old, new)


def _diff(old: str | None, new: str) -> list[str]:
    if old is None:
        return ["(what it holds now cannot be shown)"]
    # Nothing is no line, where `split` makes it an empty one.
    before, after = (text.split("\n") if text else [] for text in (old, new))
    if len(before) + len(after) > _MAX_LINES:
        return [f"({len(before)} lines before, {len(after)} lines after: too many for a diff)"]
    lines = list(islice(unified_diff(before, after, lineterm="", n=3), 2, None))
    return [visible(line) for line in lines] or ["(no change)"]


def _present(path: str) -> str | None:
    """What the file holds now: empty if there is none, None if it cannot be shown."""
    try:
        # Not blocking: the agent may have named a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_FILE_BYTES:
            return None
        return os.read(descriptor, _MAX_FILE_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(descriptor)


def _text(fields: Mapping[str, Json], names: Sequence[str]) -> str | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str):
            return value
    return None
