"""The program that makes a network which leads nowhere, for all commands of one session.

    python -I -S closed_network.py PORT

It makes a network namespace with nothing but `lo`, in a user namespace where the user is not root,
and listens on PORT there. It sends descriptors of the namespaces and of the listener over its
standard input, a unix socket, and ends: the namespaces live as long as somebody holds them. The
proxy answers what connects to PORT, and so learns which host a command has tried to reach.

A program of its own: a process with threads cannot enter another user namespace.
"""

import array
import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_FLAGS, _UP = 0x8914, 0x41
_AT_ONCE = 128


def main(arguments: list[str]) -> int:
    """Make the network and hand it on."""
    wire = socket.socket(fileno=0)
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    flags = _NEW_NETWORK if user == 0 else _NEW_NETWORK | _NEW_USER
    try:
        _check(libc.unshare(flags))
        if user != 0:
            _write("setgroups", "deny")
            _write("uid_map", f"{user} {user} 1")
            _write("gid_map", f"{group} {group} 1")
        listener = _listen(int(arguments[0]))
        spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")]
        passed = array.array("i", [*spaces, listener.fileno()])
        wire.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    except OSError as error:
        wire.send(f"-{error.strerror}".encode())
        return 1
    return 0


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123  pathlib is slow to load
        file.write(text)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    fcntl.ioctl(listener, _SET_FLAGS, struct.pack("16sh22x", b"lo", _UP))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(_AT_ONCE)
    return listener


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
