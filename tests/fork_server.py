"""A process that has imported the program, and forks a process of it for each start.

An interpreter with all modules of a start costs half a second of a core; a fork of one that has
them costs hundredths. What the fork runs is `python -m ironcurtain_proxy`, with arguments,
environment, working directory and open files as they were asked for.

Started by `tests.program` with one end of a socket as descriptor 0. Each message holds four
descriptors: standard input, output and error of the new process, and a pipe, into which go its pid
and, when it has ended, its wait status. The message itself is what `marshal` makes of a list:
arguments, environment, working directory.

A message with two descriptors is the name of a module, for what a start imports only where it is
switched on: a fork imports it and does the same as this process, for the socket that is the first
descriptor. That may listen: then each connection brings one message, as `tests.start_forked` sends
it for programs that others start. The second is a pipe for its status. With a large library each
fork costs twice as much, so those that do without it are made by this one.
"""

import atexit
import gc
import importlib
import marshal
import os
import pkgutil
import random
import re
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import typing
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NoReturn

import ironcurtain_proxy
from ironcurtain_proxy import cli
from ironcurtain_proxy.audit.redaction import is_suspicious
from ironcurtain_proxy.cli.arguments import COMMANDS
from ironcurtain_proxy.downstream.guardian import prctl
from ironcurtain_proxy.model.values import _Pattern
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles
from ironcurtain_proxy.shell.places import names_a_secret_file
from ironcurtain_proxy.strict_json import strict_json

NUMBER: Final = struct.Struct("=i")
LARGEST: Final = 1 << 20
PR_SET_PDEATHSIG: Final = 1

AT_THE_START: Final = ("anyio._backends._asyncio", "anyio._core._signals", "anyio.streams.stapled")
"""What a start imports when it runs: 8 ms of the 46 that a start of the proxy takes."""

LEFT_OUT: Final = ("ironcurtain_proxy.__main__", "ironcurtain_proxy.cli.review_screen")


def main() -> None:
    """Import, then fork until the other end of the socket is closed."""
    requests = socket.socket(fileno=os.dup(0))
    gc.disable()  # what is imported stays
    re._MAXCACHE = 4096  # type: ignore[attr-defined]  # no fork compiles what this one has
    # As the program sets it: else litellm asks the network at its import, in a thread.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    modules = pkgutil.walk_packages(ironcurtain_proxy.__path__, "ironcurtain_proxy.")
    for name in (*(module.name for module in modules), *AT_THE_START):
        if not name.startswith(LEFT_OUT):
            importlib.import_module(name)
    rehearse()
    freeze()
    # A library in C++ lets typing free its caches at the exit, to look for leaks: 4 ms of a fork.
    typing._cleanups.clear()  # type: ignore[attr-defined]
    serve(requests)


def rehearse() -> None:
    """Decide one call here: what is compiled at its first use need not be in each fork.

    That is a third of the time that a proxy needs until it has answered its first call.
    """
    from tests.e2e.installation import Installation  # noqa: PLC0415  it imports this module

    kept = dict(os.environ)
    with TemporaryDirectory() as root, redirect_stdout(StringIO()):
        installation = Installation(Path(root))
        installation.add_scripted()
        installation.allow_scripted()
        installation.write_policy()
        environment = installation.environment()
        os.environ.clear()
        os.environ.update(environment)
        assert cli.main(["explain", "scripted/echo"]) == 0
        lookout = ControlLookout((root,), RemovedFiles(Path(root)))
        lookout.begin()
        lookout.close()
    os.environ.clear()
    os.environ.update(kept)
    is_suspicious(b'"some text"')
    names_a_secret_file("a.txt")  # a tenth of a proxy that asks about a path
    strict_json(b'{"a": 1}')
    cli.parser_of(COMMANDS)
    gc.unfreeze()  # a command freezes, and what is frozen is not shown
    for found in gc.get_objects():
        if isinstance(found, _Pattern):
            re.compile(found.pattern, found._flags)
    gc.disable()  # a command enables it


def serve(requests: socket.socket) -> None:
    """Fork for each message."""
    running: dict[int, tuple[int, int]] = {}
    """By its pidfd, each process with the pipe that its status goes into."""
    while True:
        ready, _, _ = select.select([requests.fileno(), *running], [], [])
        for descriptor in ready:
            if descriptor == requests.fileno():
                message, files = receive(requests)
                if not message:
                    return
                pid = start(message, files) if files[2:] else divide(message, files, requests)
                running[os.pidfd_open(pid)] = pid, files[-1]
            else:
                pid, pipe = running.pop(descriptor)
                os.close(descriptor)
                report(pid, pipe)


def receive(requests: socket.socket) -> tuple[bytes, list[int]]:
    """Take a message with its descriptors, from a connection of its own if the socket listens."""
    if not requests.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return socket.recv_fds(requests, LARGEST, 4)[:2]
    with requests.accept()[0] as connection:
        return socket.recv_fds(connection, LARGEST, 4)[:2]


def divide(message: bytes, files: list[int], requests: socket.socket) -> int:
    """Fork a process that does the same with a module more, for a socket of its own."""
    pid = os.fork()
    if pid == 0:
        requests.close()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody says when a listening one is to end
        importlib.import_module(message.decode())
        freeze()
        serve(socket.socket(fileno=files[0]))
        os._exit(0)
    os.close(files[0])
    return pid


def freeze() -> None:
    """Leave all that is there out of every further collection; a fork would copy it by looking."""
    gc.collect()
    gc.freeze()


def start(message: bytes, files: list[int]) -> int:
    """Fork, and say which pid that is."""
    assert threading.active_count() == 1, "a thread would be missing in the fork"
    pid = os.fork()
    if pid == 0:
        become(files[:3], *marshal.loads(message))  # noqa: S302  a test wrote it
    for file in files[:3]:
        os.close(file)
    os.write(files[3], NUMBER.pack(pid))
    return pid


def report(pid: int, pipe: int) -> None:
    """Say how a process ended, if anyone waits for it still."""
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(pipe, NUMBER.pack(status))
    os.close(pipe)


def become(files: list[int], arguments: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    """Be the new process, up to its exit."""
    gc.enable()
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    sys.argv = arguments
    # `python -m` puts the working directory first, and the program takes it away again.
    sys.path[0] = cwd
    code: object = None
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    leave(code)


def leave(code: object) -> NoReturn:
    """Exit as the interpreter does, but free nothing: that is nine tenths of what a fork costs.

    A fork of multiprocessing leaves in the same way. An exit with words, and one that cannot
    write what is left to write, is the interpreter's.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # type: ignore[arg-type]
    if code is None or isinstance(code, int):
        os._exit((code or 0) & 0xFF)
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
