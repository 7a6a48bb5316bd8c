"""The program that makes a view, runs a command in it, and leaves nothing of it running.

    python -I -S mounting.py NAMESPACES LIMITS STATUS [TARGET UPPER WORK ...] -- COMMAND ...
    python -I -S mounting.py serve SOCKET

It leaves the mount namespace of its parent, mounts an overlay over each TARGET, whose lower layer
is the directory that it covers, and starts COMMAND. When COMMAND ends, or on SIGTERM, it kills all
that is left of it, also what has lost its parent, and only then writes the exit status to the
descriptor STATUS. Where nothing is written there, the view did not come to a proper end.

NAMESPACES is `-`, or `USER,NET`: descriptors of namespaces that are entered first, either of them
`-`. An ordinary user gets a user namespace of its own where none is given, in which every user and
group but its own stays unknown. LIMITS is `-`, or `PROCESSES,FILES`: how many processes and
threads, and how many open files of each, the command may have.

The second form stays, and forks for each command that it is told of (`forking` tells it): to start
an interpreter takes longer than all that it does here. Its end is the end of all its commands.

This is a program of its own. It imports next to nothing, and nothing of this package.
"""

import ctypes
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # The module with the names of the numbers takes longer to load than all the rest.
    import _signal as signal

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _SLAVE = 0x4000, 0x80000
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEATH_SIGNAL, _SUBREAPER = 1, 36
_LAYER = 3
"""The words of one overlay in the arguments."""
_ENDED_FIRST = b"500"
# A view that is not `volatile` waits for the disk of all others when it ends, and at each file that
# is written to for the first time. A commit waits for what it brings in.
OPTIONS = "userxattr,index=off,metacopy=off,redirect_dir=nofollow,xino=off,volatile"
"""Options that are read back: each entry of the upper directory stands for itself alone."""
_FAILED = 125
_HEAD = 8
"""The bytes of a request's length."""
_MOST_GIVEN = 16
_PAUSE = 0.002
_STDERR = 2


def main(arguments: list[str]) -> int:
    """Make the view and run the command. Returns its exit status."""
    end, parent = arguments.index("--"), os.getppid()
    layers, command = arguments[3:end], arguments[end + 1 :]
    # A copy that the command does not inherit: it could write there as well.
    status = os.dup(int(arguments[2]))
    if int(arguments[2]) > _STDERR:
        os.close(int(arguments[2]))
    libc = ctypes.CDLL(None, use_errno=True)
    doing = "namespace"
    try:
        _enter(libc, arguments[0])
        _check(libc.mount(None, b"/", None, _RECURSIVE | _SLAVE, None))
        for start in range(0, len(layers), _LAYER):
            doing = f"overlay over {layers[start]}"
            _mount(libc, *layers[start : start + _LAYER])
        # A working directory below the target would be the one that the overlay covers.
        os.chdir(layers[0] if layers else "/")
    except OSError as error:
        os.write(2, f"no view: {doing}: {error.strerror}\n".encode())
        return _FAILED
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return _FAILED  # whom it was for has ended meanwhile
    code = _run(libc, command, arguments[1])
    os.write(status, b"%d" % code)
    return code


def serve(number: int) -> int:
    """Fork for each request until the socket is closed."""
    import socket  # noqa: PLC0415  a single command does not need it

    with socket.socket(fileno=number) as requests:
        while True:
            first, given, _, _ = socket.recv_fds(requests, _HEAD, _MOST_GIVEN)
            if len(first) < _HEAD:
                return 0
            # Those that have ended meanwhile.
            while _reap():
                pass
            length = int.from_bytes(first, "big")
            content = bytearray()
            while len(content) < length:
                part = requests.recv(min(length - len(content), 1 << 20))
                if not part:
                    return 0
                content += part
            child = os.fork()
            if child == 0:
                try:
                    requests.close()
                    os._exit(main(_prepare(bytes(content), given)))
                finally:
                    os._exit(_FAILED)
            for one in given:
                os.close(one)
            # Nobody else waits for the child: its number is its own until then.
            ended = os.pidfd_open(child)
            socket.send_fds(requests, [b"%d" % child], [ended])
            os.close(ended)


