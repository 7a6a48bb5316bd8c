"""The program under test, started: as a fork of a process that has imported it, or anew.

A fork is what tests are given that are about anything but the start: it behaves as `python -m
ironcurtain_proxy` does and comes at a twentieth of the price. Anew starts whatever is not exactly
`PROXY` with its arguments, so a test that is about the start itself puts `FRESH` in front.
"""

import atexit
import marshal
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from inspect import getsource, isawaitable, isfunction
from io import FileIO
from pathlib import Path
from typing import IO, Final, TypeVar

import anyio

from tests.fork_server import NUMBER

_T = TypeVar("_T")

PATIENCE: Final = 200.0
"""Seconds that a test waits for a process, a server or a file. It says that something hangs, and
nothing of how fast anything is: on a busy machine a start of one second may take twenty."""

_PAUSE: Final = 0.005

ROOT: Final = Path(__file__).parents[1]
PROXY: Final = [sys.executable, "-m", "ironcurtain_proxy"]
FRESH: Final = ["/usr/bin/env", *PROXY]
"""The program in an interpreter of its own."""

HARMLESS: Final = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
"""Variables of the interpreter that change nothing which a test looks at."""


def wait_until(condition: Callable[[], _T], what: str = "", pause: float = _PAUSE) -> _T:
    """Wait until something is true that nobody tells of. Returns what the condition is then.

    The pause is longer for what must not be tried too often.
    """
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, _never(condition, what)
        time.sleep(pause)
    return found


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Do the same in a loop; the condition may be one that is awaited.

    It sleeps in between: a test that only lets others run takes the time that they need.
    """
    end = time.monotonic() + PATIENCE
    while not (await found if isawaitable(found := condition()) else found):
        assert time.monotonic() < end, _never(condition, what)
        await anyio.sleep(_PAUSE)


def _never(condition: Callable[[], object], what: str) -> str:
    words = " ".join(getsource(condition).split()) if isfunction(condition) else repr(condition)
    return f"never true in {PATIENCE:.0f} s: {what or words}"


def free_port() -> int:
    """A port of this machine that nobody gets by chance before it is used.

    The kernel itself gives 32768 and above, so one that it gave before is soon another's.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)  # `random` gives each worker the same
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Pipe(FileIO):
    """An end of a pipe that nobody need close, also where it is collected before its process."""

    def __del__(self) -> None:
        self.close()


class Forked:
    """A running fork, with what the tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, status: int, stdin: FileIO, stdout: FileIO) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status

    def __del__(self) -> None:
        os.close(self._status)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Returns the exit code, or minus the signal."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(PROXY, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(_number(self._status))
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    argv: Sequence[str], env: Mapping[str, str], errors: IO[bytes], cwd: Path
) -> Forked | subprocess.Popen[bytes]:
    """Start a program, the proxy or another, that reads and writes pipes."""
    if not is_program(argv, env):
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(env),
            cwd=cwd,
            bufsize=0,
            start_new_session=True,
        )
    return _piped(argv, env, cwd, errors.fileno())


def start_here(module: str, *arguments: str) -> Forked:
    """Start a module of the tests, which reads and writes pipes too."""
    argv = [*PROXY[:2], module, *arguments]
    return _piped(argv, os.environ, ROOT, 2)


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None = None,
    *,
    given: bytes = b"",
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run a command of the program to its end. `given` is its standard input."""
    place = cwd or Path.cwd()
    if not is_program(argv, env):
        done = subprocess.run(
            argv, env=dict(env), cwd=place, input=given, capture_output=True, timeout=timeout,
            check=False,
        )  # fmt: skip
        return subprocess.CompletedProcess(
            argv, done.returncode, done.stdout.decode(), done.stderr.decode()
        )
    stdin, stdout, stderr = (FileIO(os.memfd_create("file"), "r+") for _ in range(3))
    with stdin, stdout, stderr:
        stdin.write(given)
        stdin.seek(0)
        files = [stdin.fileno(), stdout.fileno(), stderr.fileno()]
        process = Forked(*_fork(argv, env, place, files), stdin, stdout)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(
            argv, code, stdout.read().decode(), stderr.read().decode()
        )


@contextmanager
def imported_beforehand(module: str) -> Iterator[None]:
    """Let the forks of a block begin with a module that takes seconds to import, once a worker."""
    _SPECIAL.append(_server_with(module))
    try:
        yield
    finally:
        _SPECIAL.pop()


@cache
def starting_with(module: str) -> list[str]:
    """The beginning of a command that starts a module as a fork with another one imported.

    For what the program under test starts itself: a module and its arguments follow. The process
    that forks listens until the tests of this process end.
    """
    address = f"tests-{os.getpid()}-{module}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        Path(os.devnull).open("wb") as status,
    ):
        listener.bind(f"\0{address}")
        listener.listen(64)
        files = [listener.fileno(), status.fileno()]
        socket.send_fds(_server(), [module.encode()], files)
    command = [sys.executable, "-I", "-S", str(ROOT / "tests/start_forked.py"), address]
    # Until it has imported all that: who starts something waits for it with a limit.
    subprocess.run([*command, PROXY[2], "--version"], check=True, stdout=subprocess.DEVNULL)
    return command


def for_others() -> list[str]:
    """The command of the program for what others start, such as clients: it becomes a fork."""
    return [*starting_with("ironcurtain_proxy.cli.serve"), PROXY[2]]


_SPECIAL: Final[list[socket.socket]] = []
"""What forks in blocks of `imported_beforehand`."""


def prepare() -> None:
    """Start the process that forks, so that forks of this one share it."""
    _server()


def is_program(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a fork does what this start would do. The interpreter reads its variables once."""
    own = {name for name in env if name.startswith("PYTHON")} - HARMLESS
    module = argv[2].partition(".")[0] if list(argv[:2]) == PROXY[:2] else ""
    return module in {"ironcurtain_proxy", "tests"} and not own


@cache
def _server() -> socket.socket:
    """The process that forks, one for each process that runs tests; it ends with that."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # In our session: a test that runs servers in this process ends children of other sessions,
        # as the proxy does with what a killed guardian has left.
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server"], stdin=theirs.fileno(), cwd=ROOT
        )
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


@cache
def _server_with(module: str) -> socket.socket:
    """A fork of that process with a module more, which ends with this one, too."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, Path(os.devnull).open("wb") as status:
        socket.send_fds(_server(), [module.encode()], [theirs.fileno(), status.fileno()])
    atexit.register(ours.close)
    return ours


def _piped(argv: Sequence[str], env: Mapping[str, str], cwd: Path, errors: int) -> Forked:
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    try:
        pid, status = _fork(argv, env, cwd, [theirs_in, theirs_out, errors])
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    return Forked(pid, status, Pipe(ours_in, "w"), Pipe(ours_out))


def _fork(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, files: list[int]
) -> tuple[int, int]:
    """The pid of the new process, and the pipe that tells how it ended."""
    asked = [argv[2:], dict(env), str(cwd)]
    ours, theirs = os.pipe()
    try:
        server = _SPECIAL[-1] if _SPECIAL else _server()
        socket.send_fds(server, [marshal.dumps(asked)], [*files, theirs])
    finally:
        os.close(theirs)
    return _number(ours), ours


def _number(pipe: int) -> int:
    return int(NUMBER.unpack(os.read(pipe, NUMBER.size))[0])
