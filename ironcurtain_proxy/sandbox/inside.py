"""The last program before the server in its sandbox: sets limits, and becomes the server.

    python -I -S inside.py PROCESSES FILES CALLS DIRECTORY ... -- COMMAND [ARGUMENT ...]

srt hides a directory behind an empty one in memory, which the server owns. A file that a server
wrote there seemed to be kept, and was lost with the server. This program closes each hidden
DIRECTORY for writing, so that a write fails, and the error can name the sandbox as its cause. Open
directories inside stay open. This is no barrier: the server owns the directory and may open it
again, and what it then writes is lost as before.

PROCESSES bounds the processes and threads of the sandbox, so that a command which starts ever more
of them fails, and the machine goes on. Where memory runs out, the kernel ends processes of the
sandbox first. The kernel counts no processes of root. FILES bounds the open files of each process.

CALLS is a seccomp filter in hexadecimal digits, or `-`. srt has put a filter over the whole sandbox
before. This one also refuses the server calls that srt's relays need.

This is a program of its own, which runs once for each server. It imports next to nothing, and
nothing of this package.
"""

import os
import signal
import sys

_IN_MEMORY = " - tmpfs "
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38
_STEP_BYTES = 8
_CANNOT_RUN, _NOT_FOUND = 126, 127
_ALONE = b"IRONCURTAIN_INSIDE_"
"""The prefix of variables that srt, which is a program of Node.js as well, is not to heed."""
_ENDED_FIRST = 500
"""Half of the memory of the machine is added to what a process seems to use."""


def main(arguments: list[str]) -> int:
    """Close the directories and become the command; comes back only if that cannot be."""
    end = arguments.index("--")
    bound(*map(int, arguments[:2]))
    close(arguments[3:end])
    if os.geteuid() == 0:
        _heed_modes()
    if arguments[2] != "-" and not _refuse(bytes.fromhex(arguments[2])):
        sys.stderr.write(f"{arguments[end + 1]}: the kernel takes no seccomp filter here\n")
        return _CANNOT_RUN
    # Python ignores these, and what ignores a signal hands that on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    command = arguments[end + 1 :]
    try:
        os.execvpe(command[0], command, _environment())  # noqa: S606  this is what it is for
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return _NOT_FOUND


def bound(processes: int, files: int) -> None:
    """Limit the processes of the sandbox and their files, for good; never raises."""
    import resource  # noqa: PLC0415  used in one place

    for what, most in ((resource.RLIMIT_NPROC, processes), (resource.RLIMIT_NOFILE, files)):
        try:
            soft, hard = [
                most if one == resource.RLIM_INFINITY else min(most, one)
                for one in resource.getrlimit(what)
            ]
            # More files than are usual is for each program to ask for (`select` knows 1,024).
            resource.setrlimit(what, (soft if what == resource.RLIMIT_NOFILE else hard, hard))
        except (OSError, ValueError):
            pass
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123  as below
            if int(file.read()) < _ENDED_FIRST:
                file.seek(0)
                file.write(str(_ENDED_FIRST))
    except (OSError, ValueError):
        pass


def close(directories: list[str]) -> None:
    """Take away the right to write into those that are hidden; never raises."""
    hidden = _mounted_in_memory()
    for directory in directories:
        try:
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            device = os.fstat(opened).st_dev
            # Where srt has hidden nothing, or something lies over it, the real one is not touched.
            if hidden.get(directory) == f"{os.major(device)}:{os.minor(device)}":
                os.fchmod(opened, 0o500)
        except OSError:
            pass
        finally:
            os.close(opened)


def _mounted_in_memory() -> dict[str, str]:
    """Return the device of each tmpfs, by the path of its mount."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  pathlib is slow to load
            fields = [line.split(" ") for line in file.read().splitlines() if _IN_MEMORY in line]
    except OSError:
        return {}
    return {_unescaped(words[4]): words[2] for words in fields}


def _unescaped(path: str) -> str:
    """Return a path in which blanks, tabs, line feeds and backslashes were octal numbers."""
    for character in " \t\n\\":
        path = path.replace(f"\\{ord(character):03o}", character)
    return path


def _heed_modes() -> None:
    """Drop root's right to pass file modes, for the program that follows and its children."""
    import ctypes  # noqa: PLC0415  used in one place

    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


def _refuse(program: bytes) -> bool:
    """Add a filter of system calls, for good; whether the kernel took it."""
    import ctypes  # noqa: PLC0415  slow to load
    import struct  # noqa: PLC0415  used in one place

    prctl = ctypes.CDLL(None).prctl
    steps = ctypes.create_string_buffer(program, len(program))
    # `struct sock_fprog`: the number of steps, and where they lie.
    header = struct.pack("@HP", len(program) // _STEP_BYTES, ctypes.addressof(steps))
    # Without the first, only root may add a filter.
    failed = prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(
        _PR_SET_SECCOMP, _MODE_FILTER, header, 0, 0
    )
    return not failed


def _environment() -> dict[bytes, bytes]:
    """Return the environment as received, with the variables that are meant for the server alone.

    Python sets LC_CTYPE where there is no locale (PEP 538).
    """
    given = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  as above
            names = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
    except OSError:
        names = {*given}
    kept = {name: value for name, value in given.items() if name in names}
    alone = [name for name in kept if name.startswith(_ALONE)]
    kept.update([(name[len(_ALONE) :], kept.pop(name)) for name in alone])
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