def _reap() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _prepare(content: bytes, given: list[int]) -> list[str]:
    """Become the process that a request describes. Returns the arguments of `main`."""
    import json  # noqa: PLC0415, TID251  the library of our own is not imported here

    said = json.loads(content.decode("ascii"))
    os.setsid()
    # To where none of the wanted numbers is, and then to these: they stand in the arguments.
    moved = [os.dup(one) for one in given]
    aside = max([*moved, *said["numbers"]]) + 1
    apart = [os.dup2(one, aside + place) for place, one in enumerate(moved)]
    for one in (*given, *moved):
        os.close(one)
    for one, number in zip(apart, said["numbers"], strict=True):
        os.dup2(one, number)
        os.close(one)
    os.chdir(os.fsencode(said["directory"]))
    os.environ.clear()
    os.environ.update(said["environment"])
    words: list[str] = said["words"]
    return words


def _enter(libc: ctypes.CDLL, given: str) -> None:
    user, _, network = given.partition(",")
    own_user, own_group = os.geteuid(), os.getegid()
    if user.isdigit():
        _check(libc.setns(int(user), _NEW_USER))
    elif own_user != 0:
        _check(libc.unshare(_NEW_USER))
        _write("setgroups", b"deny")
        _write("uid_map", b"%d %d 1" % (own_user, own_user))
        _write("gid_map", b"%d %d 1" % (own_group, own_group))
    if network.isdigit():
        _check(libc.setns(int(network), 0))
    _check(libc.unshare(_NEW_MOUNTS))
    for number in (user, network):
        if number.isdigit():
            # The command would inherit them.
            os.close(int(number))


def _mount(libc: ctypes.CDLL, target: str, upper: str, work: str) -> None:
    # By descriptors: a path in the options ends at a comma, and another directory could come to
    # stand under the same name.
    opened = [os.open(path, _DIRECTORY) for path in (target, upper, work)]
    low, up, scratch = [f"/proc/self/fd/{number}" for number in opened]
    options = f"lowerdir={low},upperdir={up},workdir={scratch},{OPTIONS}"
    _check(libc.mount(b"overlay", low.encode(), b"overlay", 0, options.encode()))
    for number in opened:
        os.close(number)


def _run(libc: ctypes.CDLL, command: list[str], limits: str) -> int:
    """Run the command, and end all that it has started."""
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            # Python ignores these, and what ignores a signal hands that on.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            _bound(limits)
            if os.getppid() == ours:
                os.execvp(command[0], command)  # noqa: S606  an argument list, no shell
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(_FAILED)
    # A signal before this line ends us, and the command with us: none finds nothing to kill.
    signal.signal(signal.SIGTERM, lambda _number, _frame: _kill_children())
    # The command holds these, and their end is the end of its output.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # What is left are the first processes of namespaces, which take all others with them.
    while _kill_children():
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        time.sleep(_PAUSE)
    return code if code >= 0 else 128 - code


def _kill_children() -> bool:
    """Kill all children. Return whether there were any."""
    with open("/proc/self/task/%d/children" % os.getpid(), "rb") as file:  # noqa: PTH123, UP031  as above
        found = file.read().split()
    for pid in found:
        try:  # noqa: SIM105  contextlib is slow to load
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
    return bool(found)


def _bound(given: str) -> None:
    """Limit the command. Where memory runs out, the kernel ends its processes first."""
    if given == "-":
        return
    import resource  # noqa: PLC0415  used in one place

    processes, files = map(int, given.split(","))
    for what, most in ((resource.RLIMIT_NPROC, processes), (resource.RLIMIT_NOFILE, files)):
        soft, hard = [
            most if one == resource.RLIM_INFINITY else min(most, one)
            for one in resource.getrlimit(what)
        ]
        # More files than are usual is for each program to ask for.
        resource.setrlimit(what, (soft if what == resource.RLIMIT_NOFILE else hard, hard))
    try:  # noqa: SIM105  as above
        _write("oom_score_adj", _ENDED_FIRST)
    except OSError:
        pass


def _write(name: str, content: bytes) -> None:
    descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    # At once: to free what the kernel frees anyway takes time.
    os._exit(serve(int(sys.argv[2])) if sys.argv[1] == "serve" else main(sys.argv[1:]))
