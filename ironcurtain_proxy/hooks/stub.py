"""What a client starts at each of its events, and in place of a command of its shell.

    /bin/sh -c LAUNCHER PYTHON -X utf8 -I -S -c LOADS stub.py STATE CLIENT EVENT
        KERNEL-PYTHON KIND SECONDS VARIABLE DENIAL
    ~/.ironcurtain/run-claude TEXT  ──▶  PYTHON -X utf8 -I -S -c LOADS stub.py run STATE TEXT

KIND says what the event is in the words that all dialects share (`events.EventKind`), SECONDS how
long to wait, VARIABLE which of the client's variables holds its shell prefix. DENIAL is the answer
to a failure, in the client's form, or empty if nothing is denied.

The first asks the kernel about the event and prints the answer. The second asks how to run the
text; the kernel compares text and directory with the calls that it has let go, and answers once:

    N SHELL     run it as the client would have
    E STATUS    it has run in the sandbox, on our own descriptors; then what to tell the agent
    R           nothing may be run; then why

Whatever fails there runs nothing: no kernel, a torn answer, another text.

It imports only what the interpreter holds already, because every call waits for it: the whole start
takes 7 ms, and `socket` or `json` would double that. `-I -S` keeps it from reading `PYTHON*` and
packages of a hostile directory.

The kernel of a client listens on `STATE/doors/PID-START`, named after the client's process. The
message is a line `CLIENT EVENT PREFIX` and then the event; the answer ends with a NUL, which no
JSON holds, so that a torn answer is known. Commands are asked about at `STATE/doors/PID-START.run`.
What the stub itself cannot see, such as a missing
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
    execv,
    geteuid,
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
    import signal
    from typing import NoReturn
else:
    # The module with the names of the numbers takes longer to load than all the rest.
    import _signal as signal

_REFUSED = 126
_RELAYED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
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
    if b"LD_SHOW_AUXV" in environ:
        # What stands before our answer would make it none: the launcher denies without one.
        _exit(1)
    if state == "~":
        # The variable HOME may be a project's.
        import pwd  # noqa: PLC0415  only an administrator's hooks need it

        state = pwd.getpwuid(getuid()).pw_dir + "/.ironcurtain"
    # The launcher is the nearest.
    parents = _parents(client)[1:]
    door, kernel = _connect(state, parents)
    if kernel is None and ((door == "" and kind in _NEED) or kind == "start"):
        door, kernel = _start_kernel(python, state, client, parents)
    if kernel is None:
        _refuse("the kernel of this session has ended" if door else "the kernel does not start")
    kernel.settimeout(int(seconds))
    # A project may have replaced our prefix: only the client's own variables tell.
    prefix = environ.get(variable.encode(), b"").replace(b"\n", b"")
    _send(kernel, f"{client} {event} ".encode() + prefix + b"\n")
    answer = _answer(kernel)
    if answer[-1:] != b"\0":
        _refuse("the kernel gave no answer, or half of one")
    answer = answer[:-1]
    while answer:
        answer = answer[write(1, answer) :]
    _exit(0)


def _parents(client: str = "") -> list[tuple[int, str]]:
    """Return pid and start time of the processes above this one, the nearest first.

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
        is_client = bool(client) and len(found) > 1 and b"(%b)" % client.encode() in line
        pid = 0 if is_client else int(fields[1])
    return found


def _connect(
    state: str, parents: list[tuple[int, str]], ending: str = ""
) -> tuple[str, _socket.socket | None]:
    """Return the door that is there, and its connection; an empty text and None if none is."""
    try:
        directory = open_file(f"{state}/doors", 0)
    except OSError:
        return "", None
    try:
        # The path of a socket has 107 bytes at most, and a home may lie deeper.
        return _connect_in(f"/proc/self/fd/{directory}", parents, ending)
    finally:
        close_file(directory)


