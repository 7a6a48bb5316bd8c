"""What is read of a process that is not confined, or is none."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.restrictions import restrictions_of

WORKSPACE = RealPath.from_text("/ws")


@pytest.fixture
def bare() -> Iterator[tuple[int, int]]:
    """An ordinary process below a shell: its shell's pid, and the inode of its input."""
    read, write = os.pipe()
    shell = subprocess.Popen(
        ["sh", "-c", "echo; cat; true"], stdin=read, stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    yield shell.pid, os.fstat(write).st_ino
    for end in (read, write):
        os.close(end)
    shell.wait()
    shell.stdout.close()


def test_a_process_of_our_own_namespaces_has_no_restrictions(bare: tuple[int, int]) -> None:
    assert restrictions_of(*bare, None, may_reach=False) is None


def test_a_process_that_does_not_read_the_pipe_has_no_restrictions(bare: tuple[int, int]) -> None:
    pid, pipe = bare
    assert restrictions_of(pid, pipe + 1, None, may_reach=False) is None
    assert restrictions_of(2**22 + 1, pipe, None, may_reach=False) is None


@pytest.mark.parametrize(
    ("writable", "temporary", "is_held"),
    [
        (("/ws",), None, True),
        (("/ws/sub", "/own"), "/own", True),
        (("/ws", "/own"), None, False),
        (("/ws-2",), None, False),
        (("/",), "/own", False),
        ((), None, True),
    ],
)
def test_restrictions_hold_what_lies_in_the_workspace_or_is_the_servers_own(
    writable: tuple[str, ...], temporary: str | None, is_held: bool
) -> None:
    restrictions = SandboxRestrictions(
        writable=tuple(map(RealPath.from_text, writable)),
        temporary=None if temporary is None else RealPath.from_text(temporary),
        is_offline=True,
    )
    assert restrictions.writes_only_in(WORKSPACE) is is_held
