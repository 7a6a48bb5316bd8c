"""The client as a server of the kernel: what carries out an authorized call is the client itself.

Theory of operation: a hook waits before each call. The call goes through mediation like any other,
and where a server would be asked, `ClientEnd.forward` lets the hook answer. It returns when the
client says that the call has ended, so the point of the timeline and the record of the outcome come
when they do for a server's call.

    hook before the call ── mediation ── forward: let go ····· hook after the call ── outcome

A command that is held runs in a view of our own shell instead, once the client starts it (see
`runs`); it ends when its changes are in the workspace, whatever the client says of it.

    hook before the call ── mediation ── forward: let go ··· the client starts it ── our own shell

Mediation does not know of this. The call under way is found by a context variable, which the tasks
of mediation inherit; calls that come through another door have none, and are not forwarded here.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Final, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.errors import ServerUnavailableError, UnansweredError
from ironcurtain_proxy.facts.client_tools import FILES
from ironcurtain_proxy.facts.live_catalogue import ToolLists
from ironcurtain_proxy.hooks.events import (
    Approve,
    AskInClient,
    BeforeCall,
    HookClient,
    NoObjection,
    Refuse,
    Verdict,
)
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.decision import IN_CLIENT, KERNEL, Decider, in_record
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling, Unreachable, cut
from ironcurtain_proxy.model.grant import OPENS, SandboxOpening
from ironcurtain_proxy.model.operation import Operation, ProgressListener
from ironcurtain_proxy.model.reply import AuditRecord, OwnField, ResultSummary
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered
from ironcurtain_proxy.model.server import (
    SHELL,
    SandboxRestrictions,
    ServerSpec,
    ToolDefinition,
    ToolResult,
)
from ironcurtain_proxy.model.values import Arguments, Json, RealPath
from ironcurtain_proxy.ports import FactGatherer, PreparedViews, Recorder, Reviewer, Servers
from ironcurtain_proxy.sandbox.shell_setup import ClientCommand, ClientCommandEnd, call_digest

_log: Final = logging.getLogger(__name__)

_MOST_SECONDS: Final = 1200.0
"""Seconds after which the end of a call counts as unknown: ten minutes after the client's limit."""
_MOST_SAID: Final = 1000
"""The most characters of a question in the client's dialog."""


class HeldRun(Struct, kw_only=True, eq=False):
    """The client's process that stands for a command which runs in a view."""

    command: ClientCommand
    descriptors: Sequence[int]
    """Its input, output and errors."""
    signals: MemoryObjectReceiveStream[bytes]
    """Ends with that process."""
    is_fetched: bool = False
    end: ClientCommandEnd | None = None
    """How it ended, or None if nobody has said."""


