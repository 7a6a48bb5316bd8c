"""What is read of a process that is not confined, or is none."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.restrictions import is_out_of_reach, restrictions_of

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


def test_a_mount_that_another_user_s_directory_closes_to_us_is_out_of_reach() -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes a directory of another user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        Path(top).chmod(0o755)
        for name, owner, mode in (("theirs", 0, 0o700), ("own", 65534, 0), ("open", 0, 0o711)):
            (Path(top, name) / "mount").mkdir(parents=True)
            Path(top, name).chmod(mode)
            os.chown(Path(top, name), owner, -1)
        points = [f"{top}/{name}/mount" for name in ("theirs", "own", "open")]
        assert [*map(is_out_of_reach, points)] == [False, False, False]
        os.seteuid(65534)
        try:
            assert [*map(is_out_of_reach, points)] == [True, False, False]
        finally:
            os.seteuid(0)
