"""One command of our own shell, from its start to its prepared changes.

The restrictions around one command of our own shell.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Final

import anyio
import anyio.from_thread
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.downstream.gate import Gate
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox import closed_network
from ironcurtain_proxy.sandbox.closure import closure, filter_of_calls
from ironcurtain_proxy.sandbox.directory import Launch
from ironcurtain_proxy.sandbox.installed import beyond_agents
from ironcurtain_proxy.sandbox.launch import (
    MODULES,
    Confinement,
    confine,
    with_own_programs,
    with_pools,
)
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.private_tmp import steady
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles
from ironcurtain_proxy.sandbox.settled_names import SettledNames
from ironcurtain_proxy.sandbox.shell_setup import ShellSetup
from ironcurtain_proxy.transactions.changes import Changes, RefusedChangesError
from ironcurtain_proxy.transactions.control import Control, LedPlaces
from ironcurtain_proxy.transactions.forking import Forked, ForkedCommand, Forker, mounting_by
from ironcurtain_proxy.transactions.transaction import CommandView, discard

# --- restrictions


_PORT: Final = 3128
_SECONDS: Final = 20.0
_PROXY: Final = f"http://127.0.0.1:{_PORT}"
_TO_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOCAL: Final = "localhost,127.0.0.1,::1"
_SSH: Final = (
    "ssh -o ControlMaster=no -o ControlPath=none "
    f"-o ProxyCommand='socat - PROXY:127.0.0.1:%h:%p,proxyport={_PORT}'"
)
_UNTIDIED: Final = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
}
"""Git does not tidy up beside a command. In the background that would be ended with the view, and
its lock would stay in the repository, so that git never tidied up there again; before the end it
could take minutes, and replace more than the timeline holds. The user's own git does it."""


class RestrictedCommand(Struct, frozen=True, kw_only=True):
    """A command with its restrictions."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    """What the process inherits; our copies are closed by `close`."""
    namespaces: str = "-"
    launch: Launch | None = None

    def close(self) -> None:
        """Close our copies of the descriptors that are this command's alone."""
        if self.launch is not None:
            self.launch.close()
        elif self.descriptors:
            os.close(self.descriptors[-1])

    def remove(self) -> None:
        """Remove what its sandbox had on the disk."""
        if self.launch is not None:
            self.launch.remove()


