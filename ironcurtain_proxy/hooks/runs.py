"""The start of a client's commands: its shell prefix asks here, and our own shell fetches here.

    prefix ── text, variables, descriptors ──▶ is it a call that was let go? ── no ──▶ refused
                                                  │ yes
                     native ◀── as it is ─────────┤
                     held   ◀── how it ended ─────┴── our own shell: fetch, run in a view, commit

Neither side is believed. The text must be the command of a call that was let go, the directory,
which the kernel of the machine tells, that of the call; each call starts once. Our own shell is
known by its process.

The sockets of a client's kernel, who speaks there, and which process is below which.
"""

import fcntl
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from select import POLLERR, POLLHUP, poll
from typing import Final

import anyio
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import SocketAttribute, SocketStream, UNIXSocketStream
from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.client_end import HeldRun, OpenCall
from ironcurtain_proxy.hooks.door import Door
from ironcurtain_proxy.hooks.events import ShellText, UnreadableEventError
from ironcurtain_proxy.hooks.launching import DOORS, path_before
from ironcurtain_proxy.mailbox.mailboxes import parent_of, start_of, this_process
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.private_files import make_private_directory
from ironcurtain_proxy.sandbox.shell_setup import ClientCommand, ClientCommandEnd

# --- processes


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


async def serve_at(place: Path, serve: Callable[[SocketStream], Awaitable[None]]) -> None:
    """Serve those who connect at a path, until cancelled."""
    # Whoever finds it before somebody listens there would take the kernel for one that has ended.
    hidden = place.with_name(f"{place.name}.new")
    hidden.unlink(missing_ok=True)
    with short_path(hidden) as path:
        async with (
            await anyio.create_unix_listener(path, mode=0o600) as listener,
            anyio.create_task_group() as tasks,
        ):
            try:
                hidden.replace(place)
                while True:
                    # Whoever connects more often than we have descriptors ends no call by that.
                    with suppress(BrokenResourceError):
                        await listener.serve(serve, tasks)
                    await anyio.sleep(_WAIT)
            finally:
                # At once: what ends meanwhile may take longer than a client waits before it kills
                # its proxy, and a door where nobody is denies all that follows.
                place.unlink(missing_ok=True)  # noqa: ASYNC240  as above


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other side of a unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return pid, uid


def has_hung_up(connection: socket.socket) -> bool:
    """Return whether the other side has ended."""
    look = poll()
    look.register(connection.fileno(), 0)
    return any(found & (POLLHUP | POLLERR) for _, found in look.poll(0))


def is_of_client(connection: socket.socket, client: Owner) -> bool:
    """Return whether the other side is of our user, and below the client."""
    pid, uid = peer_of(connection)
    return uid == os.geteuid() and is_below(pid, client)


def is_below(pid: int, client: Owner) -> bool:
    """Return whether a process is the client's, at most a few levels below it."""
    for _ in range(_LEVELS):
        pid = parent_of(pid)
        if pid in {0, client.pid}:
            break
    return pid == client.pid and start_of(pid) == client.start_time


# --- the door


_STARTING: Final = 40.0
"""Seconds in which a kernel has started, after which a hook denies its call. A busy machine takes
twenty; the hooks that end soonest have 45."""
_WAIT: Final = 0.05
_LOCKED: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class HeldDoor(Struct, kw_only=True):
    """The place of a client's door, which one process holds."""

    client: Owner
    path: Path
    """The socket."""
    _lock: int = -1

    @classmethod
    def of(cls, client: Owner, state: Path) -> "HeldDoor":
        """Return the place of a client's door. Nobody holds it yet."""
        return cls(client=client, path=state / DOORS / f"{client.pid}-{client.start_time}")

    def beside(self, ending: str) -> Path:
        """Return a file beside the socket."""
        return self.path.with_name(f"{self.path.name}.{ending}")

    def hold(self, exits: ExitStack) -> bool:
        """Hold the door until the end. Return False if another process does.

        Raises:
            ConfigurationError: other users can reach its directory.
            OSError: it cannot be made.
        """
        make_private_directory(self.path.parent)
        found = self.path.parent.lstat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ConfigurationError(f"{self.path.parent} must be its user's alone: chmod 700")
        _remove_ended(self.path.parent)
        lock = self.beside("lock")
        with ExitStack() as opened:
            descriptor = os.open(lock, _LOCKED | os.O_CREAT, 0o600)
            opened.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever held it may have removed it meanwhile.
                if not os.path.samestat(os.fstat(descriptor), lock.lstat()):
                    return False
            except (BlockingIOError, FileNotFoundError):
                return False
            opened.callback(lock.unlink, missing_ok=True)
            self._lock = descriptor
            self.path.unlink(missing_ok=True)
            opened.callback(self.path.unlink, missing_ok=True)
            exits.enter_context(opened.pop_all())
        return True

    def hold_next(self, exits: ExitStack) -> bool:
        """Hold the door once the process that holds it has ended. Return False if it serves there.

        Raises:
            ConfigurationError: it does neither.
        """
        end = time.monotonic() + _STARTING
        while not self.path.is_socket():
            if self.hold(exits):
                return True
            if time.monotonic() >= end:
                raise ConfigurationError(f"somebody removed {self.path}: start the client again")
            time.sleep(_WAIT)
        return False

    def note_event(self) -> None:
        """Note that an event has come, so that the client is known to start its hooks."""
        os.pwrite(self._lock, b".", 0)