class OpenCall(Struct, kw_only=True, eq=False):
    """One call of a client, from its hook to its end."""

    event: BeforeCall
    given: tuple[str, Arguments]
    """The name in the common table, and the arguments as the client has them."""
    directory: str = ""
    """Where a command is to run, as it was judged, or empty if it is no command."""
    verdict: Verdict | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    recorded: anyio.Event = field(default_factory=anyio.Event)
    """Set once the outcome has its record, and the point of the call is closed."""
    result: ToolResult | None = None
    """The result, or None if the client has not said how the call ended."""
    why_native: str = ""
    """Why a command cannot run in a view, or empty if it can."""
    in_view: bool = False
    """Whether it is to run in a view: nothing that it changes comes into the workspace before its
    commit."""
    is_steered: bool = False
    """Whether it was judged as if its agent had set variables that steer it."""
    digest: str = ""
    """What the authorized command is fetched by, or empty if it is not to be run in a view."""
    run: HeldRun | None = None
    """The client's process that stands for the command, once it has come."""
    moved: anyio.Event = field(default_factory=anyio.Event)
    """Set once the client has started a command that is held, or the call has ended."""
    has_come: bool = False
    """Whether the client has come to start it: it may do so once."""
    told: tuple[str, Json] | None = None
    """What the client said of the end of a command that it had not started yet."""
    said: str = ""
    """What is told to the agent besides the output, once it is recorded."""
    has_failed: bool = False
    """Whether the reply says so."""
    decider: Decider = KERNEL
    """Who allowed it, as the record of the intent has it."""
    why: str = ""
    """The reason in that record."""
    question: str = ""
    """What the client's dialog asks, or empty if it is not asked about."""
    left: anyio.Event = field(default_factory=anyio.Event)
    """Set once the client's user has answered in the client's dialog."""

    @property
    def name(self) -> str:
        """The beginning of the client's name of the tool, which may be anything."""
        return self.event.tool[:100]

    def decide(self, verdict: Verdict) -> None:
        """Answer the hook. The first answer counts."""
        if self.verdict is None:
            self.verdict = verdict
            self.decided.set()

    @property
    def is_awaited(self) -> bool:
        """Whether it is a command that was let go and has yet to start."""
        is_free = self.verdict is not None and not isinstance(self.verdict, Refuse)
        return bool(self.directory) and is_free and not (self.has_come or self.ended.is_set())

    @property
    def goes_on(self) -> bool:
        """Whether it is a command that the client starts beside what the agent does next."""
        return bool(self.directory) and (
            self.event.tool != "Bash" or self.given[1].get("run_in_background") is True
        )

    @property
    def is_held(self) -> bool:
        """Whether it runs in a view by now, so that its end is not the client's to tell."""
        return self.run is not None

    def end(self, error: str | None, given: Json = None) -> None:
        """Note how the call ended, or None if nobody knows, and what the agent gets."""
        if not self.ended.is_set() and not self.is_held:
            if error is not None:
                told: list[Json] = [{"type": "text", "text": error}] if error else []
                shown: dict[str, Json] = {} if given is None else {"structuredContent": given}
                self.result = ToolResult(result={"content": told, "isError": bool(error), **shown})
            self.ended.set()
            self.moved.set()

    async def made(self) -> ToolResult:
        """Wait until the client says how it ended.

        Raises:
            UnansweredError: it does not.
        """
        with anyio.move_on_after(_MOST_SECONDS):
            await self.ended.wait()
        if self.result is None:
            raise UnansweredError("the client did not say how the call ended")
        return self.result


CURRENT: Final[ContextVar[OpenCall | None]] = ContextVar(
    "the client's call under way", default=None
)


class CommandShell(Servers, ToolLists, Protocol):
    """Our own shell, where it runs."""


