"""A workspace whose views are made by the real kernel."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ironcurtain_proxy.transactions.availability import why_no_views
from tests.transactions.bench import Workbench

_WHY_NONE: Final = dict[int, str | None]()
"""Why there are no views on a file system, or None: found out once."""


@pytest.fixture
def w(tmp_path: Path) -> Iterator[Workbench]:
    """A workspace on the disk."""
    with _made(tmp_path) as made:
        yield made


@pytest.fixture(params=["disk", "memory"])
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    """A workspace on the disk, and one in memory, where the kernel keeps fewer notes."""
    if request.param == "disk":
        with _made(tmp_path) as made:
            yield made
        return
    base = Path("/dev/shm", f"ironcurtain-{tmp_path.parent.name}-{tmp_path.name}")
    try:
        with _made(base) as made:
            yield made
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def _made(base: Path) -> Iterator[Workbench]:
    made = Workbench(base)
    try:
        directory = made.session.directory
        if (device := directory.stat().st_dev) not in _WHY_NONE:
            _WHY_NONE[device] = why_no_views(directory)
        if (why := _WHY_NONE[device]) is not None:
            pytest.skip(f"no views here: {why}")
        yield made
    finally:
        made.session.close()
