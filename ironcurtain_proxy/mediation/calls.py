"""The entry point for the agent's calls, of a server's tools and of the proxy's own tools."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.agent.replies import (
    COMPOSITE,
    PREFIX,
    PREFLIGHT,
    PREFLIGHT_TOOL,
    STATUS,
    STATUS_TOOL,
    composite_result,
    composite_tool,
    preflight_result,
    result_of,
    status_result,
    text_result,
)
from ironcurtain_proxy.approval.capabilities import described
from ironcurtain_proxy.errors import AuditError, DownstreamError
from ironcurtain_proxy.grants.book import Budget, BudgetBook
from ironcurtain_proxy.grants.session_grants import SessionGrants
from ironcurtain_proxy.mediation.journal import UNKNOWN, Journal
from ironcurtain_proxy.mediation.mediator import Mediator
from ironcurtain_proxy.mediation.outcome import unanswered
from ironcurtain_proxy.mediation.session import SERVER, PlannedCall, Planner, read_calls
from ironcurtain_proxy.model.case import CLIENT, Case, EscalationState, Settlement
from ironcurtain_proxy.model.decision import (
    IN_CLIENT,
    NO_ROOM,
    NO_TASKS,
    NOT_RECORDED,
    OWN_TOOL,
    Allow,
    Deny,
    Escalate,
    Ground,
)
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.grant import GrantId
from ironcurtain_proxy.model.operation import Caller, CompositeSpec, ProgressListener
from ironcurtain_proxy.model.reply import Answered, Refused, RefusedBy, Reply
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Arguments, Json, object_of
from ironcurtain_proxy.ports import Clock, ToolFinder


class Questions(Protocol):
    """The open questions of one session, as the proxy's own tools see them."""

    @property
    def holds(self) -> bool:
        """Whether a call may be held."""

    def open(self) -> Sequence[tuple[Escalation, EscalationState]]:
        """Return all open questions, each with its state."""


class StepHandler(Protocol):
    """Carries a call of a server's tool to its reply; implemented by the mediator."""

    def __call__(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        run: GrantId | None = None,
    ) -> Awaitable[Reply]:
        """Carry the call, as a step of `run` if one is given."""


class OwnTools(Struct, frozen=True, kw_only=True):
    """The proxy's own tools in one session."""

    journal: Journal
    call: StepHandler
    """Carries out a step of a composite tool."""
    planner: Planner
    budgets: BudgetBook
    clock: Clock
    questions: Questions
    ready: Callable[[str], Awaitable[str]]
    """Waits until the tool can be found, for a limited time. Returns why it may be missing."""
    plans: bool
    """Whether plans are offered. Without a profile that asks about capabilities they save no
    question."""
    composites: Mapping[str, CompositeSpec] = field(default_factory=dict)

    def listing(self, *, may_hold: bool) -> list[Json]:
        """Return the definitions that the agent is shown.

        Args:
            may_hold: whether a call may be held, so that its state is of interest.
        """
        tools: list[Json] = [composite_tool(spec) for spec in self.composites.values()]
        if self.plans:
            tools.append(PREFLIGHT_TOOL)
        return [*tools, STATUS_TOOL] if may_hold else tools

    def has(self, exposed_name: str) -> bool:
        """Return whether a name is that of one of the proxy's own tools."""
        offered = {STATUS: self.questions.holds, PREFLIGHT: self.plans}
        return offered.get(exposed_name, exposed_name.removeprefix(COMPOSITE) in self.composites)

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
    ) -> Reply:
        """Handle a call to one of these tools; see `has`."""
        arguments = object_of(params.get("arguments"))
        case = self.journal.open(exposed_name, params, (SERVER, exposed_name), decision=OWN_TOOL)
        if exposed_name == STATUS:
            return await self._answer(case, status_result(self.questions.open(), arguments))
        if exposed_name == PREFLIGHT:
            return await self.journal.guard(case, self._announced(case, arguments))
        if arguments:
            return await self._answer(
                case, text_result("This tool takes no arguments.", failed=True)
            )
        spec = self.composites[exposed_name.removeprefix(COMPOSITE)]
        return await self.journal.guard(case, self._carried_out(case, spec, on_progress))

    async def _announced(self, case: Case, arguments: Arguments) -> Reply:
        now = self.clock.steady()
        ended = arguments.get("end")
        budgets = self.budgets
        if isinstance(ended, str):
            run = budgets.get(ended, now)
            if run is None or run.private:
                return await self._answer(case, text_result("There is no such run.", failed=True))
            budgets.close(run.id)
            return await self._answer(case, text_result(f"Run {ended} has ended."))
        parent: Budget | None = None
        named = arguments.get("parent")
        if named is not None:
            parent = budgets.get(named, now) if isinstance(named, str) else None
            if parent is None or parent.private:
                return await self._answer(
                    case, text_result("There is no such parent run.", failed=True)
                )
        calls = read_calls(arguments)
        if isinstance(calls, str):
            return await self._answer(case, text_result(calls, failed=True))
        unready = await self._unready(case, calls)
        opened = unready or await self.planner.open(case, calls, parent=parent)
        if isinstance(opened, Refused):
            return opened
        names = [described(name) for name in sorted(opened.budget.capabilities)]
        return await self._answer(
            case, preflight_result(opened.budget.id, names, opened.asked_later)
        )

    async def _carried_out(
        self, case: Case, spec: CompositeSpec, on_progress: ProgressListener | None
    ) -> Reply:
        calls = [PlannedCall(step.tool, step.arguments) for step in spec.steps]
        unready = await self._unready(case, calls)
        opened = unready or await self.planner.open(case, calls, private=True)
        if isinstance(opened, Refused):
            return opened
        if opened.asked_later and self.questions.holds:
            # A held step would be reported as done by halves, and be repeated.
            self.budgets.close(opened.budget.id)
            text = f"Make these calls one by one: {'; '.join(opened.asked_later)}"
            return await self._answer(case, text_result(text, failed=True))
        steps: list[tuple[str, Mapping[str, Json]]] = []
        try:
            for call in calls:
                result = await self._step(call, opened.budget, on_progress)
                steps.append((call.exposed_name, result))
                if result.get("isError") is True:
                    break
        finally:
            self.budgets.close(opened.budget.id)
        return await self._answer(case, composite_result(steps))

    async def _unready(self, case: Case, calls: Sequence[PlannedCall]) -> Refused | None:
        """Wait for the servers of calls. Return None if they have started."""
        names = dict.fromkeys([call.exposed_name for call in calls])
        why = next(filter(None, [await self.ready(name) for name in names]), "")
        return await self.journal.refuse_unknown(case, why) if why else None

    async def _step(
        self, call: PlannedCall, budget: Budget, on_progress: ProgressListener | None
    ) -> Mapping[str, Json]:
        params: dict[str, Json] = {"name": call.exposed_name, "arguments": dict(call.arguments)}
        reply = await self.call(call.exposed_name, params, on_progress, run=budget.id)
        if isinstance(reply, Answered) and reply.result.error is not None:
            return text_result(str(reply.result.error.get("message")), failed=True)
        return result_of(reply, call.exposed_name)

    async def _answer(self, case: Case, result: dict[str, Json]) -> Reply:
        return await self.journal.answer(case, ToolResult(result=result))