def _remove_ended(doors: Path) -> None:
    """Remove what the kernels of clients that have ended left, as one does that is killed.

    Names alone are removed, so a link leads nowhere.
    """
    for lock in doors.glob("[0-9]*-[0-9]*.lock"):
        pid, _, start = lock.stem.partition("-")
        if pid.isdigit() and start_of(int(pid)) == start:
            continue
        with suppress(OSError), ExitStack() as opened:
            descriptor = os.open(lock, _LOCKED)
            opened.callback(os.close, descriptor)
            # In a container that shares the home the client may have another number.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for ending in ("", ".new", ".run", ".run.new", ".left", ".lock"):
                lock.with_name(f"{lock.stem}{ending}").unlink(missing_ok=True)


# --- runs


_SECONDS: Final = 30.0
_HEAD: Final = 4
_MOST_BYTES: Final = 4 << 20
"""The most bytes of a text with its variables."""
_FETCHES: Final = b"shell "
_DESCRIPTORS: Final = 3
_FAILED: Final = 125
_AGENTS: Final = b"_agent"
"""The end of the variable by which the client marks what an agent has it run."""
_UNKNOWN: Final = "the client starts commands in a form that is not known"
_log: Final = logging.getLogger(__name__)


class _Asked(Struct, kw_only=True):
    """What a shell prefix sends."""

    text: bytes
    variables: list[bytes]
    descriptors: Sequence[int]
    pid: int
    """The client's process that stands for the command."""
    directory: str
    """As the machine's kernel tells it."""

    @property
    def given(self) -> dict[str, str]:
        """The variables, and the directory by its name for a shell."""
        texts = [os.fsdecode(one) for one in self.variables if b"=" in one]
        return {**dict([one.split("=", 1) for one in texts]), "PWD": self.directory}

    @property
    def is_marked(self) -> bool:
        """Whether the client says that an agent has it run."""
        return any(one[:9] == b"AI_AGENT=" and one.endswith(_AGENTS) for one in self.variables)


