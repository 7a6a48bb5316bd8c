"""The kernel of one client: its start, its socket, and its end with the client.

The socket lies in `~/.ironcurtain/doors`, a directory of its user alone, under the client's pid and
start time. Whoever connects must be of the same user, and the client must be among its ancestors.
"""

import logging
import math
import os
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Final

import anyio
import orjson
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from msgspec import DecodeError, Struct, field, json
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.reading.layers import STATE_DIRECTORY
from ironcurtain_proxy.config.servers.servers_file import SHELL_MODULE
from ironcurtain_proxy.config.settings import Settings, home_directory, load_settings
from ironcurtain_proxy.downstream.starting import tidy
from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.facts.client_tools import FILES, TOOLS, client_servers
from ironcurtain_proxy.hooks.client_end import (
    ClientEnd,
    DialogReviewer,
    UnlessLeft,
    can_ask,
)
from ironcurtain_proxy.hooks.dialects import DIALECTS, client_tools
from ironcurtain_proxy.hooks.door import Door
from ironcurtain_proxy.hooks.events import GATES, HookClient, HookDialect
from ironcurtain_proxy.hooks.launching import (
    note_event,
    prefix_file,
    problem_file,
    server_of_our_name,
    steering_variables,
    switched_off_by,
    variables_for_commands,
    variables_of,
)
from ironcurtain_proxy.hooks.places import client_directory, file_in, own_place
from ironcurtain_proxy.hooks.runs import (
    ClientRuns,
    HeldDoor,
    has_hung_up,
    is_below,
    is_of_client,
    peer_of,
    serve_at,
)
from ironcurtain_proxy.mailbox.mailboxes import is_alive, start_of
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.mailbox.session_state import FILE_NAME
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import NameCondition, PathCondition
from ironcurtain_proxy.model.policy import OTHERS_LAYERS, Policy, Rule
from ironcurtain_proxy.model.server import SHELL, ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.own_process import configure_logging
from ironcurtain_proxy.private_files import read_private, write_whole
from ironcurtain_proxy.review.terminal import Channel
from ironcurtain_proxy.sandbox.installed import beyond_agents
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sessions import forget_session, note_session, running_sessions
from ironcurtain_proxy.wiring.confinement import find_sandbox
from ironcurtain_proxy.wiring.proxy import Proxy, assemble
from ironcurtain_proxy.wiring.reviewers import AddedChannels
from ironcurtain_proxy.wiring.shared import Shared

VARIABLES: Final = "hooks.json"
"""The file with the variables that a kernel starts with: those of a project must not count."""
_MOST_BYTES: Final = 16 << 20
"""The most bytes of an event before a call; one that has more is not read, which denies it."""
_MOST_AFTER: Final = 64 << 20
"""Those of another event: after an edit, clients say what was there, what is, and what differs."""
_LARGE: Final = 1 << 20
"""Bytes of an event from which on one arrives at a time, so that many fit into the memory."""
_MOST_VARIABLES: Final = 1 << 16
_MOST_HOOKS: Final = 256
"""The most hooks at once."""
_SECONDS: Final = 30.0
"""Seconds for an event to arrive."""
_HELD_BEFORE: Final = 5.0
"""Seconds before the end of a hook at which a call is held, so that its question stays."""
_LOOK: Final = 0.05
"""Seconds in which whoever has found a door arrives there."""
SHARED: Final = "hooks"
"""The file in a session's directory with the name of its client, whose hooks its kernel serves,
and a line that says why it does not, or empty if it does."""
YIELD: Final = "yield"
"""Said by a proxy for servers that would serve the hooks of its client, too."""
_log: Final = logging.getLogger(__name__)


def serve_door(client: HookClient, parent: int, environ: Mapping[str, str]) -> int:
    """Serve the hooks of a client until it ends.

    Args:
        client: which one.
        parent: its process.
        environ: ours; only the home and the file of variables in it count.

    Raises:
        ConfigurationError: something cannot be used; every call is denied then.
    """
    state = home_directory(environ) / STATE_DIRECTORY
    problem = problem_file(state, client)
    try:
        _serve_door(client, parent, environ, state)
    except Exception as error:
        # The hook that started this process reads none of its output.
        with suppress(OSError):
            write_whole(problem, _in_words(error).encode())
        raise
    return 0