def by_name(specs: Sequence[CompositeSpec]) -> Mapping[str, CompositeSpec]:
    """Return composites indexed by name."""
    return {spec.name: spec for spec in specs}


class Calls(Struct, kw_only=True):
    """Implements `ports.CallHandler`, and synchronises remembered approvals with their file."""

    tools: ToolFinder
    journal: Journal
    mediator: Mediator
    own: OwnTools
    grants: SessionGrants
    show: Callable[[Sequence[Mapping[str, Json]]], None]
    """Publishes the remembered approvals for `grants list`."""
    renamed: Callable[[str, ToolResult], ToolResult] | None = None
    """Renames the resources that a server's answer names, or None if they keep their names."""
    _shown: list[Mapping[str, Json]] = field(default_factory=list)

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        """Carry one call from its arrival to its reply."""
        grants = self.grants
        if grants.persisted is not None:
            grants.take_back()
        if "task" in params:
            # Its end could not be recorded.
            return await self.refuse(exposed_name, params, NO_TASKS)
        if exposed_name.startswith(PREFIX) and self.own.has(exposed_name):
            reply = await self.own.handle(exposed_name, params, on_progress)
        else:
            reply = await self.mediator.handle(exposed_name, params, on_progress, caller=caller)
            if self.renamed is not None and isinstance(reply, Answered):
                reply = self._with_names(exposed_name, reply, self.renamed)
        has_grants = self._shown or grants.approvals.grants.by_id
        if has_grants and (listing := grants.listing()) != self._shown:
            self._shown = listing
            self.show(listing)
        if grants.persisted is not None:
            await grants.keep()
        return reply

    def _with_names(
        self, exposed_name: str, reply: Answered, renamed: Callable[[str, ToolResult], ToolResult]
    ) -> Answered:
        found = self.tools.find(exposed_name)
        result = reply.result if found is None else renamed(found[0], reply.result)
        return reply if result is reply.result else replace(reply, result=result)

    async def turn_away(self, exposed_name: str, params: Mapping[str, Json]) -> Reply:
        """Refuse a call because too many calls are in progress, and record it."""
        return await self.refuse(exposed_name, params, NO_ROOM, "busy")

    async def leave(
        self,
        name: str,
        given: Arguments,
        ground: Ground,
        made: Callable[[], Awaitable[ToolResult]],
        *,
        is_asked: bool,
    ) -> Reply:
        """Record a call of a tool that a client has for itself, and how it ended.

        No policy is asked, because no server has such a tool.

        Args:
            name: the client's name of the tool.
            given: its arguments.
            ground: why it is left to the client.
            made: lets the client make it, and returns when it has ended.
            is_asked: whether the client asks its user first.
        """
        decided = Escalate(ground) if is_asked else Allow(ground)
        params: dict[str, Json] = {"name": name, "arguments": {**given}}
        case = self.journal.open(name, params, (CLIENT, name), decision=decided)
        if is_asked:
            case.settle(
                Settlement(effect="allow", reason=ground.reason, decided_by=IN_CLIENT, result=None)
            )
        return await self.journal.guard(case, self._left(case, made))

    async def _left(self, case: Case, made: Callable[[], Awaitable[ToolResult]]) -> Reply:
        try:
            await self.journal.intend(case)
        except AuditError:
            return await self.journal.refuse(case, "audit", NOT_RECORDED)
        case.send()
        try:
            return await self.journal.answer(case, await made())
        except DownstreamError as error:
            return await unanswered(self.journal, case, error)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.journal.fail(case, UNKNOWN)
            raise

    async def refuse(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        ground: Ground,
        by: RefusedBy = "policy",
    ) -> Reply:
        """Refuse a call without asking the policy, and record it."""
        found = self.tools.find(exposed_name)
        case = self.journal.open(exposed_name, params, found, decision=Deny(ground))
        return await self.journal.guard(case, self.journal.refuse(case, by, ground))
