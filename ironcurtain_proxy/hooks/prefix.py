"""What a client starts in place of a command of its shell: it asks the kernel how to run it.

    ~/.ironcurtain/run-claude TEXT  ──▶  PYTHON -I -S prefix.py STATE TEXT

The kernel compares the text and the directory with the calls that it has let go, and answers once:

    N SHELL     run it as the client would have
    E STATUS    it has run in the sandbox, on our own descriptors; then what to tell the agent
    R           nothing may be run; then why

The kernel listens on `STATE/doors/PID-START.run`. Like `stub`, this imports only what the
interpreter holds already. Whatever fails runs nothing: no kernel, a torn answer, another text.
"""

import _socket
import sys
from posix import _exit, environ, execv, getppid, read, write
from posix import close as close_file
from posix import open as open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn
else:
    # The module with the names of the numbers takes longer to load than all the rest.
    import _signal as signal

_LEVELS = 8
"""The most processes between the client and this one."""
_REFUSED = 126
_RELAYED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def main(state: str, text: str) -> "NoReturn":
    """Ask the kernel, and run the text or take over how it ended."""
    kernel = _connect(state) or _do_without(text)
    for number in _RELAYED:
        # The kernel passes it on to the command, whose end is ours.
        signal.signal(number, lambda number, _frame: kernel.send(bytes((number,))))
    _send(kernel, text)
    answer, block = b"", kernel.recv(1 << 16)
    while block:
        answer += block
        block = kernel.recv(1 << 16)
    head, _, words = answer.partition(b"\n")
    said = words[:-1].decode("utf-8", "replace")
    if words[-1:] != b"\0":
        # It may have been about to bring in what the command changed.
        _say(
            "IronCurtain: the kernel ended before it said how the command ended. Look at what was "
            "done before you make the call again."
        )
        _exit(_REFUSED)
    if head[:1] == b"N":
        _run(head[2:], text)
    if head[:1] == b"E":
        _say(said)
        _exit(int(head[2:]))
    _refuse(said)


def _do_without(text: str) -> "NoReturn":
    """Run what no agent has run: the client marks what one has, or the words are such.

    Servers and other people's hooks start by this prefix, too, and before the first hook of ours
    has made a kernel.
    """
    is_marked = environ.get(b"AI_AGENT", b"").endswith(b"_agent")
    if is_marked or ("eval " in text and "pwd -P >| " in text):
        _refuse("there is no kernel for this session: its hooks are off, or it has ended")
    _run(b"/bin/bash", text)


def _run(shell: bytes, text: str) -> "NoReturn":
    """Run the text as the client would have."""
    for number in _RELAYED:
        signal.signal(number, signal.SIG_DFL)
    # Python ignores these, and what ignores a signal hands that on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    execv(shell, [shell, b"-c", text.encode("utf-8", "surrogateescape")])


def _connect(state: str) -> _socket.socket | None:
    """Return the connection to the kernel of the client that started this process."""
    # The path of a socket has 107 bytes at most, and a home may lie deeper.
    try:
        doors = f"/proc/self/fd/{open_file(state + '/doors', 0)}"
    except FileNotFoundError:
        return None
    pid = getppid()
    for _ in range(_LEVELS):
        if pid <= 0:
            break
        file = open_file(f"/proc/{pid}/stat", 0)
        line = read(file, 4096)
        close_file(file)
        fields = line[line.rfind(b")") + 2 :].split()
        kernel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            kernel.connect(f"{doors}/{pid}-{fields[19].decode()}.run")
        except OSError:
            kernel.close()
            pid = int(fields[1])
            continue
        return kernel
    return None


def _send(kernel: _socket.socket, text: str) -> None:
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


def _refuse(why: str) -> "NoReturn":
    _say(f"IronCurtain: {why}. Nothing was run.")
    _exit(_REFUSED)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except OSError as error:
        _refuse(f"the kernel cannot be asked ({error.strerror})")
    except ValueError:
        _refuse("the kernel's answer cannot be read")
