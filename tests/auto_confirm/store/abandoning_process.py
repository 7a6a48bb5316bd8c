"""A process that asks, and waits for an answer until it is killed: `URL|- DIRECTORY`."""

import sys
import time
from pathlib import Path

from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine_knowledge import this_owner
from ironcurtain_proxy.auto_confirm.store.store import open_store
from tests.auto_confirm.store.specimens import interaction, task
from tests.fakes import FakeClock

if __name__ == "__main__":
    url, directory = sys.argv[1:]
    store = open_store(None if url == "-" else url, Path(directory), FakeClock())
    row = replace(interaction(session="killed", band="HIGH"), owner=this_owner())
    print(store.record_call(row, task()), flush=True)  # noqa: T201  the test reads it
    time.sleep(600)