class ClientEnd:
    """The receiver of authorized calls: the client. Implements `ports.Servers`."""

    def __init__(
        self,
        client: HookClient,
        tools: Mapping[str, tuple[ToolDefinition, ...]],
        workspace: RealPath | None,
        specs: Sequence[ServerSpec] = (),
        wire: str = "",
        *,
        observes: bool = False,
    ) -> None:
        """Hold what the client is.

        Args:
            client: which one.
            tools: its tools, by equivalent server.
            workspace: its project, if it has one.
            specs: our own shell, for its commands. Without it they run as the client runs them.
            wire: the socket at which our own shell fetches them.
            observes: whether calls are only recorded.
        """
        self.client = client
        self._observes = observes
        self.specs, self.wire = specs, wire
        self.why_native = "commands of this client do not run in a sandbox"
        """Why no command is held, or empty if it may be."""
        self._tools = tools
        self._workspace = workspace
        self._shell: CommandShell | None = None

    def hold_commands(self, shell: CommandShell, views: PreparedViews) -> PreparedViews:
        """Let our own shell run the commands. Return its views, of the calls that have one."""
        self._shell, self.why_native = shell, ""
        return _HeldViews(views)

    # --- as the source of tools

    def tools_now(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        """Return the client's tools, by equivalent server."""
        return self._tools

    async def until_settled(self, server: str) -> None:
        """Return at once: the tools are known."""

    async def until_started(self, _server: str) -> str:
        """Return at once: the client runs."""
        return ""

    async def list_again(self, _server: str) -> None:
        """Return at once: the tools are known."""

    # --- as the servers

    async def forward(
        self,
        call: AuthorizedCall,
        on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: SandboxOpening | None = None,
    ) -> ToolResult:
        """Let the client make the call, or hold its command, and wait until it has ended."""
        under_way = CURRENT.get()
        if under_way is None or under_way.verdict is not None:
            raise ServerUnavailableError("no client waits for this call")
        if under_way.in_view and self._shell is not None:
            if under_way.decider == IN_CLIENT:
                # It joined the question of an equal call, and would run without a point.
                raise ServerUnavailableError("an equal call was asked about: make it once more")
            under_way.digest = call_digest(call.arguments)
        under_way.decide(_let_go(under_way.decider, under_way.question or under_way.why))
        if under_way.digest:
            with anyio.move_on_after(_MOST_SECONDS):
                await self._begin(under_way)
        if under_way.is_held and self._shell is not None:
            return await self._shell.forward(call, on_progress, roots=roots, opening=opening)
        return await under_way.made()

    async def _begin(self, call: OpenCall) -> None:
        """Wait until the client has started a command that is to be held, or has ended the call.

        Raises:
            UnansweredError: the command ran outside the sandbox.
        """
        await call.moved.wait()
        if call.is_held:
            return
        call.digest = ""
        if call.result is not None and not (call.result.has_failed or call.has_come):
            self.why_native = "a command ran outside its sandbox: its client did not start it there"
            _log.warning("%s", self.why_native)
            raise UnansweredError(self.why_native)

    def opening(
        self,
        server: str,
        request: AccessRequest,
        hosts: Sequence[str] = (),
        paths: Sequence[RealPath] = (),
        programs: Sequence[str] = (),
    ) -> SandboxOpening | str | None:
        """Return what a command needs beyond its sandbox; None: there is none around the call."""
        held = self._holding(server)
        return None if held is None else held.opening(server, request, hosts, paths, programs)

    def is_sandboxed(self, server: str) -> bool:
        """Return whether the call is to run in a sandbox."""
        under_way = CURRENT.get()
        return server == SHELL and under_way is not None and under_way.in_view

    async def restrictions(self, server: str) -> SandboxRestrictions | None:
        """Return the limits of the client's file tools, which write what the call names alone.

        A command that is asked about has those of our own shell, if that can hold it: then it is to
        run in a view.
        """
        if server == FILES and self._workspace is not None:
            return SandboxRestrictions(writable=(self._workspace,), temporary=None, is_offline=True)
        under_way, held = CURRENT.get(), self._holding(server)
        if server != SHELL or under_way is None:
            return None
        if held is None:
            why = self.why_native or under_way.why_native
            return SandboxRestrictions(writable=(), temporary=None, is_offline=True, unfit=why)
        await held.until_started(server)
        restrictions = await held.restrictions(server)
        under_way.in_view = restrictions is not None
        return restrictions

    def _holding(self, server: str) -> CommandShell | None:
        """Return our own shell, or None if the call under way is not for it."""
        under_way = CURRENT.get()
        is_held = under_way is not None and not (under_way.why_native or self.why_native)
        return self._shell if server == SHELL and is_held else None

    async def stand_still(self, _server: str) -> None:
        """Do nothing: what the client started is its own, and of a view nothing is left."""

    def release(self, _server: str) -> None:
        """Do nothing."""

    # --- around other ports

    def telling(self, facts: FactGatherer) -> FactGatherer:
        """Add the caller to the facts that a reviewer is shown."""
        return _TellingFacts(facts)

    def noting(self, recorder: Recorder) -> Recorder:
        """Add the door and the caller to each record."""
        return _NotingRecorder(recorder, self.client, observes=self._observes)


def _let_go(by: Decider, why: str) -> Verdict:
    if by == KERNEL:
        return NoObjection()
    if by == IN_CLIENT:
        return AskInClient(f"IronCurtain: {why}")
    return Approve(f"IronCurtain: allowed by {in_record(by)}")


class _HeldViews:
    """The views of our own shell, for the calls that have one. Implements `ports.PreparedViews`."""

    def __init__(self, views: PreparedViews) -> None:
        self.changes = views.changes
        self.files_among = views.files_among
        self.commit = views.commit
        self.take_back = views.take_back
        self.end = views.end

    def serves(self, _server: str) -> bool:
        """Return whether the call under way is to run in a view."""
        under_way = CURRENT.get()
        return under_way is not None and under_way.in_view


class DialogReviewer:
    """The last way to a reviewer: the client's own dialog. Implements `ports.Reviewer`."""

    async def ask(self, escalation: Escalation) -> Ruling:
        """Leave the question to the client's user: then the client runs what it is about."""
        under_way = CURRENT.get()
        if under_way is not None:
            under_way.in_view = False
            under_way.question = _asked(escalation)
        return Approved(by=IN_CLIENT, reasoning=escalation.ground.reason)


def _asked(escalation: Escalation) -> str:
    """Return what the client's dialog asks, the gravest first: it shows nothing else of ours.

    It says what a reviewer is told; the rule alone is the same for most commands.
    """
    # What an approval opens of a sandbox it does not open here: the client runs the call.
    more = [f"{name}: {text}" for name, text in escalation.context if name != OPENS]
    said = (*escalation.told, escalation.ground.reason, *more)
    return cut(" ".join([f"{one.removesuffix('.')}." for one in said]), _MOST_SAID)


def can_ask(*, asks: bool) -> bool:
    """Return whether the client opens its dialog about the call under way, or one if it can."""
    under_way = CURRENT.get()
    if under_way is None:
        return asks
    return under_way.event.is_asked or (asks and under_way.event.has_dialog)


class UnlessLeft:
    """A reviewer whose question ends once the client's user has answered in the client's dialog.

    That dialog may stand open beside ours. Implements `ports.Reviewer`.
    """

    def __init__(self, reviewer: Reviewer) -> None:
        self._reviewer = reviewer

    async def ask(self, escalation: Escalation) -> Ruling:
        """Return the reviewer's answer; `Unreachable` if the client's user was quicker."""
        under_way = CURRENT.get()
        if under_way is None or not under_way.event.is_asked:
            return await self._reviewer.ask(escalation)
        ruling: Ruling = Unreachable()

        async def ask() -> None:
            nonlocal ruling
            ruling = await self._reviewer.ask(escalation)
            asking.cancel_scope.cancel()

        async with anyio.create_task_group() as asking:
            asking.start_soon(ask)
            await under_way.left.wait()
            asking.cancel_scope.cancel()
        return ruling


class _TellingFacts:
    """Facts with the sub-agent that calls. Implements `ports.FactGatherer`."""

    def __init__(self, facts: FactGatherer) -> None:
        self._facts = facts
        self.canonical = facts.canonical
        self.fingerprint = facts.fingerprint
        self.directories = facts.directories
        self.roots = facts.roots
        self.succeeded = facts.succeeded

    async def gather(self, call: Operation) -> Gathered:
        """Gather the facts of a call, and name its caller."""
        gathered, under_way = await self._facts.gather(call), CURRENT.get()
        if not isinstance(gathered, Facts) or under_way is None:
            return gathered
        if under_way.event.is_asked:
            gathered = replace(gathered, client_asks=True)
        if not under_way.event.caller.id:
            return gathered
        told = f"{under_way.event.caller}; what is remembered also covers the other agents here"
        return replace(gathered, context=(*gathered.context, ("Asked by", told)))

    def undisturbed(self, facts: Facts) -> AbstractAsyncContextManager[bool] | None:
        """Keep other calls off the repository."""
        return self._facts.undisturbed(facts)


class _NotingRecorder:
    """A recorder that notes the door of each call. Implements `ports.Recorder`."""

    def __init__(self, recorder: Recorder, client: HookClient, *, observes: bool) -> None:
        self._recorder = recorder
        self._client = client
        self._observes = observes

    def summarize(self, result: ToolResult) -> ResultSummary:
        """Summarize a result."""
        return self._recorder.summarize(result)

    async def record(self, record: AuditRecord) -> None:
        """Write a record, with the door and the caller."""
        under_way = CURRENT.get()
        if under_way is not None:
            under_way.decider, under_way.why = record.decided_by, record.reason
            told: list[tuple[str, Json]] = [
                OwnField("door", "hook"),
                OwnField("hookClient", self._client),
                ("hookTool", under_way.name),
            ]
            if self._observes:
                told += [("observed", True)]
            if under_way.event.caller.id:
                told += [("agent", under_way.event.caller.id[:100])]
                told += [("agentType", under_way.event.caller.kind[:100])]
            record = replace(record, context=(*record.context, *told))
        await self._recorder.record(record)