class ClientRuns:
    """The socket at which commands start."""

    def __init__(self, door: Door, held: HeldDoor, directory: str) -> None:
        self._door = door
        self._client = held.client
        self._place = held.beside("run")
        self._directory = directory

    async def run(self) -> None:
        """Serve until cancelled."""
        await serve_at(self._place, self._serve)

    async def _serve(self, stream: SocketStream) -> None:
        assert isinstance(stream, UNIXSocketStream)  # noqa: S101  its listener is one
        raw_socket: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610  not Django
        pid, user = peer_of(raw_socket)
        is_of_client = is_below(pid, self._client)
        is_ours = is_below(pid, this_process())
        async with stream:
            if user != os.geteuid() or not (is_of_client or is_ours):
                _log.warning("a process that is not the client's may start no command")
                return
            received: list[int] = []
            try:
                with anyio.fail_after(_SECONDS):
                    content, found = await stream.receive_fds(1 << 16, _DESCRIPTORS)
                received += found
                if not content.startswith(_FETCHES):
                    await self._start(stream, await _received(stream, content, received, pid))
                elif is_ours:
                    await self._hand_over(stream, content[len(_FETCHES) :].decode("ascii"))
            except (OSError, EndOfStream, BrokenResourceError) as error:
                _log.warning("a command was not started: %s", type(error).__name__)
            except Exception:  # noqa: BLE001  without an answer nothing is run
                _log.exception("a command was not started")
            finally:
                for descriptor in received:
                    os.close(descriptor)

    # --- the client's side

    async def _start(self, stream: UNIXSocketStream, asked: _Asked) -> None:
        try:
            found = None if self._door.observes else self._read(asked)
        except UnreadableEventError as error:
            await self._start_unread(stream, str(error))
            return
        if found is None:
            await _let_run(stream, "/bin/bash")
            return
        is_there = lambda: bool(start_of(asked.pid))  # noqa: E731
        call: OpenCall | str | None = self._door.start(found.command, asked.directory)
        if call is None and self._door.is_turn:
            call = await self._door.judge(found.command, asked.directory, is_there)
        elif isinstance(call, OpenCall):
            path = path_before(found.before, asked.given)
            call = await self._door.judge_again(call, path, is_there)
        if isinstance(call, str):
            await _refuse(stream, call)
        elif call is not None and call.digest and found.is_known:
            await self._hold(stream, asked, found, call)
        elif call is not None and call.digest:
            call.end("its client started it in a form that is not known")
            await self._start_unread(stream, _UNKNOWN)
        else:
            # Where no agent is at work, it is the user's own.
            await _let_run(stream, found.shell)

    def _read(self, asked: _Asked) -> ShellText | None:
        """Return the command of an agent; None: a hook or a server of somebody else's.

        The client starts these by our prefix, too.

        Raises:
            UnreadableEventError: it may be a command, in a form that is not known.
        """
        text, prefix = os.fsdecode(asked.text), self._door.dialect.prefix
        found = None if prefix is None else prefix.read(text, self._directory)
        if found is None and (asked.is_marked or any(one in text for one in self._door.awaited())):
            raise UnreadableEventError(_UNKNOWN)
        return found

    async def _start_unread(self, stream: UNIXSocketStream, why: str) -> None:
        """Refuse what may be a command that is to be held, and hold none any more.

        They are asked about then, and run as the client runs them.
        """
        is_first = not self._door.why_native
        self._door.why_native = self._door.why_native or why
        if is_first or self._door.awaited():
            await _refuse(stream, f"{why}; the same call made again is asked about")
        else:
            await _let_run(stream, "/bin/bash")

    async def _hold(
        self, stream: UNIXSocketStream, asked: _Asked, found: ShellText, call: OpenCall
    ) -> None:
        """Let our own shell run it, and tell the client how it ended once its changes are there."""
        if len(asked.descriptors) != _DESCRIPTORS or any(map(_is_directory, asked.descriptors)):
            call.end("its client handed over what is no input or output")
            await _refuse(stream, "these are no input and output of a command")
            return
        passed, signals = anyio.create_memory_object_stream[bytes](64)
        call.run = HeldRun(
            command=ClientCommand(
                shell=found.shell,
                text=asked.text,
                directory_file=os.fsencode(found.directory_file),
                variables=asked.variables,
            ),
            descriptors=asked.descriptors,
            signals=signals,
        )
        call.moved.set()
        async with anyio.create_task_group() as tasks:

            async def relay() -> None:
                with passed, suppress(BrokenResourceError, anyio.WouldBlock):
                    async for numbers in stream:
                        passed.send_nowait(numbers)

            tasks.start_soon(relay)
            await call.recorded.wait()
            tasks.cancel_scope.cancel()
        end = call.run.end or ClientCommandEnd(status=-1)
        status = end.status if end.status >= 0 else _FAILED
        if status == 0 and call.has_failed:
            status = _FAILED
        # The client has these two already.
        known = {"[no output]", f"[exit status {status}]"}
        words = "\n".join([one for one in call.said.splitlines() if one not in known])
        _write_directory(found.directory_file, end.directory)
        with suppress(BrokenResourceError, ClosedResourceError):
            await stream.send(f"E {status}\n{words}\0".encode(errors="replace"))

    # --- the side of our own shell

    async def _hand_over(self, stream: UNIXSocketStream, digest: str) -> None:
        run = self._door.fetched(digest)
        if run is None:
            return
        body = msgspec.msgpack.encode(run.command)
        message = len(body).to_bytes(_HEAD, "little") + body
        await stream.send_fds(message[:_HEAD], list(run.descriptors))
        await stream.send(message[_HEAD:])
        async with anyio.create_task_group() as tasks:

            async def relay() -> None:
                with run.signals, suppress(OSError, BrokenResourceError):
                    async for numbers in run.signals:
                        await stream.send(numbers)
                    await stream.send_eof()

            tasks.start_soon(relay)
            with suppress(EndOfStream, BrokenResourceError, msgspec.MsgspecError):
                told = await stream.receive(1 << 16)
                run.end = msgspec.msgpack.decode(told, type=ClientCommandEnd)
            tasks.cancel_scope.cancel()


async def _received(
    stream: UNIXSocketStream, content: bytes, descriptors: Sequence[int], pid: int
) -> _Asked:
    """Return what a shell prefix sends.

    Raises:
        EndOfStream: it is no such message.
        OSError: its process has ended.
    """
    parts = bytearray(content)
    with anyio.fail_after(_SECONDS):
        while len(parts) < _HEAD or len(parts) < _HEAD + int.from_bytes(parts[:_HEAD], "little"):
            parts += await stream.receive()
            if len(parts) > _MOST_BYTES:
                raise EndOfStream
    text, *variables = bytes(parts[_HEAD:]).split(b"\0")
    directory = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115  a string is wanted
    return _Asked(
        text=text, variables=variables, descriptors=descriptors, pid=pid, directory=directory
    )


async def _let_run(stream: UNIXSocketStream, shell: str) -> None:
    """Let the client's process run the text itself."""
    await stream.send(f"N {shell}\n\0".encode())


async def _refuse(stream: UNIXSocketStream, why: str) -> None:
    _log.warning("a command was not started: %s", why)
    await stream.send(f"R\n{why}\0".encode())


def _is_directory(descriptor: int) -> bool:
    """Return whether a descriptor leads further than to what is read or written there."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISDIR(mode) or stat.S_ISBLK(mode) or stat.S_ISLNK(mode)


def _write_directory(file: str, directory: bytes) -> None:
    """Tell the client the last directory of its shell, if it is there outside the view, too."""
    if not directory or not Path(os.fsdecode(directory.removesuffix(b"\n"))).is_dir():
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), os.fdopen(os.open(file, flags, 0o600), "wb") as written:
        written.write(directory)
