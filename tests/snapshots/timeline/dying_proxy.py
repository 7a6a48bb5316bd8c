"""Makes points until it is killed, and tells each: `python -m … STORE WORKSPACE`."""

import sys
from pathlib import Path

from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.snapshots.keeper import Keeper, Limits

store, top = Path(sys.argv[1]), Path(sys.argv[2])
keeper = Keeper(store, RealPath.from_text(str(top)), Limits(), session="s", now=SystemClock().now)
number = 0
while True:
    number += 1
    point = keeper.mark(f"call-{number}.", "shell", "run")
    sys.stdout.write(f"{point} {(top / 'counter').read_text()}\n")
    sys.stdout.flush()
    for name in range(5):
        (top / f"{name}").write_bytes(b"%d" % number * 1000)
    (top / "counter").write_text(f"{number}")
    keeper.end_call(point)  # type: ignore[arg-type]  # a refusal ends the test
