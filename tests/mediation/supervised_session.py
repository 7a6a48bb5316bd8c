"""A supervised session in memory, with grants, plans and somebody who is told how calls end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import SUPERVISED
from ironcurtain_proxy.approval.overlay import InterceptorConfig, OverlayRules
from ironcurtain_proxy.grants.grant_settlement import capability_pattern
from ironcurtain_proxy.mediation.judge import Overlay
from ironcurtain_proxy.mediation.session import Opened, PlannedCall
from ironcurtain_proxy.model.annotation import ToolDeclaration
from ironcurtain_proxy.model.decision import HUMAN, Effect
from ironcurtain_proxy.model.escalation import Approved, EscalationId
from ironcurtain_proxy.model.grant import Grant, GrantId
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Reply
from ironcurtain_proxy.model.values import Json
from tests.fakes import FakeRecorder, FakeTools, Harness, no_roles

YES = Approved(by=HUMAN)
TOOLS = {name: ("files", name) for name in ("edit", "mirror")}
NEEDS = {"edit": ("fs.write",), "mirror": ("fs.write", "net.egress")}


@dataclass
class Aftermath:
    """Keeps what it is told."""

    told: list[tuple[EscalationId, bool | None]] = field(default_factory=list)

    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        self.told.append((question, succeeded))
        return ()


def supervised(policy: Effect = "allow", recorder: FakeRecorder | None = None) -> Harness:
    rule = Rule(name="all", effect=policy, reason="so")
    return Harness(
        Policy(rules=(rule,), version="v1"),
        tools=FakeTools(known=TOOLS),
        recorder=recorder or FakeRecorder(),
        aftermath=Aftermath(),
        overlay=Overlay(
            rules=OverlayRules(
                interceptor=InterceptorConfig(approval_policy="none"), profile=SUPERVISED
            ),
            declarations={
                tool: ToolDeclaration(tool_id=tool, capabilities=needs)
                for tool, needs in NEEDS.items()
            },
        ),
    )


def grant(made: Harness, name: str, minutes: float | None = None) -> GrantId:
    """Let the session have a capability."""
    now = made.clock.now()
    identifier = GrantId(f"g-{name}")
    made.grants.add(
        Grant(
            id=identifier,
            pattern=capability_pattern(name),
            created=now,
            source="",
            reason="",
            expires=None if minutes is None else now + timedelta(minutes=minutes),
        )
    )
    return identifier


async def plan(made: Harness, *names: str) -> Opened:
    """A plan that a person has approved."""
    made.questions.ruling = YES
    case = made.announced()
    opened = await made.planner.open(case, [PlannedCall(name, {}) for name in names])
    assert isinstance(opened, Opened)
    made.questions.asked.clear()
    return opened


async def call(made: Harness, tool: str = "edit", number: int = 0) -> Reply:
    return await made.mediator.handle(tool, {"arguments": {"n": number}})


def uses(made: Harness, identifier: GrantId) -> int:
    (found,) = [one for one in made.grants.list() if one.grant.id == identifier]
    return found.uses


def moved(made: Harness) -> Callable[[], None]:
    """What the call names changes."""

    def change() -> None:
        made.facts.answer = lambda call: replace(no_roles(call), arguments={"other": 1})

    return change
