"""The program that makes a view and becomes the command in it.

    python -I -S mounting.py NAMESPACES [TARGET UPPER WORK ...] -- COMMAND [ARGUMENT ...]

It leaves the mount namespace of its parent, mounts an overlay over each TARGET, whose lower layer
is the directory that it covers, and becomes COMMAND. NAMESPACES is `-`, or `USER,NET`: descriptors
of namespaces that are entered first, either of them `-`. An ordinary user gets a user namespace of
its own where none is given, in which every user and group but its own stays unknown.

This is a program of its own, which runs once for each command. It imports next to nothing, and
nothing of this package.
"""

import ctypes
import os
import sys

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _SLAVE = 0x4000, 0x80000
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LAYER = 3
"""The words of one overlay in the arguments."""
FAILED = 125
"""The exit status where there is no view: nothing was run."""
OPTIONS = "userxattr,index=off,metacopy=off,redirect_dir=nofollow,xino=off"
"""Options that are read back: each entry of the upper directory stands for itself alone."""


def main(arguments: list[str]) -> int:
    """Make the view and become the command. Returns only if that cannot be."""
    end = arguments.index("--")
    layers, command = arguments[1:end], arguments[end + 1 :]
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
        doing = command[0]
        os.execvp(command[0], command)  # noqa: S606  an argument list, no shell
    except OSError as error:
        sys.stderr.write(f"no view: {doing}: {error.strerror}\n")
    return FAILED


def _enter(libc: ctypes.CDLL, given: str) -> None:
    user, _, network = given.partition(",")
    own_user, own_group = os.geteuid(), os.getegid()
    if user.isdigit():
        _check(libc.setns(int(user), _NEW_USER))
    elif own_user != 0:
        _check(libc.unshare(_NEW_USER))
        _write("setgroups", "deny")
        _write("uid_map", f"{own_user} {own_user} 1")
        _write("gid_map", f"{own_group} {own_group} 1")
    if network.isdigit():
        _check(libc.setns(int(network), 0))
    _check(libc.unshare(_NEW_MOUNTS))


def _write(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123  pathlib is slow to load
        file.write(text)


def _mount(libc: ctypes.CDLL, target: str, upper: str, work: str) -> None:
    # By descriptors: a path in the options ends at a comma, and another directory could come to
    # stand under the same name.
    opened = [os.open(path, _DIRECTORY) for path in (target, upper, work)]
    low, up, scratch = [f"/proc/self/fd/{number}" for number in opened]
    options = f"lowerdir={low},upperdir={up},workdir={scratch},{OPTIONS}"
    _check(libc.mount(b"overlay", low.encode(), b"overlay", 0, options.encode()))
    for number in opened:
        os.close(number)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
