"""Starting commands in views by a process that is ready, and forks for each of them.

The process is `mounting` with `serve`: started once, outside of every wall, with the rights of this
process. It gets the arguments, the environment, the directory and the descriptors of a command over
a socket that nobody else holds, and gives back a descriptor that says when the command has ended.
Where it dies, its commands die, and the next command starts another one.

    forker = Forker(sys.executable)
    process = forker.start(ForkedCommand(words=view.arguments(...), ...))
    process.wait()

Knows neither tools nor policy: whoever runs a command in a view may use it.
"""

import json  # noqa: TID251  mounting reads it: paths of any bytes stay what they are
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from ironcurtain_proxy import children
from ironcurtain_proxy.transactions import mounting

_SECONDS: Final = 20.0
"""The most time that a process which is ready takes to fork."""
_ANSWER: Final = 32


def mounting_by(python: str) -> list[str]:
    """Return the words before the arguments of `mounting`, for a command that is started alone."""
    return [python, "-I", "-S", mounting.__file__]


class ForkedCommand(Struct, frozen=True, kw_only=True):
    """A command for the process that is ready."""

    words: Sequence[str]
    """The arguments of `mounting`; see `CommandView.arguments`."""
    environment: Mapping[str, str]
    directory: str
    """The directory that it starts in. A view begins at the top of its workspace."""
    descriptors: Mapping[int, int]
    """The descriptors that it gets, by their numbers there: 0, 1, 2 and those that its words name.
    Ours stay open."""


class Forked:
    """A process that was forked for a command. Like `subprocess.Popen`, without its pipes."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self._ended = ended
        self._is_closed = False

    def poll(self) -> int | None:
        """Return None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Its status is told by the descriptor that its words name.

        Raises:
            subprocess.TimeoutExpired: it runs on.
        """
        found = self._wait(timeout)
        if found is None:
            raise subprocess.TimeoutExpired("a command in a view", timeout or 0)
        return found

    def _wait(self, timeout: float | None) -> int | None:
        if self._is_closed:
            return 0
        waiting = select.poll()
        waiting.register(self._ended, select.POLLIN)
        return 0 if waiting.poll(None if timeout is None else timeout * 1000) else None

    def send_signal(self, number: int) -> None:
        """Send a signal; never to another process of the same number."""
        with suppress(ProcessLookupError):
            if not self._is_closed:
                signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        """Kill it, and its command with it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of it, after its end."""
        self._is_closed = True
        os.close(self._ended)


class Forker:
    """The process that is ready, and the way to it. Any thread may use it."""

    def __init__(self, python: str) -> None:
        """Begin without a process.

        Args:
            python: the interpreter that makes views.
        """
        self._python = python
        self._lock = threading.Lock()
        self._ready: tuple[socket.socket, subprocess.Popen[bytes]] | None = None

    def begin(self) -> None:
        """Start the process, so that the first command need not wait for it.

        Raises:
            OSError: it cannot be started.
        """
        with self._lock:
            self._begun()

    @property
    def pid(self) -> int | None:
        """The number of the process, or None while there is none."""
        return None if self._ready is None else self._ready[1].pid

    def start(self, command: ForkedCommand) -> Forked:
        """Start a command.

        Raises:
            OSError: the process cannot be started, or does not answer.
        """
        said = {
            "words": list(command.words),
            "environment": dict(command.environment),
            "directory": command.directory,
            "numbers": list(command.descriptors),
        }
        content = json.dumps(said).encode("ascii")
        given = [*command.descriptors.values()]
        with self._lock:
            try:
                _send(self._begun(), content, given)
            except ConnectionError:
                # It died before: nothing of this command was started.
                self._end()
                _send(self._begun(), content, given)
            try:
                return _started(self._begun())
            except OSError:
                # Whether the command began is not known. The end of the process is its end, too.
                self._end()
                raise

    def close(self) -> None:
        """End the process and all its commands."""
        with self._lock:
            self._end()

    def _begun(self) -> socket.socket:
        if self._ready is not None:
            return self._ready[0]
        ours, theirs = socket.socketpair()
        with theirs, children.in_own_session() as started:
            process = subprocess.Popen(  # noqa: S603  an argument list of ours
                [*mounting_by(self._python), "serve", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            started(process.pid)
        ours.settimeout(_SECONDS)
        self._ready = ours, process
        return ours

    def _end(self) -> None:
        if self._ready is not None:
            requests, process = self._ready
            self._ready = None
            requests.close()
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            children.forget(process.pid)


def _send(requests: socket.socket, content: bytes, given: list[int]) -> None:
    socket.send_fds(requests, [len(content).to_bytes(8, "big")], given)
    requests.sendall(content)


def _started(requests: socket.socket) -> Forked:
    answer, ended, _, _ = socket.recv_fds(requests, _ANSWER, 1)
    if not ended:
        raise ConnectionError(0, "the process that makes views has ended")
    return Forked(int(answer), ended[0])
