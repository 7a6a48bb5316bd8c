"""The change that a call would make to a file, as a diff against the present file.

Knows the arguments by which file tools commonly name a file, a text and its replacement; any other
call has no diff. Reads a file only if it is regular and small. The approval does not cover the
present content of the file: a server reads it anew when the call is carried out.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Final, NamedTuple

from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.json import Json

_MAX_FILE_BYTES: Final = 256 * 1024
_MAX_LINES: Final = 8000
_PATHS: Final = ("path", "file_path", "filePath", "filename")
_OLD: Final = ("oldText", "old_text", "old_string", "old_str", "oldString")
_NEW: Final = ("newText", "new_text", "new_string", "new_str", "newString")
_CONTENT: Final = ("content", "contents", "text", "file_text")
_EVERYWHERE: Final = ("replace_all", "replaceAll")


class _Edit(NamedTuple):
    old: str
    new: str
    everywhere: bool


class ShownChange(NamedTuple):
    """The diff of a call, as a person reads it."""

    lines: list[str]
    """The lines of the diff, safe to show. Empty if the call is not known to change a text."""
    shows: frozenset[str] = frozenset()
    """The arguments that the diff shows in full, so that they need not be shown again.

    The content that overwrites a file is none of them: of lines that the file has already the diff
    shows nothing, and the file may have others when the call is carried out."""


def changes_of(tool: str, arguments: Mapping[str, Json]) -> list[str]:
    """Return the lines of a call's diff."""
    return file_change(tool, arguments).lines


def file_change(tool: str, arguments: Mapping[str, Json]) -> ShownChange:
    """Return the diff of a call against the present file."""
    edits = _edits(arguments)
    path = _text(arguments, _PATHS)
    if edits:
        return _edited(path, edits, arguments)
    content = _text(arguments, _CONTENT)
    if path is None or content is None or "write" not in tool:
        return ShownChange([])
    present = _present(path)
    if present is None:
        return ShownChange([_UNREADABLE])
    lines = _diff(present.text, content)
    if present.is_there:
        return ShownChange(lines)
    whole = frozenset(_CONTENT) if lines[0][0] == "@" else frozenset[str]()
    return ShownChange(["(a new file)", *lines], whole)


def _fully_shown(arguments: Mapping[str, Json]) -> frozenset[str]:
    """Return the arguments that hold nothing but the texts of edits."""
    fields = {*_OLD, *_NEW, *_EVERYWHERE}
    listed = arguments.get("edits")
    if not isinstance(listed, list):
        return frozenset(fields)
    plain = all(isinstance(one, dict) and one.keys() <= fields for one in listed)
    return frozenset({"edits"}) if plain else frozenset()


def _edits(arguments: Mapping[str, Json]) -> list[_Edit]:
    listed = arguments.get("edits")
    given = listed if isinstance(listed, list) else [dict(arguments)]
    return [edit for one in given if isinstance(one, dict) and (edit := _edit(one)) is not None]


def _edit(fields: Mapping[str, Json]) -> _Edit | None:
    old, new = _text(fields, _OLD), _text(fields, _NEW)
    everywhere = any(fields.get(name) is True for name in _EVERYWHERE)
    return None if old is None or new is None else _Edit(old, new, everywhere)


def _edited(path: str | None, edits: Sequence[_Edit], arguments: Mapping[str, Json]) -> ShownChange:
    """Return the diff of the file, or that of the texts alone where the file cannot be shown."""
    present = None if path is None else _present(path)
    if present is None:
        return ShownChange(_by_texts(edits))
    if not present.is_there:
        return ShownChange(["(would fail: there is no such file)", *_by_texts(edits)])
    text = present.text
    missing: list[str] = []
    for number, edit in enumerate(edits, 1):
        if not edit.old or edit.old not in text:
            which = f" of edit {number}" if len(edits) > 1 else ""
            missing.append(f"(would fail: the text{which} to replace is not in the file)")
            continue
        text = text.replace(edit.old, edit.new, -1 if edit.everywhere else 1)
    if missing:
        return ShownChange([*missing, *_by_texts(edits)])
    lines = _diff(present.text, text)
    # A text that a later edit replaces is in no line: then the arguments are shown, too.
    shown = "\n".join([line for line in lines if line[0] != "-"])
    whole = all(visible(part) in shown for edit in edits for part in edit.new.split("\n"))
    return ShownChange(lines, _fully_shown(arguments) if whole else frozenset())


def _by_texts(edits: Sequence[_Edit]) -> list[str]:
    return [line for edit in edits for line in _diff(edit.old, edit.new)]


def _diff(old: str, new: str) -> list[str]:
    # An empty text has no line, but `split` would give one.
    before, after = (text.split("\n") if text else [] for text in (old, new))
    if len(before) + len(after) > _MAX_LINES:
        return [f"({len(before)} lines before, {len(after)} lines after: too many for a diff)"]
    lines = list(islice(unified_diff(before, after, lineterm="", n=3), 2, None))
    return [visible(line) for line in lines] or ["(no change)"]


class _Present(NamedTuple):
    text: str
    is_there: bool


_UNREADABLE: Final = "(what the file holds now cannot be shown)"


def _present(path: str) -> _Present | None:
    """The present content of the file; None: it cannot be shown."""
    try:
        # The agent may have named a device, which does something where it is only opened.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  text
            return None
        # Not blocking: it may have become a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return _Present("", is_there=False)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_FILE_BYTES:
            return None
        return _Present(os.read(descriptor, _MAX_FILE_BYTES).decode(), is_there=True)
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
