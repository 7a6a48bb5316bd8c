"""What a client starts at each of its events: it asks the kernel and prints the answer.

    /bin/sh -c LAUNCHER PYTHON -I -S stub.py STATE CLIENT EVENT KERNEL-PYTHON [observe]

It imports only what the interpreter holds already, because every call waits for it: the whole start
takes 7 ms, and `socket` or `json` would double that. `-I -S` keeps it from reading `PYTHON*` and
packages of a hostile directory.

The kernel of a client listens on `STATE/doors/PID-START`, named after the client's process. The
message is a line `CLIENT EVENT PREFIX` and then the event; the answer ends with a NUL, which no
JSON holds, so that a torn answer is known. Whatever fails ends in the client's own form of a
denial; what the stub itself cannot see, such as a missing interpreter, its launcher turns into one.
"""

import _socket
import sys
import time
from posix import (
    POSIX_SPAWN_OPEN,
    _exit,
    environ,
    getppid,
    getuid,
    posix_spawn,
    read,
    stat,
    write,
)
from posix import close as close_file
from posix import open as open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_SAID = 3
"""The exit code that tells the launcher that the reason has been printed."""
_LEVELS = 8
"""The most processes between the client and this one."""
_START = 15.0
"""Seconds for the start of a kernel."""
_SECONDS = {"gemini": 50, "cursor": 50}
"""Seconds for an answer, ten less than the client waits; other clients wait 600."""
_GATES = (
    "PreToolUse",
    "PermissionRequest",
    "BeforeTool",
    "preToolUse",
    "beforeMCPExecution",
)
_CLAUDE = (
    '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",'
    '"permissionDecisionReason":"%s"}}\n'
)
_DENIALS = {
    "claude": _CLAUDE,
    "codex": _CLAUDE,
    "gemini": '{"decision":"deny","reason":"%s"}\n',
    "copilot": '{"permissionDecision":"deny","permissionDecisionReason":"%s"}\n',
    "opencode": '{"decision":"deny","reason":"%s"}\n',
    "cursor": '{"permission":"deny","user_message":"%s","agent_message":"%s"}\n',
}
_ASKED = (
    '{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny",'
    '"message":"%s"}}}\n'
)
_STARTS = ("SessionStart", "sessionStart")
_NEED = (
    *_GATES,
    *_STARTS,
    "UserPromptSubmit",
    "BeforeAgent",
    "beforeSubmitPrompt",
    "userPromptSubmitted",
)
"""The events for which a kernel is started. Those at the end of a turn or a session may come when
the client has gone, and a kernel without a client does not start."""


def main(state: str, client: str, event: str) -> None:
    """Ask the kernel of the client that started this process."""
    if event == "check":
        write(1, b"it starts\n")
        _exit(0)
    if state == "~":
        # The variable HOME may be a project's.
        import pwd  # noqa: PLC0415  only an administrator's hooks need it

        state = pwd.getpwuid(getuid()).pw_dir + "/.ironcurtain"
    parents = _parents()
    door, kernel = _connect(state, parents)
    if kernel is None and ((door == "" and event in _NEED) or event in _STARTS):
        _start_kernel(state, client, parents)
        end = time.monotonic() + _START
        while kernel is None and time.monotonic() < end:
            time.sleep(0.02)
            door, kernel = _connect(state, parents)
    if kernel is None:
        why = "the kernel of this session has ended" if door else "the kernel does not start"
        _refuse(client, event, why)
    kernel.settimeout(_SECONDS.get(client, 590))
    # A project may have replaced our prefix: only the client's own variables tell.
    prefix = environ.get(b"CLAUDE_CODE_SHELL_PREFIX", b"").replace(b"\n", b"")
    _send(kernel, f"{client} {event} ".encode() + prefix + b"\n")
    answer = _answer(kernel)
    if answer[-1:] != b"\0":
        _refuse(client, event, "the kernel ended before it answered")
    answer = answer[:-1]
    while answer:
        answer = answer[write(1, answer) :]
    _exit(0)


def _parents() -> list[tuple[int, str]]:
    """Return pid and start time of the processes above the launcher, the nearest first."""
    found: list[tuple[int, str]] = []
    pid = getppid()
    # In a container the client may be process 1.
    while pid > 0 and len(found) <= _LEVELS:
        file = open_file(f"/proc/{pid}/stat", 0)
        line = read(file, 4096)
        close_file(file)
        fields = line[line.rfind(b")") + 2 :].split()
        found.append((pid, fields[19].decode()))
        pid = int(fields[1])
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


def _start_kernel(state: str, client: str, parents: list[tuple[int, str]]) -> None:
    """Start a kernel for the client, detached, with nothing of this environment.

    A project may set variables for its hooks, which must not choose the policy.
    """
    python = sys.argv[4]
    words = [python, "-I", "-m", "ironcurtain_proxy", "hooks", "serve"]
    words += [client, "--parent", str(parents[0][0])]
    home = state.rsplit("/", 1)[0]
    variables = {"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    # 2: to write; an error before the log is open is lost, and the wait above ends in a denial.
    files = [(POSIX_SPAWN_OPEN, number, "/dev/null", 2, 0) for number in (0, 1, 2)]
    posix_spawn(python, words, variables, file_actions=files, setsid=True)


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


def _refuse(client: str, event: str, why: str) -> "NoReturn":
    """Deny what may be denied, in the client's form; after a call there is nothing to deny."""
    if event not in _GATES or sys.argv[5:] == ["observe"]:
        _exit(0)
    words = f"IronCurtain: {why}, so nothing was run. Tell the user to start a new session, "
    words += "or to look at ironcurtain-proxy doctor."
    form = _ASKED if event == "PermissionRequest" else _DENIALS.get(client)
    if form is None:
        write(2, (words + "\n").encode())
        _exit(_SAID)
    write(1, form.replace("%s", words).encode())
    _exit(0)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except TimeoutError:
        _refuse(sys.argv[2], sys.argv[3], "the kernel did not answer in time")
    except OSError as error:
        _refuse(sys.argv[2], sys.argv[3], f"the kernel cannot be asked ({error.strerror})")
