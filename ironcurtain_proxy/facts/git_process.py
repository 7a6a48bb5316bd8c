"""Read-only git commands, run concurrently with one deadline and a limit on their output."""

import os
import selectors
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Final

from msgspec import Struct

_MAX_OUTPUT: Final = 1 << 20
"""Bytes. A repository's configuration may have been written by the agent."""


class GitOutput(Struct, frozen=True):
    """The result of one command."""

    status: int | None
    """The exit status of git; None: it did not start, took too long, or printed too much."""
    text: str = ""
    no_repository: bool = False
    """The command failed because the directory belongs to no repository."""


def run_git(
    commands: Sequence[Sequence[str]],
    directory: str,
    environment: Mapping[str, str],
    deadline: float,
) -> list[GitOutput]:
    """Run the commands in a directory concurrently. Returns their results in order.

    Args:
        commands: the arguments after `git`.
        directory: where they run.
        environment: the whole environment.
        deadline: seconds for all of them; what still runs is killed.
    """
    until = monotonic() + deadline
    with _started(commands, directory, environment) as processes:
        return [_collect(process, errors, until) for process, errors in processes]


_Process = tuple["subprocess.Popen[bytes] | None", int]


@contextmanager
def _started(
    commands: Sequence[Sequence[str]], directory: str, environment: Mapping[str, str]
) -> Iterator[list[_Process]]:
    processes: list[_Process] = []
    try:
        for command in commands:
            errors = _scratch()
            processes.append((_start(command, directory, environment, errors), errors))
        yield processes
    finally:
        for process, errors in processes:
            os.close(errors)
            if process is not None:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()


def _scratch() -> int:
    """A file for git's standard error: a pipe without a reader could block it."""
    descriptor, name = tempfile.mkstemp()
    os.unlink(name)  # noqa: PTH108  a string, as mkstemp gave it
    return descriptor


def _start(
    command: Sequence[str], directory: str, environment: Mapping[str, str], errors: int
) -> "subprocess.Popen[bytes] | None":
    try:
        return subprocess.Popen(  # noqa: S603  argument list, no shell
            ("git", *command),  # noqa: S607  found on the PATH of the server's environment
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    except (OSError, ValueError):
        return None


def _collect(process: "subprocess.Popen[bytes] | None", errors: int, until: float) -> GitOutput:
    if process is None or process.stdout is None:
        return GitOutput(None)
    data = _read_all(process.stdout.fileno(), until)
    if data is None:
        return GitOutput(None)
    try:
        status = process.wait(timeout=max(0.0, until - monotonic()))
    except subprocess.TimeoutExpired:
        return GitOutput(None)
    complaint = os.pread(errors, 4096, 0)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return GitOutput(None)
    return GitOutput(status, text, status != 0 and b"not a git repository" in complaint)


def _read_all(descriptor: int, until: float) -> bytes | None:
    """Read to the end, or None when the deadline or the limit is passed."""
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(data) <= _MAX_OUTPUT:
            if not selector.select(timeout=max(0.0, until - monotonic())):
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return bytes(data)
            data += chunk
    return None
