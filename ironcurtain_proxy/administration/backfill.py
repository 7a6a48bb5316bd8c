"""Adds to the usual configuration file what came later, switched off, so that its owner sees it.

Touches only `~/.ironcurtain/config.json`: a file that was named for us is its author's to change.
The words are inserted, so comments, order and layout of the rest stay as they are.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.model.json import Json

SECTION: Final = "autoApprove"
_WORDS: Final = '\n  "autoApprove": {"enabled": false, "modelId": "anthropic:claude-haiku-4-5"}'
_MAX_BYTES: Final = 4 * 1024 * 1024


def backfill_auto_approve(file: Path) -> bool:
    """Insert the section where it is missing. What cannot be changed stays as it is.

    The file is replaced in one step, and keeps its mode; a link stays one.

    Returns:
        Whether it was inserted.
    """
    try:
        real = Path(os.path.realpath(file))
        before = real.read_bytes()
        after = _inserted(before)
        if after is None:
            return False
        _replace(real, after)
    except (OSError, UnicodeDecodeError):
        return False
    return True


def _inserted(before: bytes) -> bytes | None:
    """The new content; None: nothing to insert, or nothing it could safely be inserted into."""
    if len(before) > _MAX_BYTES:
        return None
    old = _parsed(before)
    if not isinstance(old, dict) or SECTION in old:
        return None
    head, brace, rest = before.decode().partition("{")
    after = (head + brace + _WORDS + ("," if old else "\n") + rest).encode()
    new = _parsed(after)
    if not isinstance(new, dict) or {k: v for k, v in new.items() if k != SECTION} != old:
        return None
    return after


def _parsed(content: bytes) -> Json:
    with suppress(orjson.JSONDecodeError):
        parsed: Json = orjson.loads(content)
        return parsed
    return None


def _replace(file: Path, content: bytes) -> None:
    mode = file.stat().st_mode & 0o7777
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        # After the content: the new file is nobody else's until it is whole.
        Path(name).chmod(mode)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
