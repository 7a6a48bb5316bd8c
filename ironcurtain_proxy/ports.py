"""What mediation needs from the world. Adapters stand in the folders; `wiring` joins them.

The policy is not a port: mediation asks `decision.authorize` itself, so nobody can plug in another.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from ironcurtain_proxy.model.audit import AuditRecord, PutBack, ResultSummary
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.call import RequestId, ToolCall
from ironcurtain_proxy.model.escalation import Escalation, EscalationId, Held, Ruling, Taken
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.opening import Opening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.reply import Reply
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.timeline import Change, NotHeld, PointId
from ironcurtain_proxy.model.walls import Walls

ProgressListener: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[None]]
"""Is handed the raw `params` of each progress notification of one call."""


class CallHandler(Protocol):
    """What the agent's side hands a `tools/call` to: mediation."""

    async def __call__(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
    ) -> Reply:
        """Carry the call from its arrival to its reply. Never raises but when it is cancelled."""
        ...


class FactGatherer(Protocol):
    """The information point: a call turned into facts."""

    async def gather(self, call: ToolCall) -> Gathered:
        """Find out what the call names. Reads the disk and git; changes nothing."""
        ...

    def fingerprint(self, call: ToolCall, arguments: Arguments) -> str:
        """SHA-256 over server, tool and these arguments, in hexadecimal: equal for equal calls."""
        ...

    def undisturbed(self, facts: Facts) -> AbstractAsyncContextManager[bool]:
        """Keep other calls off the repository while this one is under way, if it pushes.

        Gives whether it had to be waited for.
        """
        ...

    async def directories(self, request: AccessRequest) -> frozenset[RealPath] | None:
        """Those of the request's paths that are directories; None: it cannot be found out."""
        ...

    def roots(
        self, request: AccessRequest, directories: frozenset[RealPath] | None
    ) -> tuple[str, ...]:
        """The directories that a server must be told of to do what was approved."""
        ...

    def succeeded(self, call: AuthorizedCall) -> None:
        """Take note that the call was carried out (it may have set a working directory)."""
        ...


class Servers(Protocol):
    """The downstream servers."""

    async def forward(
        self,
        call: AuthorizedCall,
        on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: Opening | None = None,
    ) -> ToolResult:
        """Send the call to its server and wait for the answer.

        Args:
            call: what the policy allowed or a reviewer approved.
            on_progress: gets the server's progress.
            roots: directories, absolute, that the server may consider its own for this call.
            opening: what was approved beyond what the server's sandbox lets it do.

        Raises:
            DownstreamError: the server is not there, failed, or took too long.
        """
        ...

    def opening(
        self, server: str, request: AccessRequest, hosts: Sequence[str] = ()
    ) -> Opening | str | None:
        """What a call needs beyond what its server's sandbox lets it do.

        Args:
            server: the operator's name of it.
            request: what the policy was asked.
            hosts: what the call is known to reach besides.

        Returns:
            What a second instance can be let into; or in words what no approval opens; None:
            nothing more is needed, as far as anybody knows.
        """
        ...

    def is_sandboxed(self, server: str) -> bool:
        """Whether the very process that serves this server now is confined."""
        ...

    async def walls(self, server: str) -> Walls | None:
        """What that process can touch, found out of itself; None: it is not confined."""
        ...


class ToolFinder(Protocol):
    """Which tool a name stands for."""

    async def ready(self, exposed_name: str) -> None:
        """Wait until the tool can be found, if there is one; not for ever."""
        ...

    def find(self, exposed_name: str) -> tuple[str, str] | None:
        """The (server, tool) that the agent knows by this name; None: there is none."""
        ...

    def definition(self, server: str, tool: str) -> str:
        """SHA-256 of the tool's definition as it is now: a grant is void when it changes."""
        ...

    def names(self, server: str, tool: str) -> frozenset[str]:
        """What the operator may call it: `server/tool`, and `tool` if one server has it."""
        ...


