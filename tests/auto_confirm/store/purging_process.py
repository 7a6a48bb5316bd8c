"""One of several processes that remove what is old.

    python -m tests.auto_confirm.store.purging_process URL STATE MODE

`begin` says `ready`, waits for a line, and purges as a proxy does; `go` as if all had been told to;
a number kills the process when it is about to delete from so many tables. Prints how many went in
each batch.
"""

import os
import signal
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path

from sqlalchemy import event

from ironcurtain_proxy.auto_confirm.store.interactions import BATCH
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from tests.auto_confirm.store.aged_interactions import TODAY, wind
from tests.auto_confirm.store.writing_process import say
from tests.fakes import FakeClock

KEEP = timedelta(days=90)


def die_at(store: Store, nth: int) -> None:
    deletes = count(1)

    def before(*told: object) -> None:
        if str(told[2]).startswith("DELETE") and next(deletes) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(store._database._engine, "before_cursor_execute", before)


def main(url: str, state: str, mode: str) -> None:
    clock = FakeClock()
    wind(clock, TODAY)
    with open_store(url or None, Path(state), clock, deadline_seconds=50) as store:
        if mode.isdigit():
            die_at(store, int(mode))
        else:
            say("ready")
            sys.stdin.readline()
        found = store.go_on_purging(KEEP) if mode == "go" else store.begin_purge(KEEP)
        say(found)
        while found == BATCH:
            found = store.go_on_purging(KEEP)
            say(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
