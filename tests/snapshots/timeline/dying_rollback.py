"""Goes back to the first point of a timeline: `python -m … STORE WORKSPACE`."""

import sys
from pathlib import Path

from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.log import Log
from ironcurtain_proxy.snapshots.rewinding import RollbackRequest, roll_back

store = Path(sys.argv[1])
history = Log(store).read()
assert history is not None
request = RollbackRequest(
    directory=store,
    workspace=RealPath.from_text(sys.argv[2]),
    point=history.points()[0],
    rewind=True,
)
sys.stdout.write("begins\n")
sys.stdout.flush()
roll_back(request, Limits(), SystemClock().now, lambda _: True)
