"""What the timeline costs: the first look, and a call, on workspaces of two sizes."""

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import NotHeld
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.rewinding import RollbackRequest, kept, roll_back
from ironcurtain_proxy.snapshots.workspace_timeline import WorkspaceTimeline

CALLS = 50
IN_ONE = 20
"""Files in a directory."""


def write(line: str = "") -> None:
    """Print at once: a benchmark is watched."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def workspace(files: int) -> Iterator[tuple[Path, Path]]:
    """A directory with that many files of 2 KB, and one for the timeline."""
    top = Path(tempfile.mkdtemp(prefix="bench-timeline-")).resolve()
    try:
        for number in range(files):
            place = top / "w" / f"{number // IN_ONE // 50}" / f"{number // IN_ONE}"
            if number % IN_ONE == 0:
                place.mkdir(parents=True)
            (place / f"file-{number}.py").write_bytes(b"%d\n" % number * 300)
        yield top / "w", top / "timeline"
    finally:
        shutil.rmtree(top)


async def measured(top: Path, store: Path, limits: Limits) -> None:
    """The first look, then calls that each change three files."""
    started = time.perf_counter()
    timeline = WorkspaceTimeline(
        store, RealPath.from_text(str(top)), limits, session="bench", now=SystemClock().now
    )
    slept = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timeline.run)
        await timeline.mark(RequestId("first"), "shell", "run", may_drop=False)
        write(f"  first look {time.perf_counter() - started:8.2f} s")
        times = []
        for number in range(CALLS):
            start = time.perf_counter()
            point = await timeline.mark(
                RequestId(f"call-{number}."), "shell", "run", may_drop=False
            )
            made = time.perf_counter()
            if isinstance(point, NotHeld):
                raise SystemExit(point.reason)
            for name in ("changed", "new", "other"):
                place = top / "0" / f"{number % 50}"
                (place / name).write_text(f"{name} {number}\n")
            ended = time.perf_counter()
            await timeline.end_call(point)
            times.append((time.perf_counter() - ended + made - start) * 1e3)
            slept = max(slept, times[-1])
        tasks.cancel_scope.cancel()
    timeline.close()
    write(f"  a call     {statistics.median(times):8.2f} ms p50, {slept:.1f} ms at most")
    write(f"  memory     {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:8} MiB at most")


def rolled_back(store: Path, limits: Limits) -> None:
    """All calls taken back at once."""
    started = time.perf_counter()
    timeline = kept(store)[0]
    request = RollbackRequest(
        directory=timeline.directory,
        workspace=timeline.workspace,
        point=timeline.points[0].point,
        rewind=True,
    )
    done = roll_back(request, limits, SystemClock().now, lambda _: True)
    seconds = time.perf_counter() - started
    write(f"  rollback   {seconds:8.2f} s for {len(done.plan.steps)} paths")


def main() -> int:
    """Both sizes, or the one that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, action="append")
    options = parser.parse_args()
    for files in options.files or (10_000, 200_000):
        write(f"{files:,} files, {CALLS} calls that change 3 each")
        limits = Limits(max_files=max(200_000, files * 2))
        with workspace(files) as (top, store):
            anyio.run(measured, top, store, limits)
            rolled_back(store, limits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
