"""The processes of servers: start, files, standard error, end, and what a killed guardian leaves.

A server runs under its guardian. Nothing here needs an event loop, so that servers start before
slow imports. A thread drains a server's standard error into the session log: it works before the
loop exists, and keeps floods of output and slow disks from delaying calls.

On Linux the proxy is a subreaper: processes that lose their guardian become children of the proxy,
which kills them. On other systems they are lost. The proxy's process is protected against servers
of the same user, which could attach to it as a debugger does.

Shells set a low limit on open files and allow a higher one. The proxy raises its own, because
without descriptors no record can be written and no call forwarded. Servers get the original limit,
because programs that use `select` fail with a higher one.
"""

import contextlib
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy import children
from ironcurtain_proxy.downstream import guardian
from ironcurtain_proxy.downstream.environment import Masker
from ironcurtain_proxy.downstream.guardian import prctl
from ironcurtain_proxy.downstream.session_log import OutputLimit, SessionLog, printable
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import lazy

# --- descriptors


OWN: Final = 32
"""Descriptors without servers: standard streams, audit log, mailbox, event loop, store."""
PER_SERVER: Final = 6
"""Descriptors for a server: its pipes, and those of a call while it is judged."""

_given: list[int] = []
"""The soft limit before it was raised, or empty if it was not raised."""


def raise_limit() -> None:
    """Raise the limit to the highest that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard or _given:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _given.append(soft)


def too_few(servers: int) -> str | None:
    """Return a warning that the limit is too low, or None if it is high enough."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN + PER_SERVER * servers
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    return (
        f"warning: {soft} files may be open at once, and {servers} servers need about {needed}: "
        f"calls may be denied; raise the limit (`ulimit -n {needed}`), or configure fewer servers"
    )


# --- orphans


def become_subreaper() -> None:
    """Let processes whose guardian was killed become children of this process."""
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)


def kill_orphans(seconds: float) -> bool:
    """Kill and collect orphans; False if some remain after `seconds`."""
    deadline = time.monotonic() + seconds
    while children.for_each_orphan(_in_other_sessions, _kill):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, 9)
        os.waitpid(pid, os.WNOHANG)


def _in_other_sessions() -> list[int]:
    """Return our children that are not in our session (as git is).

    A server begins its own session, and its processes cannot return to ours.
    """
    if sys.platform != "linux":
        return []
    ours = os.getsid(0)
    found = guardian.children().get(os.getpid(), [])
    return [pid for pid in found if _session(pid) not in (ours, None)]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


# --- process


_GUARDIAN: Final = Path(guardian.__file__)
_ORPHANS: Final = 1.0
"""Seconds to look for the orphans of a killed guardian."""
NOT_FOUND: Final = "its command was not found"
_EXIT_WORDS: Final[Mapping[int, str]] = {
    125: "its guardian could not start it",
    126: "its command cannot be executed",
    127: NOT_FOUND,
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
        """Return the end of the process, in words."""
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
        for fd in (*self.take_wire(), self.take_stderr()):
            if fd >= 0:
                os.close(fd)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(grace)
        # Two threads may end a server at once, and the number may be another file's by then.
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)
        try:
            status = self._popen.wait(2 * guardian.GRACE)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            status = self._popen.wait()
        children.forget(self.pid)
        if status < 0:
            kill_orphans(_ORPHANS)
        return status


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
    # With the soft limit that the guardian sets, unless it is unchanged.
    keep = ":".join(["1" if "LC_CTYPE" in environment else "0", *map(str, _given)])
    command += [str(pipes.child[3]), keep, directory or "", "--", *argv]
    try:
        with children.in_own_session() as started:
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
            started(popen.pid)
    except (OSError, ValueError) as error:
        pipes.close(pipes.ours)
        raise ServerUnavailableError(
            f'server "{spec.name}" could not be started: {_why(error)}'
        ) from error
    finally:
        pipes.close(pipes.child)
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
    """Return the reason, without the arguments, which may hold a secret."""
    if isinstance(error, OSError):
        return os.strerror(error.errno or 0).lower()
    return "its command or environment holds a NUL character"


