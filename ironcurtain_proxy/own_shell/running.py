"""One command of our own shell, from its start to its prepared changes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.from_thread
import anyio.to_thread
from msgspec import Struct, field

from ironcurtain_proxy.own_shell.walls import CommandWalls, Walled
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles
from ironcurtain_proxy.sandbox.shell_setup import ShellSetup
from ironcurtain_proxy.transactions.changes import Changes, RefusedChangesError
from ironcurtain_proxy.transactions.control import Control, LedPlaces
from ironcurtain_proxy.transactions.transaction import CommandView, discard

MOST_OUTPUT: Final = 128 << 10
"""The bytes of output that are kept: half of them from the beginning, half from the end."""
_PART: Final = 65536
_STATUS: Final = 16
_NOTHING: Final = "nothing that it changed was kept"
_LOOK: Final = 2.0
"""Seconds between two looks at where settings lead to."""
_SHARE: Final = 20
"""Times as long as a look takes is waited until the next one: it may take a twentieth."""
_GRACE: Final = 10.0
"""Seconds for the processes of a view to end after they were killed."""


class Output:
    """What a command has written, its middle left out where it is long."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, part: bytes) -> None:
        """Add what was written next."""
        free = MOST_OUTPUT // 2 - len(self._head)
        self._head += part[:free]
        self._tail += part[max(free, 0) :]
        beyond = len(self._tail) - MOST_OUTPUT // 2
        if beyond > 0:
            del self._tail[:beyond]
            self._left_out += beyond

    def take(self) -> str:
        """Return what was written since the last time, and forget it."""
        middle = b""
        if self._left_out:
            middle = b"\n[... %d bytes left out ...]\n" % self._left_out
        text = (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
        self._head.clear()
        self._tail.clear()
        self._left_out = 0
        return text


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a command."""

    status: int | None
    """The exit status; None: it was killed, or could not be started."""
    why: str = ""
    """Why it was killed or could not be started."""
    changes: Changes | None = None
    """What it changed; None: it changed the workspace by itself, or nothing comes from it."""
    view: str = ""
    """The name of its view, where changes are prepared."""


class ShellCommand(Struct, eq=False, kw_only=True):
    """A running command."""

    words: Sequence[str]
    directory: str
    input: bytes = b""
    output: Output = field(default_factory=Output)
    ended: Ended | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
    speaks: anyio.Event = field(default_factory=anyio.Event)
    """Set when it has written something."""
    reads_ours: bool = False
    """Whether it gets our own standard input, which it must not read."""
    host: str = ""
    """The first host that it tried to reach."""
    process: subprocess.Popen[bytes] | None = None
    why: str = ""
    """Why it was killed; empty: it was not."""
    is_in_view: bool = False

    def kill(self, why: str) -> None:
        """End it and all that it has started."""
        self.why = self.why or why
        if self.process is None or self.process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if self.is_in_view:
                self.process.send_signal(signal.SIGTERM)
            else:
                os.killpg(self.process.pid, signal.SIGKILL)


class Runner:
    """Runs commands."""

    def __init__(self, setup: ShellSetup, walls: CommandWalls) -> None:
        self._setup = setup
        self._walls = walls
        self._looking = anyio.Lock()
        self._is_kept = False
        self._led: LedPlaces | None = None
        self._lookout = ControlLookout(
            (setup.views.workspace,), RemovedFiles(Path(setup.views.directory))
        )

    async def keep_leads(self) -> None:
        """Look at the workspace from time to time until cancelled, so that no command waits."""
        self._is_kept = True
        try:
            while True:
                began = anyio.current_time()
                await self._look_for_leads()
                await anyio.sleep(max(_LOOK, _SHARE * (anyio.current_time() - began)))
        finally:
            self._is_kept = False

    async def _look_for_leads(self) -> LedPlaces:
        """Look where settings and links of the whole workspace lead to."""
        async with self._looking:
            await anyio.to_thread.run_sync(self._lookout.begin)
            leads = self._lookout.leads
            self._led = LedPlaces(leads.paths, leads.in_each)
            return self._led

    async def run(self, command: ShellCommand) -> None:
        """Run a command to its end, and prepare what it changed. `command.ended` is set then."""
        gate = self._walls.gate
        asked = 0 if gate is None else gate.count
        view: CommandView | None = None
        try:
            if self._setup.views.directory:
                place = Path(self._setup.views.directory)
                view = CommandView(place, self._setup.views.workspace)
            status = await self._in_walls(command, view)
            command.host = "" if gate is None else gate.asked_since(asked)
            command.ended = await self._prepared(command, status, view)
        except RefusedChangesError as error:
            command.ended = Ended(status=None, why=f"{_NOTHING}: {error}")
        except OSError as error:
            command.ended = Ended(status=None, why=f"{_NOTHING}: {error.strerror}")
        finally:
            if view is not None:
                view.close()
                if command.ended is None or not command.ended.view:
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(discard, view.directory)
            command.done.set()

    async def _prepared(
        self, command: ShellCommand, status: int | None, view: CommandView | None
    ) -> Ended:
        """Return the end of a command, with what it changed.

        Raises:
            RefusedChangesError, OSError: nothing of it can come into the workspace.
        """
        if status is None:
            return Ended(status=None, why=command.why or "it could not be started")
        if view is None:
            return Ended(status=status, why=command.why)
        led = self._led
        if led is None or not self._is_kept:
            led = await self._look_for_leads()
        control = Control(self._setup.views.approved, led, self._setup.profile.deny_read)
        changes = await anyio.to_thread.run_sync(view.prepare, control)
        has_any = not changes.is_nothing
        name = view.directory.name if has_any else ""
        return Ended(status=status, why=command.why, changes=changes, view=name)

    async def _in_walls(self, command: ShellCommand, view: CommandView | None) -> int | None:
        """Run a command. Return its status once nothing of it lives; None: that is not certain."""
        walled = self._walls.around(command.words, command.directory)
        try:
            return await self._started(command, walled, view)
        finally:
            walled.remove()

    async def _started(
        self, command: ShellCommand, walled: Walled, view: CommandView | None
    ) -> int | None:
        status_read, status_write = os.pipe()
        argv = walled.argv
        if view is not None:
            limits = self._setup.profile.limits
            argv = view.command(
                walled.argv,
                sys.executable,
                status_write,
                namespaces=walled.namespaces,
                limits=f"{limits.processes},{limits.open_files}",
            )
        command.is_in_view = in_view = view is not None
        cwd = walled.launch.directory.path if walled.launch and walled.launch.directory else None
        try:
            command.process = subprocess.Popen(  # noqa: S603, ASYNC220  an argument list; a moment
                argv,
                stdin=_input_of(command),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=cwd if in_view else command.directory,
                env=dict(walled.environment),
                pass_fds=(*walled.descriptors, status_write),
                start_new_session=True,
            )
        finally:
            os.close(status_write)
            walled.close()
        try:
            return await self._followed(command, status_read, in_view=in_view)
        finally:
            os.close(status_read)

    async def _followed(self, command: ShellCommand, status: int, *, in_view: bool) -> int | None:
        process = command.process
        assert process is not None  # noqa: S101  just started
        try:
            async with anyio.create_task_group() as tasks:
                if command.input:
                    tasks.start_soon(_in_thread, _feed, process, command.input)
                tasks.start_soon(_in_thread, _collect, process, command)
                code = await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
                if not in_view:
                    # Whatever holds the output longer goes on without us.
                    tasks.cancel_scope.cancel()
        except BaseException:
            # Withdrawn: nothing of it may live on, and nothing comes from it.
            command.kill("it was withdrawn")
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, process)
            raise
        if not in_view:
            return code
        said = os.read(status, _STATUS)
        return int(said) if said.isdigit() else None


def _input_of(command: ShellCommand) -> int | None:
    if command.reads_ours:
        return None
    return subprocess.PIPE if command.input else subprocess.DEVNULL


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _in_thread(function: Callable[..., None], *args: object) -> None:
    await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)


def _feed(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None  # noqa: S101  asked for
    try:
        process.stdin.write(content)
        process.stdin.close()
    except OSError:
        return  # it does not read all of it


def _collect(process: subprocess.Popen[bytes], command: ShellCommand) -> None:
    assert process.stdout is not None  # noqa: S101  asked for
    while part := os.read(process.stdout.fileno(), _PART):
        command.output.add(part)
        anyio.from_thread.run_sync(command.speaks.set)
