"""The filter of system calls, held by a program of an ordinary user without any sandbox."""

import errno
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox.profile import refused_calls, refused_in_closure

_NOBODY = 65534
_FILTERED = """
import ctypes, os, sys
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
raw, file = bytes.fromhex(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(*[65534] * 3)
    os.setresuid(*[65534] * 3)
if raw:
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    given = Program(len(raw) // 8, raw)
    assert libc.prctl(22, 2, ctypes.byref(given), 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
try:
    exec(sys.argv[3])
except OSError as error:
    print(error.errno)
else:
    print(0)
"""


_LEASE = (
    "found = libc.fcntl(os.open(file, os.O_RDONLY), {}, {})\n"
    "if found < 0: raise OSError(ctypes.get_errno(), '')"
)
"""`F_SETLEASE` is 1024 and `F_GETLEASE` 1025; with 1 readers have to wait, too."""


def set_by(raw: bytes, file: Path, code: str = 'os.setxattr(file, "user.a", b"1")') -> int:
    """The error of an ordinary user's program that does something with a file."""
    given = [sys.executable, "-I", "-S", "-c", _FILTERED, raw.hex(), str(file), code]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return int(done.stdout)


@pytest.fixture
def file() -> Iterator[Path]:
    """A file of nobody's, in a directory that everybody may reach."""
    number, name = tempfile.mkstemp(dir="/var/tmp")
    if os.geteuid() == 0:
        os.fchown(number, _NOBODY, _NOBODY)
    os.close(number)
    yield Path(name)
    Path(name).unlink()


def test_no_program_in_a_sandbox_lets_others_wait_for_a_file_by_a_lease_on_it(file: Path) -> None:
    takes, asks = _LEASE.format(1024, 1), _LEASE.format(1025, 0)
    machine = platform.machine()
    for raw in (refused_calls(machine), refused_in_closure(machine, is_root=False)):
        assert raw is not None
        assert set_by(raw, file, takes) == errno.EINVAL
        assert set_by(raw, file, asks) == 0
    assert set_by(b"", file, takes) == 0


def test_a_server_sets_no_extended_attribute_whoever_it_runs_as(file: Path) -> None:
    """An access list is one: with it, other users could write what the host makes later."""
    if set_by(b"", file) != 0:
        pytest.skip("this file system has no extended attributes")
    raw = refused_calls(platform.machine())
    assert raw is not None
    assert set_by(raw, file) == errno.EOPNOTSUPP
    in_view = refused_in_closure(platform.machine(), is_root=False)
    assert in_view is not None
    assert set_by(in_view, file) == 0, "a view is looked through before it comes in"
