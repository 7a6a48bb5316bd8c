"""The ports in memory: they keep what they saw, and fail where a test says so."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ironcurtain_proxy.errors import AuditError
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.mediation.judge import Overlay
from ironcurtain_proxy.mediation.session import Session, SessionSettings
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolsAlike
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import OWN_TOOL
from ironcurtain_proxy.model.escalation import (
    UNCHANGED,
    Escalation,
    EscalationId,
    Held,
    Ruling,
    Superseded,
    Unpublished,
    Unreachable,
)
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import Operation, ProgressListener, RequestId
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered, PathValue
from ironcurtain_proxy.model.server import SandboxRestrictions, ToolResult
from ironcurtain_proxy.model.values import Arguments, RealPath
from ironcurtain_proxy.ports import Containment, Lookout, OutcomeListener, Timeline, World

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: to read the authorities of TLS would be 25 ms of each client."""

DONE = ToolResult(result={"content": [{"type": "text", "text": "done"}]})


@dataclass
class FakeTools:
    known: dict[str, tuple[str, str]] = field(default_factory=lambda: {"read": ("files", "read")})

    digest: str = "d1"
    like: tuple[str, ...] = ()

    async def ready(self, exposed_name: str) -> str:
        return ""

    def find(self, exposed_name: str) -> tuple[str, str] | None:
        return self.known.get(exposed_name)

    def definition(self, server: str, tool: str) -> str:
        return self.digest

    def names(self, server: str, tool: str) -> frozenset[str]:
        return frozenset([f"{server}/{tool}", tool])

    def alike(self, server: str, tool: str) -> ToolsAlike:
        reads: frozenset[ArgumentRole] = frozenset({"read-path"})
        return {} if tool in self.like else dict.fromkeys(self.like, (self.digest, reads))


def no_roles(call: Operation) -> Facts:
    """A tool without resource roles."""
    return Facts(
        request=AccessRequest(
            server=call.server,
            tool=call.tool,
            annotated=True,
            has_arguments=bool(call.arguments),
            arguments=(),
        ),
        arguments={**call.arguments, "judged": True},
    )


@dataclass
class FakeFacts:
    answer: Callable[[Operation], Gathered] = no_roles
    succeeded_calls: list[AuthorizedCall] = field(default_factory=list)
    waited: bool = False
    meanwhile: Callable[[], object] = lambda: None
    """What happens while a call waits for its repository."""

    async def gather(self, call: Operation) -> Gathered:
        return self.answer(call)

    def canonical(self, server: str, tool: str, arguments: Arguments) -> bytes:
        return repr((server, tool, sorted(arguments.items()))).encode()

    def fingerprint(self, call: Operation, arguments: Arguments) -> str:
        return repr((call.server, call.tool, sorted(arguments.items())))

    @asynccontextmanager
    async def undisturbed(self, facts: Facts) -> AsyncIterator[bool]:
        self.meanwhile()
        yield self.waited

    async def directories(self, request: AccessRequest) -> frozenset[RealPath] | None:
        return frozenset()

    def roots(
        self, request: AccessRequest, directories: frozenset[RealPath] | None
    ) -> tuple[str, ...]:
        return tuple(
            value.text
            for fact in request.arguments
            for value in fact.values
            if isinstance(value, PathValue)
        )

    def succeeded(self, call: AuthorizedCall) -> None:
        self.succeeded_calls.append(call)


@dataclass
class FakeDesk:
    """Rules on every escalation in the same way; keeps what was asked."""

    ruling: Ruling | Held | Superseded = field(default_factory=Unreachable)
    on_ask: Callable[[], object] = lambda: None
    asked: list[Escalation] = field(default_factory=list)

    async def ask(
        self, escalation: Escalation, on_wait: Callable[[float], Awaitable[None]] | None = None
    ) -> Ruling | Held | Superseded:
        self.asked.append(escalation)
        if on_wait is not None:
            await on_wait(5.0)
        self.on_ask()
        return self.ruling