class Recorder(Protocol):
    """The audit log."""

    def summarize(self, result: ToolResult) -> ResultSummary:
        """What is kept of a result: how it ended, its size and its digest."""
        ...

    async def record(self, record: AuditRecord) -> None:
        """Write one record and hand it to the operating system before returning.

        Raises:
            AuditError: it could not be written in time, now or earlier.
        """
        ...


class Reviewer(Protocol):
    """One way to get an answer to an escalation: a mailbox, a client, a terminal, a model."""

    async def ask(self, escalation: Escalation) -> Ruling:
        """Ask, and wait at most until the escalation's deadline.

        `Unreachable` means that this way leads to nobody, or gave no answer that counts: the next
        one is asked. When the asking task is cancelled the question is withdrawn.
        """
        ...


class ReviewDesk(Protocol):
    """Where an escalated call gets its ruling."""

    async def settle(
        self,
        escalation: Escalation,
        on_wait: Callable[[float], Awaitable[None]] | None = None,
    ) -> Ruling | Held | Taken:
        """Ask, or join the same question that is open; or be held while it stays open.

        An approval is one call's. Others that had joined get `Taken`, and may ask for themselves.

        Args:
            escalation: the question.
            on_wait: is told every few seconds for how many seconds the call has waited.
        """
        ...


class Aftermath(Protocol):
    """Whoever wants to know what became of a call that was approved."""

    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        """Take note of it; gives what the record of the call should say besides. Never fails.

        Every approval is told of once.

        Args:
            question: what was approved.
            succeeded: None: the call was not made after all.
        """
        ...


class Lookout(Protocol):
    """Whoever looks after what no server may leave behind."""

    async def look(self) -> tuple[PutBack, ...]:
        """What was put back since the last look. Never fails."""
        ...


class Timeline(Protocol):
    """Points in time of the workspace that calls can be taken back to."""

    async def mark(
        self, call: RequestId, server: str, tool: str, *, may_drop: bool
    ) -> PointId | NotHeld:
        """Make the point before a call.

        `may_drop`: where the bounds are reached, the oldest points of this session may go for it.

        `NotHeld`: the workspace as it is cannot be held (too large, unreadable, disk full).
        """
        ...

    async def settle(self, point: PointId) -> tuple[Change, ...]:
        """Note what changed since the call's point, after the call; also after a cancelled one."""
        ...

    async def holds(self, path: RealPath) -> bool:
        """Whether what is at this path could be brought back if the next call deleted it.

        Not so in a named cache, nor what is too large or unreadable.
        """
        ...


class Containment(Protocol):
    """What may answer in a reviewer's place for what can be taken back."""

    @property
    def timeline(self) -> Timeline:
        """The points of the workspace."""
        ...

    def ended(self) -> str | None:
        """Why it answers for nothing more, in words; None: it does, or a person has looked."""
        ...

    def end(self, call: RequestId, why: str) -> None:
        """End it until a person has looked, and keep what they need to see. Never fails."""
        ...

    def is_same_workspace(self) -> bool:
        """Whether the workspace is still the directory that it was when the servers started."""
        ...


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Aware, UTC."""
        ...

    def steady(self) -> datetime:
        """Aware, UTC: the time at the start and what went by since, sleep included. Never jumps.

        For deadlines and for how long a grant holds: whoever sets the machine's clock changes
        neither. Nothing that other processes read.
        """
        ...

    def monotonic(self) -> float:
        """Seconds, for durations and deadlines."""
        ...


class IdSource(Protocol):
    """Names for calls and questions."""

    def new(self) -> RequestId:
        """A fresh random id of a call."""
        ...

    def new_escalation(self) -> EscalationId:
        """A fresh random UUID for a question."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ports, joined by `wiring`."""

    tools: ToolFinder
    facts: FactGatherer
    desk: ReviewDesk
    servers: Servers
    recorder: Recorder
    clock: Clock
    ids: IdSource
    aftermath: Aftermath | None = None
    lookout: Lookout | None = None
    containment: Containment | None = None
    """None: nothing is contained."""
