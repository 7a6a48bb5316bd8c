"""What a confined server shares with the rest of the machine besides files: nothing that stays.

Each attempt is a program that the server runs; what it reached is looked up outside.
"""

import os
import select
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import Cell, add_hostile, done, refused
from tests.e2e.installation import Installation
from tests.tables import table

pytestmark = pytest.mark.usefixtures("sandbox")

SEGMENTS: Final = Path("/proc/sysvipc/shm")
SET_ID: Final = table("e2e/sandbox_kernel.set_id", dict[str, str])
"""Ways to make a set-uid file `p`."""
_AROUND: Final = """
import ctypes, os, pathlib, stat
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
p = pathlib.Path({path!r})
{code}
"""


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """An installation with two confined servers, and one that may do what the user may."""
    installation = Installation(tmp_path_factory.mktemp("kernel"))
    add_hostile(installation, "one")
    add_hostile(installation, "two")
    add_hostile(installation, "free", sandbox=False)
    yield installation, installation.start()
    installation.end()


@pytest.mark.parametrize("way", SET_ID)
def test_no_set_uid_file_can_be_made(cell: Cell, way: str) -> None:
    installation, agent = cell
    place = installation.workspace / f"made by {way}"
    code = _AROUND.format(path=str(place), code=SET_ID[way])
    refused(agent.call("one__run", {"code": code}))
    assert not place.exists() or not place.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


def test_ordinary_modes_can_be_given(cell: Cell) -> None:
    installation, agent = cell
    place = installation.workspace / "ordinary"
    code = _AROUND.format(path=str(place), code="p.touch(mode=0o600); os.chmod(p, 0o1755)")
    done(agent.call("one__run", {"code": code}))
    assert stat.S_IMODE(place.stat().st_mode) == 0o1755


ALLOCATES: Final = table("e2e/sandbox_kernel.allocates", dict[str, str])
"""Ways to set aside 64 MiB for a file at once."""
_OF_A_FILE: Final = (
    "import struct; c = ctypes.c_int64; f = os.open(p, os.O_CREAT | os.O_RDWR, 0o600)\n"
)


@pytest.mark.parametrize("way", ALLOCATES)
def test_no_call_takes_a_large_part_of_the_disk_at_once(cell: Cell, way: str) -> None:
    """The disk would be full before anybody has looked how much is left."""
    installation, agent = cell
    place = installation.workspace / f"allocated by {way}"
    code = _AROUND.format(path=str(place), code=_OF_A_FILE + ALLOCATES[way])
    refused(agent.call("one__run", {"code": code}))
    assert place.stat().st_blocks == 0


def test_programs_that_allocate_write_instead_and_may_make_holes(cell: Cell) -> None:
    installation, agent = cell
    place = installation.workspace / "allocated"
    code = _OF_A_FILE + (
        "os.posix_fallocate(f, 0, 1 << 20); check(libc.fallocate(f, 3, c(0), c(1 << 19)))"
    )
    done(agent.call("one__run", {"code": _AROUND.format(path=str(place), code=code)}))
    assert place.stat().st_size == 1 << 20
    assert place.stat().st_blocks * 512 <= 1 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities in its sandbox")
def test_no_capabilities_are_given_to_a_file(cell: Cell) -> None:
    installation, agent = cell
    place = installation.workspace / "capable"
    value = "b'\\x01\\0\\0\\x02\\xff\\xff\\xff\\xff\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0'"
    code = f"p.touch(); os.setxattr(p, 'security.capability', {value})"
    refused(agent.call("one__run", {"code": _AROUND.format(path=str(place), code=code)}))
    assert os.listxattr(place) == []


def test_shared_memory_is_a_server_s_own_and_does_not_outlive_it(cell: Cell) -> None:
    _, agent = cell
    key = 0x5EC_0DE
    make = f"import ctypes; print(ctypes.CDLL(None).shmget({key}, 4096, 0o1666))"
    find = f"import ctypes; print(ctypes.CDLL(None).shmget({key}, 4096, 0))"
    assert int(done(agent.call("one__run", {"code": make}))) >= 0
    assert str(key) not in SEGMENTS.read_text().split()
    for other in ("two", "free"):
        assert int(done(agent.call(f"{other}__run", {"code": find}))) == -1


def test_no_setting_of_the_kernel_can_be_changed(cell: Cell) -> None:
    _, agent = cell
    # The same is written back: should it get through, nothing has changed.
    code = (
        "import os\nfor d, _, names in os.walk('/proc/sys'):\n"
        "  if d.startswith('/proc/sys/user'): continue\n"
        "  for n in names:\n"
        "    try: os.close(os.open(f'{d}/{n}', os.O_WRONLY)); print(f'{d}/{n}')\n"
        "    except OSError: pass"
    )
    # An ordinary user owns the sandbox's namespace, and so what is set for its own IPC and numbers.
    ipc = [f"/proc/sys/{one}" for one in ("fs/mqueue/", "kernel/msg", "kernel/sem", "kernel/shm")]
    more = ("/proc/sys/kernel/auto_msgmni", "/proc/sys/kernel/ns_last_pid")
    own = (*ipc, *more) if os.geteuid() else ()
    found = done(agent.call("one__run", {"code": code})).split()
    assert [one for one in found if not one.startswith(own)] == []


@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW", "SOCK_DGRAM | socket.SOCK_CLOEXEC"])
def test_one_of_a_pair_of_sockets_reaches_no_socket_of_the_machine(cell: Cell, kind: str) -> None:
    installation, agent = cell
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        here = os.open(installation.workspace, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/log.sock")
        os.close(here)
        listener.setblocking(False)
        code = (
            f"import os, socket; os.chdir({str(installation.workspace)!r});"
            f"a, b = socket.socketpair(socket.AF_UNIX, socket.{kind}); a.sendto(b'x', 'log.sock')"
        )
        refused(agent.call("one__run", {"code": code}))
        assert not select.select([listener], [], [], 0)[0]
    (installation.workspace / "log.sock").unlink()


def test_pairs_of_streams_can_be_made(cell: Cell) -> None:
    _, agent = cell
    code = "import socket as s; a, b = s.socketpair(); a.send(b'ok'); print(b.recv(2).decode())"
    assert done(agent.call("one__run", {"code": code})) == "ok\n"


OF_THE_KERNEL: Final = {
    "x86_64": {"add_key": 248, "keyctl": 250, "bpf": 321, "perf_event_open": 298}
    | {"userfaultfd": 323, "syslog": 103, "open_by_handle_at": 304},
    "aarch64": {"add_key": 217, "keyctl": 219, "bpf": 280, "perf_event_open": 241}
    | {"userfaultfd": 282, "syslog": 116, "open_by_handle_at": 265},
}[os.uname().machine]
ARGUMENTS: Final = {"add_key": "b'user', b'confined', b'x', 1, -3", "keyctl": "0, -4, 0"}


@pytest.mark.parametrize("call", OF_THE_KERNEL)
def test_the_kernel_s_keys_and_its_inner_workings_are_out_of_reach(cell: Cell, call: str) -> None:
    """Whatever the settings of this machine say."""
    _, agent = cell
    asked = f"{OF_THE_KERNEL[call]}, {ARGUMENTS.get(call, '10, 0, 0, 0, 0')}"
    code = _AROUND.format(path="/", code=f"check(libc.syscall({asked}))")
    assert "Function not implemented" in refused(agent.call("one__run", {"code": code}))
    assert "confined" not in Path("/proc/keys").read_text()
