"""Joining the parts that mediate the calls of one session."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct, field

from ironcurtain_proxy.approval.judging import Overlay
from ironcurtain_proxy.decision.authorizer import is_always_denied
from ironcurtain_proxy.decision.breaker import Breaker
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.mediation.containing import Containing
from ironcurtain_proxy.mediation.escalated import EscalatedCalls
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.judge import Attempts, Judge
from ironcurtain_proxy.mediation.mediator import Mediator
from ironcurtain_proxy.mediation.outcome import Outcomes, Results
from ironcurtain_proxy.mediation.plans import Planner
from ironcurtain_proxy.mediation.question import Frame
from ironcurtain_proxy.mediation.signatures import SignedAnswers
from ironcurtain_proxy.model.annotation import ToolAnnotation
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.ports import Pins, World


class SessionSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings for all calls of a session."""

    session: str
    policy: Policy
    candidate: Policy | None = None
    """A policy that is judged beside it and recorded, or None if none is."""
    overlay: Overlay = field(default_factory=Overlay)
    patience: timedelta = timedelta(seconds=300)
    """The time that a reviewer has to answer."""
    home: RealPath | None = None
    """The user's home directory. It is never remembered as a whole."""
    grant_ttl: timedelta | None = None
    """The time for which a remembered approval holds; None: as long as the session."""
    grant_ending: str = "until this session ends"
    """The words for that end where there is no `grant_ttl`."""
    named_meta: frozenset[str] = frozenset()
    """Keys of `_meta` that are forwarded to servers besides the standard ones."""
    results: Results = field(default_factory=Results)
    """The changes of servers' answers."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The hosts of servers that are reached over HTTP, by server."""
    edits: bool = True
    """Whether a person may change arguments; a client that makes its own calls keeps its own."""


class Session(Struct, frozen=True, kw_only=True):
    """The mediation of one agent's session."""

    journal: Journal
    judge: Judge
    mediator: Mediator
    planner: Planner
    in_force: PolicyInForce
    pins: Pins

    def hides(self, server: str, tool: str, annotation: ToolAnnotation | None) -> bool:
        """Return whether a tool is not listed, because the policy can only deny its calls."""
        return is_always_denied(server, tool, annotation, self.in_force.policy)

    @classmethod
    def begin(
        cls,
        world: World,
        terms: SessionSettings,
        *,
        approvals: Approvals | None = None,
        breaker: Breaker | None = None,
        signed: SignedAnswers | None = None,
    ) -> "Session":
        """Join the parts. Nothing is started.

        Args:
            world: the ports.
            terms: the operator's settings.
            approvals: earlier approvals; None: none.
            breaker: stops repeated calls; None: the default threshold.
            signed: decides about signed answers, or None if nobody may sign.
        """
        approvals = approvals or Approvals(GrantBook(), BudgetBook())
        breaker = breaker or Breaker()
        signed = signed or SignedAnswers(clock=world.clock)
        in_force = PolicyInForce(policy=terms.policy, candidate=terms.candidate)
        journal = Journal(
            recorder=world.recorder,
            clock=world.clock,
            ids=world.ids,
            session=terms.session,
            in_force=in_force,
            is_sandboxed=world.servers.is_sandboxed,
            aftermath=world.aftermath,
            named_meta=terms.named_meta,
            hosts=terms.hosts,
        )
        attempts = Attempts()
        judge = Judge(
            tools=world.tools,
            facts=world.facts,
            in_force=in_force,
            overlay=terms.overlay,
            attempts=attempts,
        )
        frame = Frame(
            session=terms.session,
            in_force=in_force,
            home=terms.home,
            patience=terms.patience,
            ending=terms.grant_ending if terms.grant_ttl is None else "",
            edits=terms.edits,
        )
        escalated = EscalatedCalls(
            world=world, approvals=approvals, frame=frame, signed=signed, grant_ttl=terms.grant_ttl
        )
        return cls(
            in_force=in_force,
            pins=world.pins,
            journal=journal,
            judge=judge,
            mediator=Mediator(
                world=world,
                journal=journal,
                judge=judge,
                breaker=breaker,
                escalated=escalated,
                containing=Containing(world=world, in_force=in_force, attempts=attempts),
                outcomes=Outcomes(world=world, journal=journal, results=terms.results),
            ),
            planner=Planner(
                world=world,
                journal=journal,
                judge=judge,
                breaker=breaker,
                approvals=approvals,
                frame=frame,
                signed=signed,
            ),
        )
