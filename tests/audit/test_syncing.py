"""The syncing thread, which takes lines over while others are being written."""

import os
import time
from pathlib import Path

from ironcurtain_proxy.audit.records import GENESIS, Link
from ironcurtain_proxy.audit.writer import Syncer


class _TakenBack(Syncer):
    """One whose thread takes the lines over right after the writer has looked whether it has."""

    _looks = 0

    @property
    def _waiting_since(self) -> float | None:
        self._looks += 1
        return time.monotonic() if self._looks == 1 else None

    @_waiting_since.setter
    def _waiting_since(self, value: float | None) -> None:
        pass


def test_a_line_written_while_the_thread_takes_the_others_over_is_no_fault(tmp_path: Path) -> None:
    faults: list[str] = []
    file = os.open(tmp_path / "audit.jsonl", os.O_CREAT | os.O_WRONLY)
    syncer = _TakenBack(tmp_path / "audit.jsonl", file, GENESIS, faults.append)
    syncer._looks = 0
    syncer.written(Link(1, "0" * 64))
    assert syncer.stop(10)
    os.close(file)
    assert faults == []
