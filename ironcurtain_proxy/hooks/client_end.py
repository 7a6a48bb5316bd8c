"""The client as a server of the kernel: what carries out an authorized call is the client itself.

Theory of operation: a hook waits before each call. The call goes through mediation like any other,
and where a server would be asked, `ClientEnd.forward` lets the hook answer. It returns when the
client says that the call has ended, so the point of the timeline and the record of the outcome come
when they do for a server's call.

    hook before the call ── mediation ── forward: let go ····· hook after the call ── outcome

Mediation does not know of this. The call under way is found by a context variable, which the tasks
of mediation inherit; calls that come through another door have none, and are not forwarded here.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

import anyio
from msgspec import structs

from ironcurtain_proxy.approval.settlements import LEFT_TO_CLIENT
from ironcurtain_proxy.errors import ServerUnavailableError, UnansweredError
from ironcurtain_proxy.facts.client_tools import FILES
from ironcurtain_proxy.hooks.events import (
    Approve,
    AskInClient,
    CallingAgent,
    HookClient,
    NoObjection,
    Verdict,
)
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.decision import IN_CLIENT, KERNEL, Decider, in_record
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling, Unreachable
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.reply import AuditRecord, OwnField, ResultSummary
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult, Walls
from ironcurtain_proxy.model.values import Arguments, Json, RealPath
from ironcurtain_proxy.ports import FactGatherer, ProgressListener, Recorder, Reviewer

_MOST_SECONDS: Final = 1200.0
"""Seconds after which the end of a call counts as unknown: ten minutes after the client's limit."""


@dataclass(slots=True, eq=False, kw_only=True)
class OpenCall:
    """One call of a client, from its hook to its end."""

    id: str
    caller: CallingAgent
    tool: str
    """The client's own name of the tool."""
    given: tuple[str, Arguments]
    """The name in the common table, and the arguments as the client has them."""
    verdict: Verdict | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    recorded: anyio.Event = field(default_factory=anyio.Event)
    """Set once the outcome has its record, and the point of the call is closed."""
    result: ToolResult | None = None
    """The result; None: the client has not said how the call ended."""
    decider: Decider = KERNEL
    """Who allowed it, as the record of the intent has it."""
    why: str = ""
    """The reason in that record."""
    has_dialog: bool = True
    """Whether the client asks its user where a hook tells it to."""
    is_asked: bool = False
    """Whether the client is about to ask its user about the call."""
    left: anyio.Event = field(default_factory=anyio.Event)
    """Set once the client's user has answered in the client's dialog."""

    def decide(self, verdict: Verdict) -> None:
        """Answer the hook. The first answer counts."""
        if self.verdict is None:
            self.verdict = verdict
            self.decided.set()

    def end(self, error: str | None) -> None:
        """Note how the call ended; None: nobody knows."""
        if not self.ended.is_set():
            if error is not None:
                told: list[Json] = [{"type": "text", "text": error}] if error else []
                self.result = ToolResult(result={"content": told, "isError": bool(error)})
            self.ended.set()


CURRENT: Final[ContextVar[OpenCall | None]] = ContextVar(
    "the client's call under way", default=None
)


class ClientEnd:
    """The receiver of authorized calls: the client. Implements `ports.Servers`."""

    def __init__(
        self,
        client: HookClient,
        tools: Mapping[str, tuple[ToolDefinition, ...]],
        workspace: RealPath | None,
        *,
        observes: bool = False,
    ) -> None:
        self.client = client
        self._observes = observes
        self._tools = tools
        self._workspace = workspace

    # --- as the source of tools

    def tools_now(self) -> Mapping[str, tuple[ToolDefinition, ...]]:
        """Return the client's tools, by equivalent server."""
        return self._tools

    async def until_settled(self, server: str) -> None:
        """Return at once: the tools are known."""

    async def until_started(self, _server: str) -> str:
        """Return at once: the client runs."""
        return ""

    # --- as the servers

    async def forward(
        self,
        call: AuthorizedCall,
        _on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: SandboxOpening | None = None,
    ) -> ToolResult:
        """Let the client make the call, and wait until it has ended."""
        del call, roots, opening  # the client makes its own call, without a sandbox of ours
        under_way = CURRENT.get()
        if under_way is None or under_way.verdict is not None:
            raise ServerUnavailableError("no client waits for this call")
        under_way.decide(_let_go(under_way.decider, under_way.why))
        with anyio.move_on_after(_MOST_SECONDS):
            await under_way.ended.wait()
        if under_way.result is None:
            raise UnansweredError("the client did not say how the call ended")
        return under_way.result

    def opening(
        self,
        _server: str,
        _request: AccessRequest,
        _hosts: Sequence[str] = (),
        _paths: Sequence[RealPath] = (),
        _programs: Sequence[str] = (),
    ) -> None:
        """Return None: where there is no sandbox, nothing needs to be opened."""

    def is_sandboxed(self, _server: str) -> bool:
        """Return False: the client runs its tools as it likes."""
        return False

    async def walls(self, server: str) -> Walls | None:
        """Return the limits of the client's file tools, which write what the call names alone."""
        if server != FILES or self._workspace is None:
            return None
        return Walls(writable=(self._workspace,), temporary=None, is_offline=True)

    async def stand_still(self, _server: str) -> None:
        """Do nothing: what the client started is its own."""

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
        return AskInClient(f"IronCurtain: {why.removeprefix(LEFT_TO_CLIENT)}")
    return Approve(f"IronCurtain: allowed by {in_record(by)}")


class DialogReviewer:
    """The last way to a reviewer: the client's own dialog. Implements `ports.Reviewer`."""

    async def ask(self, escalation: Escalation) -> Ruling:
        """Leave the question to the client's user."""
        return Approved(by=IN_CLIENT, reasoning=escalation.ground.reason)


def may_ask() -> bool:
    """Return whether the client would open its dialog about the call under way if told to."""
    under_way = CURRENT.get()
    return under_way is None or under_way.has_dialog


def is_asking() -> bool:
    """Return whether the client is about to open its dialog about the call under way."""
    under_way = CURRENT.get()
    return under_way is not None and under_way.is_asked


class UnlessLeft:
    """A reviewer whose question ends once the client's user has answered in the client's dialog.

    That dialog may stand open beside ours. Implements `ports.Reviewer`.
    """

    def __init__(self, reviewer: Reviewer) -> None:
        self._reviewer = reviewer

    async def ask(self, escalation: Escalation) -> Ruling:
        """Return the reviewer's answer; `Unreachable` if the client's user was quicker."""
        under_way = CURRENT.get()
        if under_way is None or not under_way.is_asked:
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
        if under_way.is_asked:
            gathered = structs.replace(gathered, client_asks=True)
        if not under_way.caller.id:
            return gathered
        told = f"{under_way.caller}; what is remembered also covers the other agents here"
        return structs.replace(gathered, context=(*gathered.context, ("Asked by", told)))

    def undisturbed(self, facts: Facts) -> AbstractAsyncContextManager[bool]:
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
                ("hookTool", under_way.tool[:100]),
            ]
            if self._observes:
                told += [("observed", True)]
            if under_way.caller.id:
                told += [("agent", under_way.caller.id[:100])]
                told += [("agentType", under_way.caller.kind[:100])]
            record = structs.replace(record, context=(*record.context, *told))
        await self._recorder.record(record)