# --- stderr


_CHUNK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 14
"""Bytes after which a line is split: a server may never write a newline."""

_KEPT: Final = 8192
"""Bytes of the end of the output in which the most telling line is looked for."""

_NAMES_ERROR: Final = lazy(
    rb"\s*(?:Uncaught |Caused by: |npm |thread '[^']*' )?"
    rb"(?:[\w.]*(?:Error|Exception)\b[^:]{0,40}:|(?:fatal|panic|error|failed)\w*[:! ]"
    rb"|panicked|cannot )",
    re.IGNORECASE,
)
"""Lines such as `Error: ENOENT: …`, `ModuleNotFoundError: …` and `fatal: …`."""

_SPEAKS_OF_ERROR: Final = lazy(
    rb"\b(?:errors?|cannot|can't|could not|failed|denied|refused|not found|missing|required"
    rb"|E[A-Z]{4,})\b",
    re.IGNORECASE,
)

_NAMES_LOG: Final = lazy(rb"\b(?:complete|full|debug) log\b", re.IGNORECASE)
"""Where a program says that it kept the rest, as npm does last, after `npm error`."""

_LONGEST_WORDS: Final = 200
"""Characters of a server's line that are repeated to the operator."""


class StderrDrain:
    """Reads until the server and all it has started have closed their standard error."""

    def __init__(
        self, server: str, fd: int, masker: Masker, log: SessionLog, ration: OutputLimit
    ) -> None:
        self._server = server
        self._fd = fd
        self._masker = masker
        self._log = log
        self._line = b""
        self._ration = ration
        self._tail = b""
        self._thread = threading.Thread(target=self._run, name=f"stderr of {server}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream, at most this long."""
        self._thread.join(seconds)

    @property
    def last_words(self) -> str:
        """The line that tells most, masked, printable and short; empty if there is none.

        The last line that names an error, else the last that is not blank: Node.js ends with its
        version, and others with advice.
        """
        lines = [line for line in self._tail.split(b"\n") if line.strip()]
        lines = [line for line in lines if not _NAMES_LOG.search(line)] or lines
        telling = [line for line in lines if _NAMES_ERROR.match(line)]
        telling = telling or [line for line in lines if _SPEAKS_OF_ERROR.search(line)]
        best = (telling or lines or [b""])[-1]
        text = (
            printable(best.strip().decode("utf-8", "backslashreplace")).replace("\t", " ").strip()
        )
        return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}…"

    def _run(self) -> None:
        try:
            while data := self._read():
                self._take(self._masker.feed(data))
            self._take(self._masker.finish())
            if self._line:
                self._write(self._line)
            self._say(self._ration.finish())
        finally:
            os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _CHUNK)
        except OSError:
            return b""

    def _take(self, data: bytes) -> None:
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._write(self._line + whole)
            self._line = rest
        else:
            self._line += rest
        if len(self._line) > _LONGEST_LINE:
            self._write(self._line)
            self._line = b""

    def _write(self, data: bytes) -> None:
        self._tail = (self._tail + data[-_KEPT:] + b"\n")[-_KEPT:]
        if not self._log.is_open:
            return
        is_kept, note = self._ration.admit(len(data), data.count(b"\n") + 1)
        self._say(note)
        if is_kept:
            text = data.decode("utf-8", "backslashreplace")
            # The written bytes, which are more: each line has a name, and escapes are longer.
            text = text.replace("\r\n", "\n").removesuffix("\r")
            self._ration.spend(self._log.write(self._server, text))

    def _say(self, note: str) -> None:
        if note:
            self._log.write(self._server, note)


# --- hardening


_PR_SET_DUMPABLE: Final = 4


def hide_from_debuggers() -> None:
    """Prevent processes of the same user from reading our memory and environment.

    Variables removed from `os.environ` remain in `/proc/PID/environ`. Only root can read the files
    of a process that is not dumpable there, or attach to it. Linux only.
    """
    prctl(_PR_SET_DUMPABLE, 0)
