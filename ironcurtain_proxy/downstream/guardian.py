"""The process between the proxy and one server, which leaves nothing of the server running.

    python -I -S -c PROGRAM guardian.py LIFELINE KEEP_LC_CTYPE[:FILES] DIRECTORY -- COMMAND ...

A separate program, one for each server. It imports nothing of this package, and does not touch the
server's messages. PROGRAM is `PROGRAM` below.

The guardian starts the server and waits for one of four things: the server ends, the proxy ends,
it is told to end (SIGTERM), or the network of its sandbox ends. Then it kills whatever the server
has started, also what has left its session or lost its parent, removes DIRECTORY, if it is not
empty text, and ends with the server's exit status.

FILES is how many files the server may have open, where the proxy itself may have more.

DIRECTORY holds the sockets of the sandbox's network. A sandbox that is interrupted, or whose bridge
(the `socat` that listens there) was killed, runs on without a network, so the guardian ends it.
While the guardian lives, it holds a lock on DIRECTORY: other proxies see that it is in use.

The end of the proxy shows as end-of-file on LIFELINE, a pipe whose only write end the proxy holds,
however the proxy died. A parent-death signal would follow the thread that started the process, not
the process. The server, whose parent has one thread, gets such a signal, so that it dies with its
guardian. A sandbox gets SIGTERM instead, to end the processes that it started.
"""

# Every import delays every server: contextlib alone would be 4 ms of 15, and `signal` is 3 ms for
# the names of its numbers, which are all that it adds to `_signal`.
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

PROGRAM = (
    "import sys; from importlib.machinery import SourceFileLoader; del sys.argv[0]; "
    "exec(SourceFileLoader('__main__', sys.argv[0]).get_code('__main__'))"
)
"""Runs the file of its first argument, compiled once for all servers: 4 ms of each start."""

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""

_KILLING = 30.0
"""Seconds to wait for processes that survive SIGKILL."""

_IN_CREATE = 0x100
_IN_DELETE = 0x200
_PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main(arguments: list[str]) -> int:
    """Guard the server described by the arguments; the exit status is the server's."""
    lifeline = int(arguments[0])
    keep, _, files = arguments[1].partition(":")
    if files:
        _limit_files(int(files))
    if keep == "0":
        # Python sets it when there is no locale (PEP 538); it is not meant for the server.
        os.environ.pop("LC_CTYPE", None)
    os.set_inheritable(lifeline, False)  # noqa: FBT003  the function takes no keyword
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup = _listen_to_signals()
    changes = _watch(arguments[2])
    _lock(arguments[2])
    server = _start(arguments[4:], signal.SIGTERM if arguments[2] else signal.SIGKILL)
    _let_go_of_stdio()
    status = _wait(server, lifeline, wakeup, changes)
    if status is None:
        _signal_all(server, signal.SIGTERM)
        status = _reap(server, time.monotonic() + GRACE)
    code = _end_all(server, status)
    _remove(arguments[2])
    return code


def _limit_files(soft: int) -> None:
    import resource  # noqa: PLC0415  seldom needed

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _remove(directory: str) -> None:
    """Remove the directory of the ended server."""
    if directory:
        import shutil  # noqa: PLC0415  the server has not waited for it

        shutil.rmtree(directory, ignore_errors=True)


def prctl(option: int, value: int) -> None:
    """Set one property of this process, on Linux."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  a third of the start-up time

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _watch(directory: str) -> int:
    """Return a descriptor that reports new and removed files of a directory.

    -1 if there is none.
    """
    if not directory or sys.platform != "linux":
        return -1
    import ctypes  # noqa: PLC0415  as above

    libc = ctypes.CDLL(None)
    inotify = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if inotify >= 0:
        libc.inotify_add_watch(inotify, os.fsencode(directory), _IN_CREATE | _IN_DELETE)
    return inotify


def _lock(directory: str) -> None:
    """Lock a directory, if there is one, for as long as this process lives."""
    if directory:
        import fcntl  # noqa: PLC0415  only confined servers wait for it

        try:
            fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            pass


def _listen_to_signals() -> int:
    """Turn SIGCHLD and SIGTERM into bytes on a pipe; ignore what a terminal may send."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for caught in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(caught, lambda _number, _frame: None)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    return read