def _connect_in(
    doors: str, parents: list[tuple[int, str]], ending: str
) -> tuple[str, _socket.socket | None]:
    for pid, start in parents:
        door = f"{doors}/{pid}-{start}{ending}"
        try:
            stat(door)
        except OSError:
            continue
        kernel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            kernel.connect(door)
            peer = kernel.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        except OSError:
            return door, None
        # Where others may write there, one may have laid a socket of his own.
        is_ours = peer[4:8] == geteuid().to_bytes(4, sys.byteorder)
        return door, kernel if is_ours else None
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
    kernel.sendall(first)
    while block := read(0, 1 << 16):
        kernel.sendall(block)
    kernel.shutdown(_socket.SHUT_WR)


def _answer(kernel: _socket.socket) -> bytes:
    answer = b""
    while block := kernel.recv(1 << 16):
        answer += block
    return answer


def _refuse(why: str) -> "NoReturn":
    """Deny what may be denied: after a call there is nothing to deny."""
    words = f"IronCurtain: {why}, so nothing was run. Tell the user to start a new session, "
    words += "or to look at ironcurtain-proxy doctor."
    denial = sys.argv[8].replace("%s", words)
    if denial:
        write(1, (denial + "\n").encode())
    _exit(0)


# --- a command of the client's shell


def run(state: str, text: str) -> "NoReturn":
    """Ask the kernel, and run the text or take over how it ended."""
    _, found = _connect(state, _parents(), ".run")
    kernel = found or _do_without(text)
    for number in _RELAYED:
        # The kernel passes it on to the command, whose end is ours.
        signal.signal(number, lambda number, _frame: kernel.send(bytes((number,))))
    _send_command(kernel, text)
    head, _, words = _answer(kernel).partition(b"\n")
    said = words[:-1].decode("utf-8", "replace")
    if words[-1:] != b"\0":
        # It may have been about to bring in what the command changed.
        _say(
            "IronCurtain: the kernel ended before it said how the command ended. Look at what was "
            "done before you make the call again."
        )
        _exit(_REFUSED)
    if head[:1] == b"N":
        _execute(head[2:], text)
    if head[:1] == b"E":
        _say(said)
        _exit(int(head[2:]))
    _refuse_command(said)


def _do_without(text: str) -> "NoReturn":
    """Run what no agent has run: the client marks what one has, or the words are such.

    Servers and other people's hooks start by this prefix, too, and before the first hook of ours
    has made a kernel.
    """
    is_marked = environ.get(b"AI_AGENT", b"").endswith(b"_agent")
    if is_marked or ("eval " in text and "pwd -P >| " in text):
        _refuse_command("there is no kernel for this session: its hooks are off, or it has ended")
    _execute(b"/bin/bash", text)


def _execute(shell: bytes, text: str) -> "NoReturn":
    """Run the text as the client would have."""
    # Python ignores the last two, and what ignores a signal hands that on.
    for number in (*_RELAYED, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    execv(shell, [shell, b"-c", text.encode("utf-8", "surrogateescape")])


def _send_command(kernel: _socket.socket, text: str) -> None:
    """Send the text and the environment, and the three descriptors with the first byte."""
    variables = [name + b"=" + value for name, value in environ.items()]
    body = b"\0".join([text.encode("utf-8", "surrogateescape"), *variables])
    message = len(body).to_bytes(4, "little") + body
    three = b"".join([number.to_bytes(4, sys.byteorder) for number in (0, 1, 2)])
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, three)]
    sent = kernel.sendmsg([message], rights)
    if sent < len(message):
        kernel.sendall(message[sent:])


def _say(words: str) -> None:
    if words:
        write(2, (words + "\n").encode("utf-8", "replace"))


def _refuse_command(why: str) -> "NoReturn":
    _say(f"IronCurtain: {why}. Nothing was run.")
    _exit(_REFUSED)


if __name__ == "__main__":
    is_command = sys.argv[1] == "run"
    try:
        if is_command:
            run(*sys.argv[2:4])
        main()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "what it says cannot be read"
        if is_command:
            _refuse_command(f"the kernel cannot be asked ({why})")
        if isinstance(error, TimeoutError):
            _refuse("the kernel did not answer in time")
        if isinstance(error, ConnectionError):
            # It was killed, and its socket still took the connection.
            _refuse("the kernel of this session has ended")
        _refuse(f"the kernel cannot be asked ({why})")
