"""What the tests of hooks share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.downstream.guardian import PR_SET_CHILD_SUBREAPER, prctl
from tests.hooks.hooked import HookedHome


@pytest.fixture(autouse=True)
def no_subreaper() -> None:
    """Let orphans leave this process, which stands for the client.

    Tests of servers make it a subreaper. Then what was started apart from the client would come
    back below it, and a kernel that has ended would stay as a zombie.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookedHome]:
    """A home and its project, in which the client is started."""
    hooked = HookedHome(tmp_path)
    monkeypatch.chdir(hooked.workspace)
    yield hooked
    hooked.end_session()
