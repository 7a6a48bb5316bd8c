"""Starts a module as a fork of a process that has imported what is large: see `tests.program`.

    python -I -S start_forked.py NAME MODULE ARGUMENT...

For programs that the program under test starts. It imports nothing large itself, hands on its
standard input, output and error, and ends as the fork does.
"""

import json  # noqa: TID251  a program of its own
import os
import socket
import struct
import sys
from pathlib import Path


def main(address: str, *arguments: str) -> int:
    """Ask for the fork, and wait for its end."""
    ours, theirs = os.pipe()
    asked = json.dumps([arguments, dict(os.environ), str(Path.cwd())]).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(f"\0{address}")  # in the abstract namespace: no file is left of it
        socket.send_fds(server, [asked], [0, 1, 2, theirs])
        os.close(theirs)
        for held in (0, 1):
            os.close(held)  # an end of file shall reach whoever reads or writes the other end
        number = struct.Struct("=i")
        os.read(ours, number.size)  # the pid
        status = os.read(ours, number.size)
    return os.waitstatus_to_exitcode(number.unpack(status)[0]) if status else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
