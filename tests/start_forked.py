"""Starts a module as a fork of a process that has imported what is large: see `tests.program`.

    python -I -S start_forked.py NAME MODULE ARGUMENT...

For programs that the program under test starts. It imports nothing large itself, hands on its
standard input, output and error, and ends as the fork does.
"""

# Thousands of hooks are started by it: `socket`, `json` and `pathlib` would be 15 ms of its 25.
import _socket as socket
import marshal
import os
import struct
import sys


def main(address: str, *arguments: str) -> int:
    """Ask for the fork, and wait for its end."""
    ours, theirs = os.pipe()
    asked = marshal.dumps([[*arguments], dict(os.environ), os.getcwd()])  # noqa: PTH109  as above
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(f"\0{address}")  # in the abstract namespace: no file is left of it
    files = struct.pack("4i", 0, 1, 2, theirs)
    server.sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    server.close()
    for held in (theirs, 0, 1):
        os.close(held)  # an end of file shall reach whoever reads or writes the other end
    number = struct.Struct("=i")
    os.read(ours, number.size)  # the pid
    status = os.read(ours, number.size)
    return os.waitstatus_to_exitcode(number.unpack(status)[0]) if status else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
