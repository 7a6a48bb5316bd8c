"""The files of a set-up, written without the loss of the operator's files.

An existing file with other content is kept, unless its owner agreed to replace it; then it is
renamed and kept beside the new one. The configuration is written last: without it an interrupted
set-up has no effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import orjson

from ironcurtain_proxy.config.migration.rewriting import create, rewrite
from ironcurtain_proxy.model.json import Json

FileState: TypeAlias = Literal["new", "same", "elsewhere", "other"]
"""The state of a file. `elsewhere`: it differs only in its workspace, which each session may name.
"""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """The planned content of one file."""

    path: Path
    content: bytes
    before: bytes | None
    """The present content; None: the file does not exist."""
    state: FileState


def planned(path: Path, document: Json) -> PlannedFile:
    """Return the changes that writing a document would make.

    Raises:
        OSError: an existing file cannot be read.
    """
    content = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        return PlannedFile(path, content, None, "new")
    return PlannedFile(path, content, before, _state(before, document))


def _state(before: bytes, document: Json) -> FileState:
    try:
        found = orjson.loads(before)
    except ValueError:
        return "other"
    if found == document:
        return "same"
    if isinstance(found, dict) and isinstance(document, dict):
        moved = {**found, "allowedDirectory": document.get("allowedDirectory")}
        if "allowedDirectory" in found and moved == document:
            return "elsewhere"
    return "other"


def write(files: Sequence[PlannedFile], now: datetime) -> list[tuple[PlannedFile, Path | None]]:
    """Write new and changed files, in this order. Returns each with the copy of its old content.

    Raises:
        OSError: a file could not be written; the files before it were written.
    """
    written: list[tuple[PlannedFile, Path | None]] = []
    for file in files:
        if file.before is None:
            create(file.path, file.content)
            written.append((file, None))
        elif file.before != file.content:
            written.append((file, rewrite(file.path, file.before, file.content, now)))
    return written
