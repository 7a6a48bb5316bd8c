"""One server process under its guardian: start, wait, end.

Nothing here needs an event loop, so that servers start before slow imports.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.downstream import guardian
from ironcurtain_proxy.downstream.descriptors import limit_of_servers
from ironcurtain_proxy.downstream.orphans import GUARDIANS, kill_orphans
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import ServerSpec

_GUARDIAN: Final = Path(guardian.__file__)
_ORPHANS: Final = 1.0
"""Seconds to look for the orphans of a killed guardian."""
_EXIT_WORDS: Final[Mapping[int, str]] = {
    125: "its guardian could not start it",
    126: "its command cannot be executed",
    127: "its command was not found",
}


class ServerProcess(Struct, eq=False):
    """A running server. It owns its three pipes until a caller takes them."""

    server: str
    pipe: int
    """The inode of the server's input pipe, which identifies the server's processes."""
    _stdin: int
    _stdout: int
    _stderr: int
    _lifeline: int
    """Write end of a pipe: the guardian ends the server when it is closed."""
    _popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The guardian's; the server is its child."""
        return self._popen.pid

    @property
    def exit_status(self) -> int | None:
        """The server's exit status, 128 + N after signal N; None while it runs."""
        return self._popen.poll()

    def ending(self) -> str:
        """The end of the process, in words."""
        status = self.exit_status
        if status is None:
            return "it closed its output"
        return _EXIT_WORDS.get(status, f"it exited with status {status}")

    def take_wire(self) -> tuple[int, int]:
        """Hand over the descriptors of the server's output and input."""
        wire = self._stdout, self._stdin
        self._stdout = self._stdin = -1
        return wire

    def take_stderr(self) -> int:
        """Hand over the descriptor of standard error. A server blocks if it is not drained."""
        stderr, self._stderr = self._stderr, -1
        return stderr

    def end(self, grace: float) -> int:
        """End the server and all its descendants, and wait for their end. Blocks.

        Takes at most `grace`, and 2 seconds: the guardian sends SIGTERM, and SIGKILL after one.

        Args:
            grace: Seconds the server has to end by itself, now that its input is closed.
        """
        self._close_pipes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(grace)
        self._cut_lifeline()
        try:
            status = self._popen.wait(2 * guardian.GRACE)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = self._popen.wait()
        GUARDIANS.discard(self.pid)
        if status < 0:
            kill_orphans(_ORPHANS)
        return status

    def _close_pipes(self) -> None:
        for fd in (*self.take_wire(), self.take_stderr()):
            if fd >= 0:
                os.close(fd)

    def _cut_lifeline(self) -> None:
        # Two threads may end a server at once, and the number may be another file's by then.
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)


def spawn(
    spec: ServerSpec,
    *,
    environment: Mapping[str, str],
    cwd: str,
    argv: Sequence[str],
    inherited: Sequence[int] = (),
    directory: str | None = None,
) -> ServerProcess:
    """Start a server.

    Args:
        spec: For its name.
        environment: All the server finds in its environment.
        cwd: Its working directory, absolute.
        argv: What to run, as the sandbox wants it; the command is looked up in the environment's
            `PATH`.
        inherited: Descriptors that the process gets under the same numbers.
        directory: What its guardian removes once all of it has ended, absolute.

    Raises:
        ServerUnavailableError: no process could be made. That the command does not exist shows
            only later, by its exit status.
    """
    # What is created here is closed on exec, so that no server can hold another's pipes open.
    pipes = _Pipes()
    command = [sys.executable, "-I", "-S", "-c", guardian.PROGRAM, str(_GUARDIAN)]
    keep, files = "1" if "LC_CTYPE" in environment else "0", limit_of_servers()
    command += [str(pipes.child[3]), f"{keep}:{files}" if files else keep, directory or ""]
    command += ["--", *argv]
    try:
        popen = subprocess.Popen(  # noqa: S603  an argument list, no shell
            command,
            stdin=pipes.child[0],
            stdout=pipes.child[1],
            stderr=pipes.child[2],
            env=dict(environment),
            cwd=cwd,
            pass_fds=(pipes.child[3], *inherited),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        pipes.close(pipes.ours)
        raise ServerUnavailableError(
            f'server "{spec.name}" could not be started: {_why(error)}'
        ) from error
    finally:
        pipes.close(pipes.child)
    GUARDIANS.add(popen.pid)
    stdin, stdout, stderr, lifeline = pipes.ours
    return ServerProcess(spec.name, os.fstat(stdin).st_ino, stdin, stdout, stderr, lifeline, popen)


class _Pipes:
    """Standard input, output, error and the lifeline: our ends, and the guardian's."""

    def __init__(self) -> None:
        self.ours: list[int] = []
        self.child: list[int] = []
        try:
            for we_write in (True, False, False, True):
                read, write = os.pipe()
                self.ours.append(write if we_write else read)
                self.child.append(read if we_write else write)
        except OSError:
            self.close([*self.ours, *self.child])
            raise

    @staticmethod
    def close(descriptors: Sequence[int]) -> None:
        for fd in descriptors:
            os.close(fd)


def _why(error: OSError | ValueError) -> str:
    """The reason, without the arguments, which may hold a secret."""
    if isinstance(error, OSError):
        return os.strerror(error.errno or 0).lower()
    return "its command or environment holds a NUL character"