def _start(argv: list[str], when_bereaved: int) -> int:
    guardian = os.getpid()
    server = os.fork()
    if server:
        return server
    try:
        os.setsid()
        # A shell's background jobs, of which the proxy may be one, ignore SIGINT and SIGQUIT.
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        prctl(_PR_SET_PDEATHSIG, when_bereaved)
        if os.getppid() == guardian:
            os.execvp(argv[0], argv)  # noqa: S606  an argument list, no shell
    except FileNotFoundError:
        os._exit(127)
    except OSError:
        os._exit(126)
    finally:
        os._exit(125)


def _let_go_of_stdio() -> None:
    """Close our copies of the server's pipes, so that the proxy sees their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def _wait(server: int, lifeline: int, wakeup: int, changes: int) -> int | None:
    """Wait for the server's exit status; None if the server must be ended."""
    poll = select.poll()
    # A negative descriptor would be refused.
    for fd in {lifeline, wakeup, changes} - {-1}:
        poll.register(fd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if lifeline in ready:
            return None
        has_ended = not ready <= {wakeup, changes}
        if has_ended or (changes in ready and _has_lost_socket(changes, server, poll)):
            # Usually because it is about to end.
            return _reap(server, time.monotonic() + GRACE)
        if wakeup not in ready:
            continue
        signals = os.read(wakeup, 4096)
        status = _reap(server, 0.0)
        if status is not None or signal.SIGTERM in signals:
            return status


def _has_lost_socket(changes: int, server: int, poll: select.poll) -> bool:
    """Return whether a socket was removed. Also begins to watch the listener of a new socket."""
    events = os.read(changes, 65536)
    while events:
        # Four numbers of 32 bits: descriptor, mask, cookie, the length of the name that follows.
        what, length = [int.from_bytes(events[at : at + 4], sys.byteorder) for at in (4, 12)]
        name, events = events[16 : 16 + length].rstrip(b"\0"), events[16 + length :]
        if name.endswith(b".sock"):
            if what & _IN_DELETE:
                return True
            for bridge in _bridges(server):
                poll.register(bridge, select.POLLIN)
    return False


def _bridges(sandbox: int) -> list[int]:
    """Return descriptors that report the end of a sandbox's bridge."""
    found = []
    for pid in children().get(sandbox, []):
        try:
            with open(f"/proc/{pid}/comm", "rb") as name:  # noqa: PTH123  no pathlib
                if name.read() == b"socat\n":
                    found.append(os.pidfd_open(pid))
        except OSError:
            pass
    return found


def _reap(server: int, deadline: float) -> int | None:
    """Collect ended processes up to the server; None if the deadline comes first."""
    while True:
        status, _ = _collect(server)
        if status is not None or time.monotonic() >= deadline:
            return status
        time.sleep(0.01)


def _end_all(server: int, status: int | None) -> int:
    """Kill all descendants. Orphaned ones become our children, so none escapes."""
    deadline = time.monotonic() + _KILLING
    reaped, alive = _collect(server)
    status = reaped if status is None else status
    # On Linux, orphans have become our children: without a child there is no descendant.
    alive = alive or sys.platform != "linux"
    while alive and time.monotonic() < deadline:
        _signal_all(server, signal.SIGKILL)
        reaped, alive = _collect(server)
        status = reaped if status is None else status
        time.sleep(0.002 if alive else 0)
    if status is None:
        return 128 + signal.SIGKILL
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _collect(server: int) -> tuple[int | None, bool]:
    """Collect ended processes. Returns the server's status, if it ended, and whether any live."""
    status = None
    try:
        while True:
            pid, reaped = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return status, True
            if pid == server:
                status = reaped
    except ChildProcessError:
        return status, False


def _signal_all(server: int, number: int) -> None:
    for pid in descendants(os.getpid()) if sys.platform == "linux" else [-server]:
        try:  # noqa: SIM105  contextlib, see above
            os.kill(pid, number)
        except OSError:
            pass


def descendants(ancestor: int) -> list[int]:
    """Return all descendants of a process, the nearest first. Linux only.

    Zombies are included: a running process whose first thread has ended looks the same.
    """
    families = children()
    found = [ancestor]
    for pid in found:
        found.extend(families.get(pid, ()))
    return found[1:]


def children() -> dict[int, list[int]]:
    """Return the children of every process. Linux only."""
    families: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  no pathlib
        if name.isdigit():
            families.setdefault(_parent(name), []).append(int(name))
    return families


def _parent(pid: str) -> int:
    """Return the parent of a process; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  no pathlib
            # "PID (COMMAND) STATE PARENT ...", where the command may hold anything.
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    # At once: to free what the kernel frees anyway takes 1 ms, for which the proxy would wait.
    os._exit(main(sys.argv[1:]))