@dataclass
class FakeServers:
    act: Callable[[AuthorizedCall], Awaitable[ToolResult]] | None = None
    forwarded: list[AuthorizedCall] = field(default_factory=list)
    listeners: list[ProgressListener | None] = field(default_factory=list)
    """Who hears of the progress of each."""
    roots: list[Sequence[str]] = field(default_factory=list)
    found_restrictions: SandboxRestrictions | None = None
    needs: SandboxOpening | str | None = None
    openings: list[SandboxOpening | None] = field(default_factory=list)
    still: list[str] = field(default_factory=list)
    """The servers that were stopped between calls."""

    async def forward(
        self,
        call: AuthorizedCall,
        on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: SandboxOpening | None = None,
    ) -> ToolResult:
        self.forwarded.append(call)
        self.listeners.append(on_progress)
        self.openings.append(opening)
        self.roots.append(roots)
        return DONE if self.act is None else await self.act(call)

    def opening(
        self,
        server: str,
        request: AccessRequest,
        hosts: Sequence[str] = (),
        paths: Sequence[RealPath] = (),
        programs: Sequence[str] = (),
    ) -> SandboxOpening | str | None:
        return self.needs

    def is_sandboxed(self, server: str) -> bool:
        return False

    async def restrictions(self, server: str) -> SandboxRestrictions | None:
        return self.found_restrictions

    async def stand_still(self, server: str) -> None:
        self.still.append(server)

    def release(self, server: str) -> None:
        self.still = [one for one in self.still if one != server]


@dataclass
class FakeRecorder:
    failing_from: int | None = None
    """The number of the first record that cannot be written; None: all can."""
    records: list[AuditRecord] = field(default_factory=list)

    def summarize(self, result: ToolResult) -> ResultSummary:
        failed = result.error is not None or bool((result.result or {}).get("isError"))
        return ResultSummary(status="error" if failed else "success", size=1, sha256="0")

    async def record(self, record: AuditRecord) -> None:
        if self.failing_from is not None and len(self.records) >= self.failing_from:
            raise AuditError("no space left on device")
        self.records.append(record)


class NothingNew:
    """A repository in which nobody but the user has done anything."""

    def look(self) -> Unpublished | None:
        return UNCHANGED

    def asked(self, seen: Unpublished, paths: Iterable[str] | None) -> None:
        pass

    def published(self, seen: Unpublished) -> None:
        pass


@dataclass
class FakeClock:
    seconds: float = 0.0
    tick: float = 0.0
    """How far each look at it moves it."""
    set_by: float = 0.0
    """Somebody set the machine's clock by so many seconds."""

    def now(self) -> datetime:
        return self.steady() + timedelta(seconds=self.set_by)

    def steady(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        self.seconds += self.tick
        return self.seconds


@dataclass
class FakeIds:
    count: int = 0

    def new(self) -> RequestId:
        self.count += 1
        return RequestId(f"r{self.count}")

    def new_escalation(self) -> EscalationId:
        self.count += 1
        return EscalationId(f"00000000-0000-4000-8000-{self.count:012}")


@dataclass
class Harness:
    """A session over fakes."""

    policy: Policy
    tools: FakeTools = field(default_factory=FakeTools)
    facts: FakeFacts = field(default_factory=FakeFacts)
    questions: FakeDesk = field(default_factory=FakeDesk)
    servers: FakeServers = field(default_factory=FakeServers)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    clock: FakeClock = field(default_factory=FakeClock)
    aftermath: OutcomeListener | None = None
    lookout: Lookout | None = None
    overlay: Overlay = field(default_factory=Overlay)
    grants: GrantBook = field(default_factory=GrantBook)
    budgets: BudgetBook = field(default_factory=BudgetBook)
    containment: Containment | None = None
    timeline: Timeline | None = None
    signed: SignedAnswers | None = None

    def __post_init__(self) -> None:
        world = World(
            tools=self.tools,
            facts=self.facts,
            questions=self.questions,
            servers=self.servers,
            recorder=self.recorder,
            clock=self.clock,
            ids=FakeIds(),
            aftermath=self.aftermath,
            lookout=self.lookout,
            containment=self.containment,
            timeline=self.timeline,
        )
        self.begin(world)

    def begin(self, world: World) -> None:
        """Take these ports from now on."""
        self.world = world
        session = Session.begin(
            world,
            SessionSettings(session="s", policy=self.policy, overlay=self.overlay),
            approvals=Approvals(self.grants, self.budgets),
            signed=self.signed,
        )
        self.session, self.in_force = session, session.in_force
        self.mediator, self.journal, self.planner = (
            session.mediator,
            session.journal,
            session.planner,
        )

    def arrived(self, tool: str = "read") -> Case:
        """A call that nobody has judged yet."""
        return self.journal.open(tool, {}, self.tools.find(tool))

    def announced(self) -> Case:
        """A call that announces a plan."""
        name = "ironcurtain_preflight"
        return self.journal.open(name, {}, ("ironcurtain", name), decision=OWN_TOOL)
