"""Read-only git: its processes, small files, and what git's answers about a repository rest on.

Git commands run concurrently, with one deadline and a limit on their output.
"""

import os
import posixpath
import re
import selectors
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from time import monotonic, time_ns
from typing import Final, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.values import lazy

# --- small files


class IrregularFileError(OSError):
    """A directory, a pipe or a device where a file was expected."""


def beginning_of(path: str, most: int) -> bytes | None:
    """Return the first bytes of a regular file, or None if there is none. Waits for no pipe.

    Raises:
        IrregularFileError: it is no regular file.
        OSError: it cannot be read.
        ValueError: the path is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise IrregularFileError(path)
        content = b""
        while block := os.read(descriptor, most - len(content)):
            content += block
        return content
    finally:
        os.close(descriptor)


# --- git process


_MAX_OUTPUT: Final = 1 << 20
"""Bytes. A repository's configuration may have been written by the agent."""


class GitOutput(Struct, frozen=True):
    """The result of one command."""

    status: int | None
    """The exit status of git, or None if it did not start, took too long, or printed too much."""
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
    """Return a file for git's standard error: a pipe without a reader could block it."""
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


# --- state


GitState: TypeAlias = tuple[bytes, tuple[int, ...]]
"""The digest of all that git's answers about a repository rest on, and when it last changed."""
_POINTER: Final = lazy(rb"([^\n\r\0]+)\n?")
_HEAD: Final = lazy(rb"(?:ref: refs/heads/[^\n\0]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_ELSEWHERE: Final = lazy(rb"include|refstorage", re.IGNORECASE)
"""Settings by which git reads further files."""
_MOST_READ: Final = 1 << 18
TICK: Final = 20_000_000
"""Nanoseconds in which a file system may give two changes one time."""


def state_of(repository: str | None, settings: Sequence[str]) -> GitState | None:
    """Return the state of all that git's answers about a repository, or outside any, rest on.

    It is None if git may read more than is known here, if it is not certain that git takes the
    repository, or if something changed only now, and might change again without a trace.

    Args:
        repository: a real directory, or None if git is told to use no repository.
        settings: the files of settings outside the repository.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file names an impossible path, or it is not certain what git would find.
    """
    places = () if repository is None else _places_of(repository)
    if places is None:
        return b"", ()
    files = (*places[2:], *settings)
    contents = [beginning_of(file, _MOST_READ) for file in files]
    watched = [one for one in (*places[:2], *files) if os.path.lexists(one)]
    changes = [os.stat(one).st_ctime_ns for one in watched]  # noqa: PTH116  microseconds
    is_known = (
        (not places or _HEAD.fullmatch(contents[0] or b"") is not None)
        and not any(_ELSEWHERE.search(one) or len(one) == _MOST_READ for one in contents if one)
        and max(changes, default=0) < time_ns() - TICK
    )
    # Contents, not times: a file that a program has in its memory changes without a new time.
    digest = sha256(repr((files, contents)).encode()).digest()
    return (digest, tuple(changes)) if is_known else None


def _places_of(repository: str) -> tuple[str, ...] | None:
    """Return the top of a repository, its `.git`, HEAD and settings, or None if there is none.

    Raises:
        ValueError: it is not certain that git takes it, and reads no remotes elsewhere.
    """
    top = _top_of(repository)
    if top is None:
        return None
    git = entry = f"{top}/.git"
    if not stat.S_ISDIR(os.stat(entry).st_mode):  # noqa: PTH116  microseconds
        git = _led_to(entry, b"gitdir: ") or ""
    common = _led_to(f"{git}/commondir", b"") or git
    if (
        os.path.islink(f"{git}/HEAD")  # noqa: PTH114  microseconds
        or not all(os.access(f"{common}/{name}", os.X_OK) for name in ("objects", "refs"))
        or any(_is_filled(f"{common}/{name}") for name in ("remotes", "branches"))
    ):
        raise ValueError(repository)
    return top, entry, f"{git}/HEAD", f"{git}/config.worktree", f"{common}/config"


def _top_of(directory: str) -> str | None:
    """Return what holds the `.git` that git would find, or None if there is none above either.

    Raises:
        ValueError: that is not certain.
    """
    device = os.stat(directory).st_dev  # noqa: PTH116  microseconds
    while not os.path.lexists(f"{directory}/.git"):
        # A directory with `HEAD` may be a repository itself. git stays in one file system.
        is_unsure = os.path.lexists(f"{directory}/HEAD")
        if is_unsure or os.stat(directory).st_dev != device:  # noqa: PTH116  microseconds
            raise ValueError(directory)
        if directory == "/":
            return None
        directory = posixpath.dirname(directory)
    return directory


def _led_to(file: str, before: bytes) -> str | None:
    """Return the directory that a file of one line names, or None if there is no such file."""
    content = beginning_of(file, 4096)
    if content is None:
        return None
    named = _POINTER.fullmatch(content.removeprefix(before))
    if named is None or not content.startswith(before):
        raise ValueError(file)
    return posixpath.join(posixpath.dirname(file), os.fsdecode(named[1]))


def _is_filled(directory: str) -> bool:
    try:
        with os.scandir(directory) as found:
            return any(found)
    except FileNotFoundError:
        return False
