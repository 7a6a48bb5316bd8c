"""What a client starts at each of its events: it asks the kernel and prints the answer.

    /bin/sh -c LAUNCHER PYTHON -I -S stub.py STATE CLIENT EVENT KERNEL-PYTHON
        KIND SECONDS VARIABLE DENIAL

KIND says what the event is in the words that all dialects share (`events.EventKind`), SECONDS how
long to wait, VARIABLE which of the client's variables holds its shell prefix. DENIAL is the answer
to a failure, in the client's form, or empty if nothing is denied.

It imports only what the interpreter holds already, because every call waits for it: the whole start
takes 7 ms, and `socket` or `json` would double that. `-I -S` keeps it from reading `PYTHON*` and
packages of a hostile directory.

The kernel of a client listens on `STATE/doors/PID-START`, named after the client's process. The
message is a line `CLIENT EVENT PREFIX` and then the event; the answer ends with a NUL, which no
JSON holds, so that a torn answer is known. What the stub itself cannot see, such as a missing
interpreter, its launcher turns into a denial.
"""

import _socket
import sys
import time
from posix import (
    POSIX_SPAWN_OPEN,
    WNOHANG,
    _exit,
    environ,
    getppid,
    getuid,
    posix_spawn,
    read,
    stat,
    waitpid,
    write,
)
from posix import close as close_file
from posix import open as open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_LEVELS = 8
"""The most processes between the client and this one."""
_START = 15.0
"""Seconds for the start of a kernel."""
_NEED = ("before", "server", "question", "start", "prompt")
"""The events for which a kernel is started. Those at the end of a turn or a session may come when
the client has gone, and a kernel without a client does not start."""


def main() -> None:
    """Ask the kernel of the client that started this process, and print its answer."""
    state, client, event, python, kind, seconds, variable, _ = sys.argv[1:]
    if kind == "check":
        write(1, b"it starts\n")
        _exit(0)
    if state == "~":
        # The variable HOME may be a project's.
        import pwd  # noqa: PLC0415  only an administrator's hooks need it

        state = pwd.getpwuid(getuid()).pw_dir + "/.ironcurtain"
    parents = _parents(client)
    door, kernel = _connect(state, parents)
    if kernel is None and ((door == "" and kind in _NEED) or kind == "start"):
        door, kernel = _start_kernel(python, state, client, parents)
    if kernel is None:
        why = "the kernel of this session has ended" if door else "the kernel does not start"
        _refuse(why)
    kernel.settimeout(int(seconds))
    # A project may have replaced our prefix: only the client's own variables tell.
    prefix = environ.get(variable.encode(), b"").replace(b"\n", b"")
    _send(kernel, f"{client} {event} ".encode() + prefix + b"\n")
    answer = _answer(kernel)
    if answer[-1:] != b"\0":
        _refuse("the kernel ended before it answered")
    answer = answer[:-1]
    while answer:
        answer = answer[write(1, answer) :]
    _exit(0)


def _parents(client: str) -> list[tuple[int, str]]:
    """Return pid and start time of the processes above the launcher, the nearest first.

    Above a client there may be another one that let it be started, whose session is another.
    """
    found: list[tuple[int, str]] = []
    pid = getppid()
    # In a container the client may be process 1.
    while pid > 0 and len(found) <= _LEVELS:
        file = open_file(f"/proc/{pid}/stat", 0)
        line = read(file, 4096)
        close_file(file)
        fields = line[line.rfind(b")") + 2 :].split()
        found.append((pid, fields[19].decode()))
        is_client = len(found) > 1 and b"(%b)" % client.encode() in line
        pid = 0 if is_client else int(fields[1])
    return found[1:]


def _connect(state: str, parents: list[tuple[int, str]]) -> tuple[str, _socket.socket | None]:
    """Return the door that is there, and its connection; an empty text and None if none is."""
    try:
        directory = open_file(f"{state}/doors", 0)
    except OSError:
        return "", None
    try:
        # The path of a socket has 107 bytes at most, and a home may lie deeper.
        return _connect_in(f"/proc/self/fd/{directory}", parents)
    finally:
        close_file(directory)


def _connect_in(doors: str, parents: list[tuple[int, str]]) -> tuple[str, _socket.socket | None]:
    for pid, start in parents:
        door = f"{doors}/{pid}-{start}"
        try:
            stat(door)
        except OSError:
            continue
        kernel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            kernel.connect(door)
        except OSError:
            return door, None
        return door, kernel
    return "", None


def _start_kernel(
    python: str, state: str, client: str, parents: list[tuple[int, str]]
) -> tuple[str, _socket.socket | None]:
    """Start a kernel for the client, detached, with nothing of this environment, and connect.

    A project may set variables for its hooks, which must not choose the policy.
    """
    words = [python, "-I", "-m", "ironcurtain_proxy", "hooks", "serve"]
    words += [client, "--parent", str(parents[0][0])]
    home = state.rsplit("/", 1)[0]
    variables = {"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    # 2: to write; an error before the log is open is lost, and the wait above ends in a denial.
    files = [(POSIX_SPAWN_OPEN, number, "/dev/null", 2, 0) for number in (0, 1, 2)]
    started, status = posix_spawn(python, words, variables, file_actions=files, setsid=True), 0
    door, kernel, end = "", None, time.monotonic() + _START
    while kernel is None and not status and time.monotonic() < end:
        time.sleep(0.02)
        door, kernel = _connect(state, parents)
        # It ends with 0 where another one has been started, whose socket is there by then.
        ended, status = waitpid(started, WNOHANG) if started else (0, 0)
        started = 0 if ended else started
    return door, kernel


def _send(kernel: _socket.socket, first: bytes) -> None:
    block = first
    while block:
        kernel.sendall(block)
        block = read(0, 1 << 16)
    kernel.shutdown(_socket.SHUT_WR)


def _answer(kernel: _socket.socket) -> bytes:
    answer, block = b"", kernel.recv(1 << 16)
    while block:
        answer += block
        block = kernel.recv(1 << 16)
    return answer


def _refuse(why: str) -> "NoReturn":
    """Deny what may be denied: after a call there is nothing to deny."""
    words = f"IronCurtain: {why}, so nothing was run. Tell the user to start a new session, "
    words += "or to look at ironcurtain-proxy doctor."
    denial = sys.argv[8].replace("%s", words)
    if denial:
        write(1, (denial + "\n").encode())
    _exit(0)


if __name__ == "__main__":
    try:
        main()
    except TimeoutError:
        _refuse("the kernel did not answer in time")
    except ConnectionError:
        # It was killed, and its socket still took the connection.
        _refuse("the kernel of this session has ended")
    except OSError as error:
        _refuse(f"the kernel cannot be asked ({error.strerror})")
