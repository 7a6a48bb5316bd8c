"""The sockets of a client's kernel, who speaks there, and which process is below which."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.mailbox.messages import Owner

_LEVELS: Final = 8


@contextmanager
def short_path(place: Path) -> Iterator[str]:
    """Give a short path of a socket: 107 bytes are the most, and a home may lie deeper.

    Raises:
        OSError: its directory is not there.
    """
    directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{place.name}"
    finally:
        os.close(directory)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other side of a unix socket."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid


def is_of_client(connection: socket.socket, client: Owner) -> bool:
    """Return whether the other side is of our user, and below the client."""
    pid, uid = peer_of(connection)
    return uid == os.geteuid() and is_below(pid, client)


def is_below(pid: int, client: Owner) -> bool:
    """Return whether a process is the client's, at most a few levels below it."""
    for _ in range(_LEVELS):
        fields = _fields(pid)
        if not fields:
            return False
        pid = int(fields[1])
        if pid == client.pid:
            return start_of(pid) == client.start_time
    return False


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it has none, or has ended."""
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def start_of(pid: int) -> str:
    """Return when a process started, in ticks after the start of the machine; empty if it ended."""
    fields = _fields(pid)
    return fields[19] if fields else ""


def _fields(pid: int) -> list[str]:
    with suppress(OSError):
        line = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        return line[line.rfind(")") + 1 :].split()
    return []
