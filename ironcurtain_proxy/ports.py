"""The ports of mediation. Adapters stand in the folders; `wiring` joins them.

The policy is no port: mediation calls `decision.authorize` directly, so it cannot be replaced.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.model.annotation import ToolsAlike
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Declined,
    Escalation,
    EscalationId,
    Held,
    Ruling,
    Superseded,
)
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.operation import Caller, Method, Operation, ProgressListener, RequestId
from ironcurtain_proxy.model.reply import (
    AuditRecord,
    Change,
    EndedFor,
    NotHeld,
    NotTaken,
    PathNotHeld,
    PointId,
    PutBack,
    Reply,
    ResultSummary,
    ViewChanges,
)
from ironcurtain_proxy.model.request import AccessRequest, Facts, Gathered, Target
from ironcurtain_proxy.model.server import SandboxRestrictions, Section, ToolResult
from ironcurtain_proxy.model.signing import SignedAnswer
from ironcurtain_proxy.model.values import Arguments, Json, RealPath

Turn: TypeAlias = AbstractAsyncContextManager[bool]
"""The time of a call in its repository. Yields whether the call had to wait."""


class CallHandler(Protocol):
    """Handles a `tools/call` from the agent's side; implemented by mediation."""

    async def __call__(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        """Carry the call from its arrival to its reply. Raises only when it is cancelled.

        Args:
            exposed_name: the tool's name as the agent used it.
            params: the raw `params`; `arguments`, if there, is an object.
            on_progress: gets the server's progress, and signs of life while a reviewer is awaited.
            caller: see `Operation.caller`.
        """


class OperationHandler(Protocol):
    """Handles any other operation of the agent; implemented by mediation."""

    async def __call__(
        self,
        method: Method,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        """Carry the operation from its arrival to its reply; see `CallHandler`."""


class FactGatherer(Protocol):
    """Turns a call into facts (the policy information point of XACML)."""

    async def gather(self, call: Operation) -> Gathered:
        """Resolve what the call names. Reads the disk and git; changes nothing."""

    def canonical(self, server: str, tool: str, arguments: Arguments) -> bytes:
        """Return server, tool and arguments as one text, as long as they are.

        Equal for equal calls.
        """

    def fingerprint(self, call: Operation, arguments: Arguments) -> str:
        """SHA-256 over server, tool and arguments, hexadecimal: equal for equal calls."""

    def undisturbed(self, facts: Facts) -> Turn | None:
        """Keep other calls off the repository while this call is in progress, if it pushes.

        It is None if the call works in no repository.
        """

    async def directories(self, request: AccessRequest) -> frozenset[RealPath] | None:
        """Return the paths of the request that are directories.

        It is None if that cannot be determined.
        """

    def roots(
        self, request: AccessRequest, directories: frozenset[RealPath] | None
    ) -> tuple[str, ...]:
        """Return the directories that a server must be told about to do what was approved."""

    def succeeded(self, call: AuthorizedCall) -> None:
        """Note that the call succeeded (it may have set a working directory)."""


class OperationTarget(Protocol):
    """The receiver of an authorized operation."""

    def forward(
        self,
        call: AuthorizedCall,
        on_progress: ProgressListener | None = None,
        *,
        roots: Sequence[str] = (),
        opening: SandboxOpening | None = None,
    ) -> Awaitable[ToolResult]:
        """Send the operation and wait for the answer.

        Args:
            call: what the policy allowed or a reviewer approved.
            on_progress: gets the server's progress.
            roots: directories, absolute, that the server may consider its own for this call.
            opening: what was approved beyond what the server's sandbox lets it do.

        Raises:
            DownstreamError: the server is not there, failed, or took too long.
        """


class ClientTarget(OperationTarget, Protocol):
    """The agent's client, which is asked what servers ask."""

    def waiting(self, caller: Caller | None, *, is_sent: bool) -> AbstractContextManager[None]:
        """Note that this caller's call waits for a reviewer, meanwhile.

        `is_sent` says whether a server may know of the call.
        """

    def shown(self, server: str, pages: Sequence[Arguments]) -> list[Json]:
        """Return allowed pages as the client is told of them in an error."""


class Servers(OperationTarget, Protocol):
    """The downstream servers."""

    def opening(
        self,
        server: str,
        request: AccessRequest,
        hosts: Sequence[str] = (),
        paths: Sequence[RealPath] = (),
        programs: Sequence[str] = (),
    ) -> SandboxOpening | str | None:
        """Return the access that a call needs beyond its server's sandbox.

        Args:
            server: the operator's name of it.
            request: what the policy was asked.
            hosts: what the call is known to reach besides.
            paths: what its shell command names to write outside the sandbox.
            programs: what it runs that may need a credential of the user's.

        Returns:
            What a second instance can be let into; or in words what no approval opens; None:
            nothing more is needed, as far as anybody knows.
        """

    def is_sandboxed(self, server: str) -> bool:
        """Return whether the process that serves this server now is confined."""

    async def restrictions(self, server: str) -> SandboxRestrictions | None:
        """Return the measured limits of that process, or None if it is not confined."""

    async def stand_still(self, server: str) -> None:
        """Stop all processes of that sandbox whenever nothing is under way, until `release`.

        On return they are stopped, unless something is under way. Nothing of a server that is not
        confined is stopped.
        """

    def release(self, server: str) -> None:
        """Let the processes of that sandbox run between calls again."""


class ToolFinder(Protocol):
    """Resolves the tool names that the agent uses."""

    async def ready(self, exposed_name: str) -> str:
        """Wait until the tool can be found, for a limited time.

        Returns:
            Why it may be missing, in a sentence for the agent: its server has not started. Empty:
            every server that may have it has started.
        """

    def find(self, exposed_name: str) -> tuple[str, str] | None:
        """Return the (server, tool) of a name that the agent uses.

        It is None if there is no such tool.
        """

    def definition(self, server: str, tool: str) -> str:
        """SHA-256 of the tool's current definition. A changed definition voids grants."""

    def names(self, server: str, tool: str) -> frozenset[str]:
        """Return a tool's names: `server/tool`, and `tool` if only one server has it."""

    def alike(self, server: str, tool: str) -> ToolsAlike:
        """Return the server's other tools that do the same kind of thing to files, with roles."""


class Recorder(Protocol):
    """The audit log."""

    def summarize(self, result: ToolResult) -> ResultSummary:
        """Return the recorded part of a result: how it ended, its size and its digest."""

    def record(self, record: AuditRecord) -> Awaitable[None]:
        """Write one record. Once this was awaited, the operating system has it.

        Raises:
            AuditError: it could not be written in time, now or earlier.
        """


class Reviewer(Protocol):
    """A channel to someone who can answer an escalation, such as a mailbox or a terminal."""

    async def ask(self, escalation: Escalation) -> Ruling:
        """Ask, and wait at most until the escalation's deadline.

        `Unreachable`: nobody could be asked, or no valid answer came, and the next reviewer is
        asked. Cancelling the asking task withdraws the question.
        """


class AnswerJudge(Protocol):
    """Decides about signed answers; implemented by mediation."""

    def objection(self, question: Escalation, digest: str, answer: SignedAnswer) -> str:
        """Return why an answer does not count for a question; empty if it does.

        `digest` is SHA-256 of the bytes in which the question was shown.
        """

    def weigh(
        self, question: Escalation, digest: str, answers: Sequence[SignedAnswer]
    ) -> Approved | Declined | None:
        """Return what the answers come to; `None` means that further ones are needed."""


class Questioner(Protocol):
    """Asks reviewers about escalated calls."""

    async def ask(
        self,
        escalation: Escalation,
        on_wait: Callable[[float], Awaitable[None]] | None = None,
    ) -> Ruling | Held | AlreadyUsed | Superseded:
        """Ask, or join an open question that is identical; the call may be held meanwhile.

        An approval settles one call. Other calls that joined get `AlreadyUsed`, and may ask for
        themselves.

        Args: escalation: the question. on_wait: called every few seconds with the seconds that
        the call has waited.
        """


class OutcomeListener(Protocol):
    """Learns how calls ended that were approved."""

    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        """Note the end of an approved call, and return additional fields for its record.

        Never fails.

        It is called once for every approval.

        Args: question: the approved escalation. succeeded: None: the call was not forwarded
        after all.
        """


class Lookout(Protocol):
    """Restores files that a server must not change."""

    async def look(self, *, is_last: bool) -> tuple[PutBack, ...]:
        """Return the files restored since the last inspection. Never fails.

        `is_last`: no other call is under way.
        """

    def allowing(self, paths: Collection[str], *, by_person: bool) -> AbstractContextManager[None]:
        """Let a call change some files of which it names the paths.

        Of a person's approval a new hidden name is remembered.
        """


class Timeline(Protocol):
    """Points in time of the workspace that it can be restored to."""

    async def mark(
        self, call: RequestId, server: str, tool: str, *, may_drop: bool
    ) -> PointId | NotHeld:
        """Make the point before a call.

        `may_drop`: where the bounds are reached, the oldest points of this session may go for it.

        `NotHeld`: the workspace cannot be recorded (too large, unreadable, disk full).
        """

    async def end_call(self, point: PointId) -> tuple[Change, ...] | NotHeld:
        """Record what changed since the call's point, after the call ended or was cancelled.

        `NotHeld`: the current workspace cannot be held; the changes are recorded later,
        when it can be.
        """

    async def transact(
        self,
        call: RequestId,
        server: str,
        tool: str,
        paths: Collection[str],
        apply: Callable[[], Collection[str]],
        *,
        may_drop: bool,
    ) -> tuple[PointId, tuple[Change, ...]] | NotHeld:
        """Make a point of exactly what `apply` changes, caches included, and settle it.

            paths = ["src/a.py", "node_modules/left-pad", "dist"]
            done = await timeline.transact(call, server, tool, paths, apply, may_drop=False)

        The caller knows beforehand what it will change: the names in the upper directory of an
        overlay. The point is made first, and no rollback runs meanwhile. Changes of other paths
        count as somebody else's. The answer names what changed, each path once.

        Args:
            call: the id of the request.
            server: the server of the call.
            tool: its tool.
            paths: every path below the workspace that `apply` creates, changes or removes, as
                `os.fsdecode` gives it. A directory stands for everything in it, before and after.
                Directories that `apply` makes above them need no mention.
            apply: makes the changes, and returns the paths of which it changed nothing after all;
                runs in a thread, once the old contents are held. If it raises, what it did until
                then is noted, and its error is raised.
            may_drop: see `mark`. If not, nothing is done unless all that is replaced is held.

        Old contents in caches are copied, up to 20,000 files and a quarter of the bytes of the
        timeline, so they come back; new files there are noted by inode and time and not copied, so
        a rollback removes them and tells whether somebody changed them since.

        `NotHeld`: nothing can be recorded. `apply` was not run, unless the workspace went beyond
        the bounds by it; then its changes are recorded later.
        """

    async def unheld(self, path: RealPath) -> tuple[PathNotHeld, ...]:
        """Return the content at a path that could not be restored if the next call deleted it.

        Named caches and files that are too large or unreadable cannot be restored. Empty: all
        content can be restored.
        """


class Containment(Protocol):
    """Settles calls without a reviewer where they can be undone."""

    def ended(self, *, writes: bool) -> str | None:
        """Return why containment has ended, or None if it has not, or a person has looked since.

        `writes`: for a call that writes in the workspace at once, and not in a view.
        """

    def end(self, call: RequestId, why: str, ended_for: EndedFor) -> None:
        """End containment until a person has looked, and keep what they need to see.

        Never fails.
        """

    def is_same_workspace(self) -> bool:
        """Return whether the workspace is the same directory as when the servers started."""


class PreparedViews(Protocol):
    """The views of our own shell, whose changes come into the workspace when they are committed."""

    def serves(self, server: str) -> bool:
        """Return whether the calls of a server have views."""

    def files_among(self, paths: Sequence[RealPath]) -> list[RealPath]:
        """Return the paths at which there is a file now: no link, and no directory."""

    async def changes(self, view: str) -> ViewChanges:
        """Return what is prepared in a view.

        Raises:
            OSError: it cannot be read.
        """

    def commit(self, view: str, call: str) -> tuple[NotTaken, ...]:
        """Bring the changes of a view into the workspace, for the call of this id. Blocks.

        Returns:
            What did not come into it after all, because somebody changed it in the last moment.

        Raises:
            OSError: such as a full disk. The workspace is as it was.
        """

    def take_back(self, view: str) -> tuple[NotTaken, ...]:
        """Take out of the workspace what `commit` has brought in. Blocks.

        Returns:
            What stays in the workspace, because somebody has changed it since.

        Raises:
            OSError: it cannot be done now; the next start tries again.
        """

    async def end(self, view: str) -> None:
        """Remove a view, committed or not. Never fails."""


class Clock(Protocol):
    """The current time."""

    def now(self) -> datetime:
        """Aware, UTC."""

    def steady(self) -> datetime:
        """Aware, UTC: the time at the start plus the elapsed time, sleep included. Never jumps.

        Used for deadlines and lifetimes of grants, which a change of the machine's clock must
        not move. Never written for other processes.
        """

    def monotonic(self) -> float:
        """Return seconds, for durations and deadlines."""


class IdSource(Protocol):
    """A source of ids for calls and questions."""

    def new(self) -> RequestId:
        """Return a fresh random id of a call."""

    def new_escalation(self) -> EscalationId:
        """Return a fresh random UUID for a question."""


HeldParts: TypeAlias = Mapping[str, str]
"""The reason for each held part, by its name."""


class Pins(Protocol):
    """The descriptions of servers that were trusted, to which servers are held."""

    def listed(self, server: str, section: Section, entries: Mapping[str, Json]) -> HeldParts:
        """Return why parts of a section are held, by name, after the server has listed it."""

    def is_listed(self, server: str, section: Section) -> bool:
        """Return whether the section was listed in this session."""

    def held(self, server: str, section: Section, name: str) -> str | None:
        """Return why a part is held, as of the last listing, or None if it is not held."""

    def seen(self, server: str, section: Section, name: str, value: Json) -> str | None:
        """Return why a part that stands in no list is held, or None if it is not held."""


class NothingPinned:
    """Pins of nothing: all is used as servers say it."""

    def listed(self, _server: str, _section: Section, _entries: Mapping[str, Json]) -> HeldParts:
        """Return an empty mapping: no part is held."""
        return {}

    def is_listed(self, _server: str, _section: Section) -> bool:
        """Return True: no section needs to be listed first."""
        return True

    def held(self, _server: str, _section: Section, _name: str) -> str | None:
        """Return None: no part is held."""
        return None

    def seen(self, _server: str, _section: Section, _name: str, _value: Json) -> str | None:
        """Return None: no part is held."""
        return None


class Origins(Protocol):
    """The origins of the targets of one session's calls."""

    def note(
        self, server: str, tool: str, request: AccessRequest | None, answer: ToolResult
    ) -> None:
        """Note an answer that the agent gets. Must be quick."""

    async def targets(self, request: AccessRequest) -> tuple[Target, ...]:
        """Return the targets of a call with their origins."""


class World(Struct, frozen=True, kw_only=True):
    """All ports of mediation, joined by `wiring`."""

    tools: ToolFinder
    facts: FactGatherer
    questions: Questioner
    servers: Servers
    recorder: Recorder
    clock: Clock
    ids: IdSource
    aftermath: OutcomeListener | None = None
    lookout: Lookout | None = None
    containment: Containment | None = None
    """The containment of the session, or None if it is off."""
    timeline: Timeline | None = None
    """The timeline of the workspace, or None if no call can be undone, and none is contained."""
    views: PreparedViews | None = None
    """The views of our own shell, or None if no server has any."""
    pins: Pins = field(default_factory=NothingPinned)
    client: ClientTarget | None = None
    """The agent's client, which servers' questions are put to, or None if there is none to ask."""
    origins: Origins | None = None
    """Where targets come from, or None if nothing asks for it."""

    def fingerprint(self, case: Case) -> str:
        """Return the digest that identifies calls equal to a judged one, and keep it in the case.

        Equal calls have the same server, tool and arguments as they would be sent.
        """
        if not case.fingerprint:
            case.identify(self.facts.fingerprint(case.call, case.arguments))
        return case.fingerprint

    def waiting(self, caller: Caller | None, *, is_sent: bool) -> AbstractContextManager[None]:
        """Tell the client that its call waits for a reviewer, meanwhile."""
        client = None if caller is None else self.client  # nobody has a deadline without a caller
        return nullcontext() if client is None else client.waiting(caller, is_sent=is_sent)

    def asked_client(self) -> OperationTarget:
        """Return the agent's client, for a server's question.

        Raises:
            KernelError: no client can be asked.
        """
        if self.client is None:
            raise KernelError("a server's question came to be forwarded, and there is no client")
        return self.client
