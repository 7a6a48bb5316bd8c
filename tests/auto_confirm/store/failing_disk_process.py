"""A process whose disk fails.

    python -m tests.auto_confirm.store.failing_disk_process STATE FAULT

Prints the id of each interaction that was written, then `failed: …` with the fault's words.
"""

import resource
import signal
import sys
from pathlib import Path

from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from tests.auto_confirm.store.specimens import auto_approved, interaction
from tests.auto_confirm.store.writing_process import say
from tests.fakes import FakeClock

ROOM = 300_000
"""Bytes that the log of the database may still grow."""


def fill(store: Store, scope: str) -> None:
    while True:
        row = interaction(status="auto_approved", scope=scope)
        say(auto_approved(store, row))


def main(state: str, fault: str) -> None:
    try:
        with open_store(None, Path(state), FakeClock(), deadline_seconds=0.2) as store:
            if fault == "disk full":
                auto_approved(store)
                size = (Path(state) / "interactions.db-wal").stat().st_size + ROOM
                # Otherwise the signal would end us before the write fails.
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            fill(store, "/srv/" + "x" * 2000)
    except StoreError as error:
        say(f"failed: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
