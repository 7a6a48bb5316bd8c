"""The files of a set-up, written so that nothing of the operator's is lost.

A file that is there and says something else stays, unless its owner agreed: then it is kept beside
the new one. The configuration is written last: without it a set-up that broke off is not used.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import orjson

from ironcurtain_proxy.config.migration.rewriting import rewrite
from ironcurtain_proxy.model.json import Json

State: TypeAlias = Literal["new", "same", "elsewhere", "other"]
"""`elsewhere`: it differs in its workspace alone, which each session may name."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One file, as it is to be."""

    path: Path
    content: bytes
    before: bytes | None
    """As it is now; None: it is not there."""
    state: State


def planned(path: Path, document: Json) -> Planned:
    """What writing a document would change.

    Raises:
        OSError: what is there cannot be read.
    """
    content = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        return Planned(path, content, None, "new")
    return Planned(path, content, before, _state(before, document))


def _state(before: bytes, document: Json) -> State:
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


def write(files: Sequence[Planned], now: datetime) -> list[tuple[Planned, Path | None]]:
    """Write what is new or other, in this order. Each file with the copy of what it was.

    Raises:
        OSError: one could not be written; those before it are.
    """
    written: list[tuple[Planned, Path | None]] = []
    for file in files:
        if file.before is None:
            _create(file.path, file.content)
            written.append((file, None))
        elif file.before != file.content:
            written.append((file, rewrite(file.path, file.before, file.content, now)))
    return written


def _create(path: Path, content: bytes) -> None:
    """Write a new file whole, for this user only; one that has come meanwhile stays."""
    for place in (*reversed(path.parent.parents), path.parent):
        with suppress(FileExistsError):
            if not place.exists():
                place.mkdir(mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        # A link, not a renaming: that would replace what another process has put there.
        os.link(name, path)
    finally:
        Path(name).unlink()
