"""The log of the auto-approver's questions to its model, and of the answers.

For diagnosis only. Nothing depends on it: what cannot be written is not written, and the first time
the operator is told. The file is private: the user's messages stand in it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio.to_thread
import orjson

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.private_files import append_line

_log = logging.getLogger(__name__)

STEP: Final = "auto-approve"
MAX_BYTES: Final = 64 << 20
"""The most bytes of the file."""


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
        append_line(self.path, line, MAX_BYTES)