class CommandRestrictions:
    """The restrictions of all commands of one process."""

    def __init__(self, setup: ShellSetup) -> None:
        """Make the network that leads nowhere, unless hosts are allowed.

        Raises:
            OSError: it cannot be made.
        """
        self._setup = setup
        self.gate: Gate | None = None
        self._spaces: tuple[int, ...] = ()
        self._profile = setup.profile
        self._stamp: tuple[tuple[int, int], ...] = ()
        """The state of the places with credentials when `_profile` was made."""
        self._filter = Path(setup.views.directory, "filter") if setup.views.directory else None
        if not setup.views.directory or setup.profile.allowed_domains:
            return
        if self._filter is not None:
            program = filter_of_calls()
            if program is None:
                raise OSError(0, "no filter of system calls is known for this machine")
            if not self._filter.exists():
                self._filter.write_bytes(program)
        user, network, listener = _closed_network()
        self.gate = Gate(listener)
        self._spaces = (user, network)

    def around(self, command: Sequence[str], directory: str) -> RestrictedCommand:
        """Return a command with its restrictions.

        Raises:
            OSError: there is no memory, or no descriptor left.
        """
        if not self._setup.views.directory:
            return RestrictedCommand(argv=command, environment=dict(os.environ))
        if self._setup.profile.allowed_domains:
            return self._by_srt(command, directory)
        assert self._filter is not None  # noqa: S101  made with the network
        profile = self.profile()
        calls = os.open(self._filter, os.O_RDONLY | os.O_CLOEXEC)
        closed = closure(profile, self._setup.private, self._setup.lent, network=False)
        restrictions = (self._bubblewrap(), *closed[1:])
        user, network = self._spaces
        return RestrictedCommand(
            argv=[*restrictions, "--seccomp", str(calls), "--chdir", directory, "--", *command],
            environment={**self._variables(), **_to_gate()},
            # Root enters no user namespace, and the command must not inherit one.
            descriptors=(network, calls) if os.geteuid() == 0 else (user, network, calls),
            namespaces=f"{'-' if os.geteuid() == 0 else user},{network}",
        )

    def _bubblewrap(self) -> str:
        """Return where bubblewrap is: a command before may have left one in the workspace."""
        workspace = RealPath.from_text(self._setup.views.workspace)
        path = beyond_agents(os.environ, workspace)["PATH"]
        return shutil.which("bwrap", path=path) or "/usr/bin/bwrap"

    def profile(self) -> SandboxProfile:
        """Return what a command that starts now may touch: no credential that is there by now."""
        hidden = self._setup.credentials
        if hidden is not None and self._stamp != (stamp := hidden.stamp()):
            begun = self._setup.profile
            later = [one for one in hidden.existing() if begun.may_read(RealPath.from_text(one))]
            self._profile = replace(begun, deny_read=(*begun.deny_read, *later))
            self._stamp = stamp
        return self._profile

    def _by_srt(self, command: Sequence[str], directory: str) -> RestrictedCommand:
        spec = ServerSpec(
            name="shell",
            annotations="shell",
            command=command[0],
            args=tuple(command[1:]),
            cwd=directory,
        )
        setup = self._setup
        confinement = Confinement(setup.srt, self.profile(), private=setup.private, lent=setup.lent)
        launch = confine(spec, confinement)
        return RestrictedCommand(
            argv=launch.argv,
            environment={**_own_settings(), **launch.environment},
            descriptors=launch.descriptors,
            launch=launch,
        )

    def _variables(self) -> Mapping[str, str]:
        private = self._setup.private
        place = "" if private is None else private.places[0]
        own = {"TMPDIR": place} if place else {}
        return {**steady(place), **_own_settings(), **own}


def _own_settings() -> dict[str, str]:
    """Return our environment, with what git and Python need in a view."""
    return {**_UNTIDIED, **os.environ, MODULES: with_pools(os.environ.get(MODULES, ""))}


def _to_gate() -> dict[str, str]:
    """Return the variables that lead programs to the gate, which notes whom they ask for."""
    upper = {**dict.fromkeys(_TO_PROXY, _PROXY), "NO_PROXY": _LOCAL}
    return {
        **upper,
        **{name.lower(): value for name, value in upper.items()},
        "GIT_SSH_COMMAND": _SSH,
    }


def _closed_network() -> tuple[int, int, socket.socket]:
    """Return the namespaces of a network that leads nowhere, and a listener in it.

    Raises:
        OSError: it cannot be made.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_SECONDS)
        subprocess.run(  # noqa: S603  a program of ours
            [sys.executable, "-I", "-S", closed_network.__file__, str(_PORT)],
            check=False,
            stdin=theirs.fileno(),
            timeout=_SECONDS,
        )
        theirs.close()
        said, found, _, _ = socket.recv_fds(ours, 256, 3)
    if len(found) != 3:  # noqa: PLR2004  user, network, listener
        raise OSError(0, f"no network for commands: {said[1:].decode(errors='replace')}")
    listener = socket.socket(fileno=found[2])
    listener.settimeout(0)
    return found[0], found[1], listener


# --- running


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
        middle = b"\n[... %d bytes left out ...]\n" % self._left_out if self._left_out else b""
        text = (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
        self._head.clear()
        self._tail.clear()
        self._left_out = 0
        return text


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a command."""

    status: int | None
    """The exit status, or None if it was killed, or could not be started."""
    why: str = ""
    """Why it was killed or could not be started."""
    changes: Changes | None = None
    """What it changed, or None if it changed the workspace by itself, or nothing comes from it."""
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
    """Set when nothing of it lives and what it changed is prepared."""
    stopped: anyio.Event = field(default_factory=anyio.Event)
    """Set when nothing of it lives."""
    fetched: anyio.Event | None = None
    """Set when somebody asks for the end of a job: what it changed is judged when it comes in, by
    the settings that lead somewhere by then. `None` means that somebody waits for the end."""
    speaks: anyio.Event = field(default_factory=anyio.Event)
    """Set when it has written something."""
    reads_ours: bool = False
    """Whether it gets our own standard input, which it must not read."""
    stdio: tuple[int, int, int] | None = None
    """The descriptors that it reads and writes. `None` means that what it writes is collected."""
    variables: Mapping[str, str] = {}
    """Its variables besides those of its restrictions."""
    host: str = ""
    """The first host that it tried to reach."""
    process: Forked | subprocess.Popen[bytes] | None = None
    why: str = ""
    """Why it was killed, or empty if it was not."""
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


