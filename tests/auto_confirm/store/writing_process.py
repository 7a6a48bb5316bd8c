"""One of many processes on one store.

    python -m tests.auto_confirm.store.writing_process URL STATE NAME COUNT SHARED

Waits for a line on standard input, then writes COUNT interactions and tries to settle the shared
one. Prints the ids of what was written, one a line, and at last `won` or `lost`.
"""

import sys
from pathlib import Path

from ironcurtain_proxy.auto_confirm.store.store import open_store
from tests.auto_confirm.store.direct import record_interaction, use_pattern
from tests.auto_confirm.store.specimens import approval, ends, interaction, reviewed
from tests.fakes import FakeClock


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(url: str, state: str, name: str, count: str, shared: str) -> None:
    sys.stdin.readline()
    with open_store(url or None, Path(state), FakeClock(), deadline_seconds=50) as store:
        for number in range(int(count)):
            row = interaction(
                session=name, status="auto_approved", request=f"{name}-{number}", pattern=1
            )
            say(record_interaction(store, row, approval()))
            use_pattern(store, 1)
        say(reviewed(store, interaction(session=name, request=f"{name}-r")))
        won = int(shared) > 0 and store.end(int(shared), ends(by=f"reviewer:{name}"))
        say("won" if won else "lost")


if __name__ == "__main__":
    main(*sys.argv[1:])