def _in_words(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return _in_words(error.exceptions[0])
    return str(error) if isinstance(error, IronCurtainError) else f"a defect: {error!r:.500}"


def _serve_door(client: HookClient, parent: int, environ: Mapping[str, str], state: Path) -> None:
    owner = Owner(parent, start_of(parent))
    if not owner.start_time:
        raise ConfigurationError(f"there is no process {parent}")
    with ExitStack() as exits:
        place = HeldDoor.of(owner, state)
        if not (place.hold(exits) or place.hold_next(exits)):
            return
        dialect = DIALECTS[client]
        settings = client_settings({**environ, **variables_in(state)}, parent, dialect.patience)
        exits.callback(configure_logging(settings.session_log))
        observes = client in observed_in(state)
        settings = asking_nobody(settings) if observes else settings
        listener = listener_of(settings, dialect, place, exits, observes=observes)
        proxy = listener.proxy
        note_session(settings, client=client, policy=proxy.loaded.version)
        exits.callback(forget_session, settings)
        # Again when it is closed, so that a log which is removed or replaced is missed.
        proxy.note_log()
        exits.callback(proxy.note_log)
        exits.callback(proxy.audit.close)
        proxy.servers.start_processes()
        problem_file(state, client).unlink(missing_ok=True)
        anyio.run(listener.run)


def listener_of(
    settings: Settings,
    dialect: HookDialect,
    place: HeldDoor,
    exits: ExitStack,
    *,
    observes: bool = False,
    beside: Shared | None = None,
) -> "_Listener":
    """Join the kernel of a client with its socket. Starts nothing."""
    asks = observes or (is_attended(settings) and opens_dialog(dialect, place.client.pid))
    proxy = client_proxy(
        settings, dialect, place.beside("run"), asks=asks, observes=observes, beside=beside
    )
    for hold in proxy.holds:
        exits.callback(hold.release)
    exits.callback(tidy, settings.session_dir)
    proxy.note_client(dialect.client)
    file = file_in(dialect.client, directory_in(settings, dialect))
    return _Listener(proxy, dialect, place, file, asks, observes, is_shared=beside is not None)


class _Noted(Struct, frozen=True):
    """What `init` noted for kernels."""

    variables: Mapping[str, str]
    observed: tuple[str, ...] = ()


def variables_in(state: Path) -> Mapping[str, str]:
    """Return the variables that `init` noted for kernels; empty if it noted none.

    Raises:
        ConfigurationError: the file cannot be believed.
    """
    return _noted(state).variables


def observed_in(state: Path) -> Collection[HookClient]:
    """Return the clients whose hooks only record. A file that cannot be believed names none."""
    with suppress(ConfigurationError):
        return [one for one in DIALECTS if one in _noted(state).observed]
    return ()


def _noted(state: Path) -> _Noted:
    try:
        content = read_private(state / VARIABLES, _MOST_VARIABLES, "file of hooks")
        return json.decode(content, type=_Noted)
    except FileNotFoundError:
        return _Noted({})
    except (OSError, DecodeError) as error:
        raise ConfigurationError(f"{state / VARIABLES} cannot be used: run init again") from error


def client_settings(environ: Mapping[str, str], parent: int | None, patience: float) -> Settings:
    """Return the settings with the client's tools as servers, and its directory as workspace.

    Args:
        environ: the kernel's variables.
        parent: the client's process, or None if the workspace is that of the configuration.
        patience: the seconds that a hook waits for a reviewer. A question stays open after that.
    """
    settings = load_settings(dict(environ))
    workspace = settings.workspace
    here = None if parent is None else directory_of(parent)
    is_inside = bool(here and workspace and here.is_within(workspace))
    if here is not None and _is_project(here, settings) and not is_inside:
        workspace = here
    escalation = replace(settings.escalation, hold_after_seconds=patience - _HELD_BEFORE)
    return replace(
        settings,
        workspace=workspace,
        servers=client_servers(None if workspace is None else str(workspace)),
        pins="off",
        escalation=escalation,
        inherited=beyond_agents(settings.inherited, workspace),
    )


def _is_project(here: RealPath, settings: Settings) -> bool:
    """Return whether a directory may be a workspace: neither the home nor what holds it."""
    home = RealPath.from_text(os.path.realpath(settings.home))
    state = RealPath.from_text(os.path.realpath(settings.state_dir))
    return not (home.is_within(here) or state.is_within(here) or here.is_within(state))


def directory_of(pid: int) -> RealPath | None:
    """Return the directory of a client, ours if it hides its own; None if it has vanished."""
    with suppress(OSError):
        try:
            found = Path(f"/proc/{pid}/cwd").readlink()
        except PermissionError:
            found = Path("/proc/self/cwd").readlink()
        return RealPath.from_text(str(found)) if found.is_dir() else None
    return None


def opens_dialog(dialect: HookDialect, parent: int) -> bool:
    """Return whether a client has a dialog that an answer can open."""
    if dialect.asks != "at a terminal":
        return dialect.asks == "always"
    with suppress(OSError):
        found = str(Path(f"/proc/{parent}/fd/0").readlink())
        return found.startswith(("/dev/pts/", "/dev/tty"))
    return False


def is_attended(settings: Settings) -> bool:
    """Return whether somebody is expected at the client: where the engine is on, nobody is.

    Then no dialog of the client is opened, in front of which the session would stand.
    """
    config = settings.auto_confirm
    return config is None or not config.engine.enabled


def asking_nobody(settings: Settings) -> Settings:
    """Return the settings of a kernel that only records: no reviewer is asked."""
    return replace(
        settings, auto_confirm=None, auto_approve=replace(settings.auto_approve, enabled=False)
    )


def client_proxy(
    settings: Settings,
    dialect: HookDialect,
    wire: Path,
    *,
    asks: bool,
    observes: bool = False,
    beside: Shared | None = None,
) -> Proxy:
    """Join the kernel of a client, or its door of the kernel that is running. Starts nothing."""
    # What an administrator keeps of sandboxes and pins is about servers; a client has neither.
    servers = tuple([replace(one, sandbox=None) for one in settings.servers])
    directory, places = directory_in(settings, dialect), dialect.places
    is_moved = directory != settings.home / places.directory
    closed = [directory / one for one in (places.file, *places.closed) if is_moved]
    paths = (*settings.protected_paths, *closed)
    loaded = load_policy(replace(settings, pins="on", servers=servers, protected_paths=paths))
    loaded = replace(loaded, policy=_with_own_places(loaded, settings, dialect))
    tools = {
        server: tuple([ToolDefinition(server, name, found[name]) for name in TOOLS[server]])
        for server, found in client_tools().items()
    }

    dialog = Channel(DialogReviewer(), lambda: observes or can_ask(asks=asks), name="client")
    # A kernel that only records leaves every command as it is.
    shell, sandbox = ((), None) if observes else own_shell(settings, dialect)
    return assemble(
        settings,
        loaded,
        settings.inherited,
        sandbox=sandbox,
        ways=AddedChannels(
            last=dialog if is_attended(settings) else None,
            around=UnlessLeft,
            only=dialog if observes else None,
        ),
        own=ClientEnd(
            dialect.client, tools, settings.workspace, shell, str(wire), observes=observes
        ),
        beside=beside,
    )


def own_shell(
    settings: Settings, dialect: HookDialect
) -> tuple[tuple[ServerSpec, ...], Available | None]:
    """Return our own shell, for the client's commands, and its sandbox; empty if none can hold."""
    if dialect.prefix is None or not settings.containment.undo or settings.workspace is None:
        return (), None
    spec = replace(
        next(one for one in settings.servers if one.name == SHELL),
        command=sys.executable,
        args=("-I", "-m", SHELL_MODULE),
        sandbox=None,
        builtin="shell",
    )
    directory = directory_in(settings, dialect)
    for text in dialect.places.makes:
        base, below = own_place(dialect, settings.home, directory, text)
        with suppress(OSError):
            (base / below).mkdir(mode=0o700, parents=True, exist_ok=True)
    alone = replace(settings, servers=(spec,), sandbox_policy="warn")
    found = find_sandbox(alone, settings.inherited, _log.warning)
    return ((spec,), found) if found is not None else ((), None)


def directory_in(settings: Settings, dialect: HookDialect) -> Path:
    """Return the client's own directory.

    Raises:
        ConfigurationError: the agent could change what lies there.
    """
    found = client_directory(dialect.client, settings.home, settings.state_dir)
    name = dialect.places.directory
    real, workspace = RealPath.from_text(os.path.realpath(found)), settings.workspace
    is_closed = found.name == name or found == settings.home / name
    if workspace and real.is_within(workspace) and not is_closed:
        raise ConfigurationError(
            f"{found} has the settings of {dialect.client} and is in the workspace, where agents "
            f"write: call it {name} or move it out, and install the hooks again"
        )
    return found


def _with_own_places(loaded: LoadedPolicy, settings: Settings, dialect: HookDialect) -> Policy:
    """Return the policy with the client's own places behind the operator's own rules."""
    directory = directory_in(settings, dialect)
    project = dialect.project(directory, str(settings.workspace or ""))
    roles: dict[ArgumentRole, tuple[str, ...]]
    roles, own = {"read-path": dialect.places.reads, "write-path": dialect.places.writes}, []
    for role, places in roles.items():
        of = frozenset({role})
        for number, text in enumerate(places):
            place, _, name = text.format(project=project).partition("/**/")
            base, below = own_place(dialect, settings.home, directory, place)
            parts = RealPath.from_text(os.path.realpath(base)).parts
            rule = Rule(
                name=f"client-{role}-{number}",
                effect="allow",
                reason="It is a place of the client's own.",
                servers=frozenset({FILES}),
                paths=PathCondition(roles=of, within=RealPath((*parts, *below.split("/")))),
                names=NameCondition(roles=of, matching=frozenset({name})) if name else None,
            )
            own += [rule] if project or "{project}" not in text else []
    policy = loaded.policy
    first = [one.layer not in OTHERS_LAYERS for one in policy.rules].count(True)
    return replace(policy, rules=(*policy.rules[:first], *own, *policy.rules[first:]))


class _Listener(Struct, frozen=True):
    """The socket of a kernel."""

    proxy: Proxy
    dialect: HookDialect
    place: HeldDoor
    file: Path
    """The client's settings of its user."""
    asks: bool
    observes: bool
    is_shared: bool
    """Whether the kernel is that of the proxy for servers."""
    large: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by the one large event that arrives."""

    async def run(self) -> None:
        """Serve until the client ends."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.proxy.run)
            await self.proxy.catalogue.listing()
            door = Door(
                dialect=self.dialect,
                entry=self.proxy.calls,
                tasks=tasks,
                asks=self.asks,
                observes=self.observes,
                on_prompt=self._prompt,
                on_end=tasks.cancel_scope.cancel,
                is_foreign=self._is_foreign,
                switched_off=lambda: switched_off_by(self.dialect, *self._places),
                workspace=str(self.proxy.settings.workspace or "/"),
                given_in=self._given_in,
            )
            tasks.start_soon(self._end_with_client, tasks)
            if self.dialect.prefix is not None:
                directory = str(directory_in(self.proxy.settings, self.dialect))
                tasks.start_soon(ClientRuns(door, self.place, directory).run)
            limiter = anyio.CapacityLimiter(_MOST_HOOKS)

            async def serve(stream: SocketStream) -> None:
                async with stream, limiter:
                    try:
                        await self._serve(door, limiter, stream)
                    except Exception:  # noqa: BLE001  without an answer, the hook denies the call
                        _log.exception("a hook of %s met a defect", self.dialect.client)

            await serve_at(self.place.path, serve)

    @property
    def _places(self) -> tuple[Path, Path]:
        """The client's directory and the home."""
        here, home = directory_of(self.place.client.pid), self.proxy.settings.home
        return Path(str(here or home)), Path(os.path.realpath(home))

    def _is_foreign(self) -> bool:
        found = server_of_our_name(self.dialect, *self._places)
        if found:
            _log.warning("%s has a server of our name: its calls are asked about", found)
        return bool(found)

    def _given_in(self, directory: str) -> dict[str, str]:
        (here, home), seen = self._places, variables_for_commands
        return seen(self.dialect, here, home) | seen(self.dialect, Path(directory), home)

    async def _end_with_client(self, tasks: TaskGroup) -> None:
        with suppress(ProcessLookupError):
            ended = os.pidfd_open(self.place.client.pid)
            try:
                if is_alive(self.place.client):
                    await anyio.wait_readable(ended)
            finally:
                os.close(ended)
        tasks.cancel_scope.cancel()

    async def _serve(
        self, door: Door, limiter: anyio.CapacityLimiter, stream: SocketStream
    ) -> None:
        raw_socket: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610  not Django
        if not is_of_client(raw_socket, self.place.client):
            _log.warning("a process that is not the client's was turned away at its door")
            return
        message = bytearray()
        fault = await self._receive(stream, message)
        head, _, raw = bytes(message).partition(b"\n")
        del message
        client, _, rest = head.decode("utf-8", "replace").partition(" ")
        event, _, prefix = rest.partition(" ")
        if client == self.dialect.client and event == YIELD:
            await self._yield(door, limiter, stream)
            return
        if client != self.dialect.client or event not in self.dialect.events:
            await self._refuse_foreign(door, client, event, raw, stream)
            return
        with suppress(OSError):
            self.place.note_event()
            note_event(self.proxy.settings.state_dir, self.dialect.client)
        door.is_prefixed = prefix == str(prefix_file(self.proxy.settings.state_dir, client))
        if self.dialect.events[event] in GATES:
            fault = self._see(door, peer_of(raw_socket)[0]) or fault
            fault = f"it has more than {_MOST_BYTES} bytes" if len(raw) > _MOST_BYTES else fault
        if fault:
            answer = await door.refuse_unread(event, raw, fault)
        else:
            answer = await door.answer(event, raw, lambda: not has_hung_up(raw_socket))
        await _say(stream, answer)
        if self.proxy.audit.latched and not (self.is_shared or door.is_busy):
            door.on_end()  # the next hook starts a kernel that opens the log anew

    def _see(self, door: Door, hook: int) -> str:
        """Note the variables of a hook. Return what is wrong, or empty."""
        client, home = self.place.client.pid, self.proxy.settings.home
        try:
            given = variables_of(hook)
            door.steering = steering_variables(self.dialect, given, hook, client, home, self.file)
        except OSError:
            return "the hook has ended"
        door.path = given.get("PATH", "")
        return ""

    async def _refuse_foreign(
        self, door: Door, client: str, event: str, raw: bytes, stream: SocketStream
    ) -> None:
        """Deny a call in the form of another client, whose hook was started.

        Cursor also starts the hooks in Claude Code's files. Without an answer, the hook denies what
        may be denied.
        """
        why = f"a hook for {client[:20]} was started by {self.dialect.client}"
        other = DIALECTS.get(client)
        if other is None or other.events.get(event) not in GATES:
            _log.warning("%s", why)
            return
        answer = await door.refuse_unread(event, raw, why, other)
        await _say(stream, answer)

    async def _receive(self, stream: SocketStream, message: bytearray) -> str:
        """Receive a message, of which the beginning is kept if it is too large.

        All of it is read, because its sender reads the answer after that.

        Returns:
            What is wrong with it, or empty.
        """
        size = 0
        async with AsyncExitStack() as turn:
            with (
                anyio.move_on_after(_SECONDS) as arriving,
                suppress(anyio.BrokenResourceError, anyio.ClosedResourceError),
            ):
                async for block in stream:
                    if size <= _LARGE < size + len(block):
                        arriving.deadline = math.inf
                        await turn.enter_async_context(self.large)
                        arriving.deadline = anyio.current_time() + _SECONDS
                    size += len(block)
                    if size <= _MOST_AFTER:
                        message += block
        if arriving.cancelled_caught:
            return "it does not arrive whole"
        return f"it has {size} bytes" if size > _MOST_AFTER else ""

    async def _yield(
        self, door: Door, limiter: anyio.CapacityLimiter, stream: SocketStream
    ) -> None:
        """Leave the door to the client's proxy for servers, unless a call was judged here.

        It is told `yes` and the user's words, why not, or `later` while a hook is here.
        """
        answer = b"calls had come before this proxy was there"
        if self.is_shared:
            answer = b"another proxy that the client started serves them"
        elif not door.calls:
            answer, hidden = b"later", self.place.beside("left")
            with suppress(OSError):
                self.place.path.rename(hidden)
                # A client that found the socket before it was renamed is served first.
                await anyio.sleep(_LOOK)
                if limiter.borrowed_tokens > 1 or door.calls:
                    hidden.rename(self.place.path)
                else:
                    hidden.unlink()
                    answer = b"yes"
                    with suppress(OSError):
                        answer += (self.proxy.settings.mailbox_dir / FILE_NAME).read_bytes()
                    self._prompt("")
        await _say(stream, answer)
        if answer.startswith(b"yes"):
            door.on_end()

    def _prompt(self, text: str) -> None:
        """Write the user's words where the auto-approvers of this client's kernels read them."""
        for directory in self._mailboxes():
            with suppress(OSError):
                # First, so that a full disk leaves no earlier words.
                (directory / FILE_NAME).unlink(missing_ok=True)
                if text.strip():
                    context: Json = {"userMessage": text, "source": "hook"}
                    write_whole(directory / FILE_NAME, orjson.dumps(context))

    def _mailboxes(self) -> list[Path]:
        settings, client = self.proxy.settings, self.place.client
        states = [one.state for one in running_sessions(settings.sessions_dir)]
        below = [one.mailboxes[:1] for one in states if is_below(one.pid, client)]
        return [settings.mailbox_dir, *[Path(text) for texts in below for text in texts]]


async def _say(stream: SocketStream, answer: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stream.send(answer + b"\0")