class _Wires(Struct, frozen=True):
    """What a command reads and writes."""

    given: tuple[int, int, int]
    """Its own three descriptors."""
    output: FileIO | None = None
    """What it writes. `None` means that it is not collected."""
    feed: FileIO | None = None
    """Where its input goes. `None` means that it gets none of ours."""


def _wires(command: ShellCommand, theirs: ExitStack) -> _Wires:
    """Return the wires of a command. Those made for it are closed with `theirs`."""
    if command.stdio is not None:
        return _Wires(command.stdio)
    feed = None
    if command.input:
        given, told = os.pipe()
        feed = FileIO(told, "w")
    elif command.reads_ours:
        given = os.dup(0)
    else:
        given = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    theirs.callback(os.close, given)
    heard, speak = os.pipe()
    theirs.callback(os.close, speak)
    return _Wires((given, speak, speak), FileIO(heard), feed)


class Runner:
    """Runs commands."""

    def __init__(self, setup: ShellSetup, restrictions: CommandRestrictions) -> None:
        self._setup = setup
        self._restrictions = restrictions
        self._forker = Forker(sys.executable)
        self._looking = anyio.Lock()
        self._is_kept = False
        self._led: LedPlaces | None = None
        self._repositories: list[str] = []
        self._begun_with = LedPlaces()
        """The hidden names and the settings of git that were there before any command."""
        self._lookout = ControlLookout(
            (setup.views.workspace,), RemovedFiles(Path(setup.views.directory))
        )

    def close(self) -> None:
        """End what starts commands, and every command with it."""
        self._forker.close()

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
            if self._led is None:
                # Later looks see what servers of others make.
                self._begun_with = LedPlaces(
                    settled=frozenset(self._lookout.settled),
                    configurations=self._lookout.own_configurations,
                )
            names = leads.modules.names
            self._led = replace(
                self._begun_with, paths=leads.paths, hooks_in_each=leads.in_each, modules=names
            )
            self._repositories = self._lookout.repositories
            return self._led

    async def run(self, command: ShellCommand) -> None:
        """Run a command to its end, and prepare what it changed. `command.ended` is set then."""
        gate = self._restrictions.gate
        asked = 0 if gate is None else gate.count
        view: CommandView | None = None
        try:
            if self._setup.views.directory:
                place = Path(self._setup.views.directory)
                view = CommandView(place, self._setup.views.workspace, self._repositories)
            status = await self._in_restrictions(command, view)
            forbids = self._setup.profile.forbids
            command.host = "" if gate is None else gate.asked_since(asked, forbids)
            command.stopped.set()
            if command.fetched is not None:
                await command.fetched.wait()
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
            command.stopped.set()
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
        if led is None or not self._is_kept or command.fetched is not None:
            led = await self._look_for_leads()
        names = SettledNames(Path(self._setup.views.names)).read()
        led = replace(led, settled=led.settled | names)
        control = Control(self._setup.views.approved, led, self._restrictions.profile().deny_read)
        changes = await anyio.to_thread.run_sync(view.prepare, control)
        has_any = not changes.is_nothing
        name = view.directory.name if has_any else ""
        return Ended(status=status, why=command.why, changes=changes, view=name)

    async def _in_restrictions(self, command: ShellCommand, view: CommandView | None) -> int | None:
        """Run a command. Return its status once nothing of it lives; None: that is not certain."""
        restricted = self._restrictions.around(command.words, command.directory)
        try:
            return await self._started(command, restricted, view)
        finally:
            restricted.remove()

    async def _started(
        self, command: ShellCommand, restricted: RestrictedCommand, view: CommandView | None
    ) -> int | None:
        status_read, status = os.pipe()
        with ExitStack() as theirs:
            theirs.callback(restricted.close)
            theirs.callback(os.close, status)
            wires = _wires(command, theirs)
            given = {**dict(enumerate(wires.given)), status: status}
            given |= {one: one for one in restricted.descriptors}
            command.is_in_view = view is not None
            try:
                command.process = self._start(command, restricted, view, given, status)
            except BaseException:
                os.close(status_read)
                raise
        try:
            return await self._followed(command, wires, status_read)
        finally:
            os.close(status_read)
            if isinstance(command.process, Forked):
                command.process.close()

    def _start(
        self,
        command: ShellCommand,
        restricted: RestrictedCommand,
        view: CommandView | None,
        given: Mapping[int, int],
        status: int,
    ) -> Forked | subprocess.Popen[bytes]:
        words, launch = restricted.argv, restricted.launch
        environment = {**restricted.environment, **command.variables}
        if launch is not None:
            workspace = RealPath.from_text(self._setup.views.workspace)
            environment = with_own_programs(environment, workspace)
        if view is not None:
            limits = self._setup.profile.limits
            words = view.arguments(
                restricted.argv,
                status,
                namespaces=restricted.namespaces,
                limits=f"{limits.processes},{limits.open_files}",
            )
        if view is None or command.reads_ours:
            # What reads our input is our own child: so the proxy finds it.
            return subprocess.Popen(  # noqa: S603  an argument list
                words if view is None else [*mounting_by(sys.executable), *words],
                stdin=given[0],
                stdout=given[1],
                stderr=given[2],
                cwd=command.directory,
                env=environment,
                pass_fds=(*restricted.descriptors, status),
                start_new_session=True,
            )
        return self._forker.start(
            ForkedCommand(
                words=words,
                environment=environment,
                directory=launch.directory.path if launch and launch.directory else "/",
                descriptors=given,
            )
        )

    async def _followed(self, command: ShellCommand, wires: _Wires, status: int) -> int | None:
        process = command.process
        assert process is not None  # noqa: S101  just started
        try:
            async with anyio.create_task_group() as tasks:
                if wires.feed is not None:
                    tasks.start_soon(_in_thread, _feed, wires.feed, command.input)
                if wires.output is not None:
                    tasks.start_soon(_in_thread, _collect, wires.output, command)
                code = await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
                if not command.is_in_view:
                    # Whatever holds the output longer goes on without us.
                    tasks.cancel_scope.cancel()
        except BaseException:
            # Withdrawn: nothing of it may live on, and nothing comes from it.
            command.kill("it was withdrawn")
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_end, process)
            raise
        if not command.is_in_view:
            return code
        said = os.read(status, _STATUS)
        return int(said) if said.isdigit() else None


def _end(process: Forked | subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _in_thread(function: Callable[..., None], *args: object) -> None:
    await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)


def _feed(file: FileIO, content: bytes) -> None:
    rest = memoryview(content)
    with suppress(OSError), file:  # it need not read all of it
        while rest:
            rest = rest[file.write(rest) :]


def _collect(file: FileIO, command: ShellCommand) -> None:
    # The thread may outlive the command, and so it is the one that closes the file.
    with file:
        while part := file.read(_PART):
            command.output.add(part)
            anyio.from_thread.run_sync(command.speaks.set)
