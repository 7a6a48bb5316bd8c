"""The log of what the auto-approver asked its model and what it said.

For diagnosis only. Nothing depends on it: what cannot be written is not written, and the first time
the operator is told. The file is private: the user's messages stand in it.
"""

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio.to_thread
import orjson

from ironcurtain_proxy.model.json import Json

_log = logging.getLogger(__name__)

STEP: Final = "auto-approve"
FILE_NAME: Final = "auto-approve-llm.jsonl"
MAX_BYTES: Final = 64 << 20
"""Of the whole file; nothing is added beyond it."""


@dataclass(slots=True)
class LlmLog:
    """Appends one JSON line an interaction."""

    path: Path
    _is_failing: bool = field(default=False, init=False)

    async def append(self, entry: Mapping[str, Json]) -> None:
        """Write one entry. Never raises but when it is cancelled."""
        try:
            line = orjson.dumps({"step": STEP, **entry}) + b"\n"
            await anyio.to_thread.run_sync(self._write, line)
        except (OSError, TypeError, ValueError) as error:
            if not self._is_failing:
                self._is_failing = True
                _log.warning("%s: the model's answers are not logged: %s", self.path, error)

    def _write(self, line: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No link, and no pipe that would make us wait for a reader.
        flags = (
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        descriptor = os.open(self.path, flags, 0o600)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise OSError("not a regular file of ours")
            if status.st_size + len(line) > MAX_BYTES:
                raise OSError("the file is full")
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
