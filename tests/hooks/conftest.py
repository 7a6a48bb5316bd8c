"""What the tests of hooks share."""

import pytest

from ironcurtain_proxy.downstream.guardian import PR_SET_CHILD_SUBREAPER, prctl


@pytest.fixture(autouse=True)
def no_subreaper() -> None:
    """Let orphans leave this process, which stands for the client.

    Tests of servers make it a subreaper. Then what was started apart from the client would come
    back below it, and a kernel that has ended would stay as a zombie.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 0)
