"""Building the question for a call that needs a reviewer."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from ironcurtain_proxy.approval.containment import why_alone
from ironcurtain_proxy.grants.families import command_candidates
from ironcurtain_proxy.grants.grant_settlement import offered, tool_candidate
from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates
from ironcurtain_proxy.grants.whole_calls import (
    is_never_remembered,
    whole_call_candidates,
    whole_tool_candidate,
)
from ironcurtain_proxy.mediation.first_reason import said_of_call
from ironcurtain_proxy.mediation.in_force import PolicyInForce
from ironcurtain_proxy.model.capability import CAPABILITIES
from ironcurtain_proxy.model.crossing import bound_meta
from ironcurtain_proxy.model.escalation import Escalation, EscalationId, OriginReason
from ironcurtain_proxy.model.operation import Operation
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.question import as_json
from ironcurtain_proxy.model.request import Facts


class Frame(Struct, frozen=True, kw_only=True):
    """The properties that all questions of a session share."""

    session: str
    in_force: PolicyInForce
    home: RealPath | None = None
    """The user's home directory. It is never remembered as a whole."""
    patience: timedelta
    """The time that a reviewer has to answer."""
    ending: str = ""
    """The end of a remembered approval, in words; empty: not certain."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.in_force.policy


class QuestionInput(Struct, frozen=True, kw_only=True):
    """The input for the question about one call."""

    id: EscalationId
    now: datetime
    """Aware, UTC."""
    call: Operation
    facts: Facts
    asked: EscalatedCall
    reasons: Sequence[OriginReason]
    """The reasons that are not settled yet; never empty."""
    fingerprint: str
    directories: frozenset[RealPath] | None
    """The call's paths that are directories; None: unknown, so that nothing can be remembered."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    besides: tuple[tuple[str, str], ...] = ()
    """Additional explanation for the reviewer, such as why the call is not contained."""


def question_about(posed: QuestionInput, frame: Frame) -> Escalation:
    """The question, with everything that a reviewer should see."""
    protected = tuple(entry.path for entry in frame.policy.protected_paths)
    places = Places(
        directories=posed.directories or frozenset(),
        home=frame.home,
        protected=protected,
        ending=frame.ending,
    )
    secret = any(reason.origin == "secrets" for reason in posed.reasons)
    patterns = () if posed.directories is None else candidates(posed.asked, places)
    return Escalation(
        id=posed.id,
        session=frame.session,
        server=posed.call.server,
        tool=posed.call.tool,
        caller=posed.call.caller,
        exposed_name=posed.call.exposed_name,
        arguments=posed.facts.arguments,
        request=posed.facts.request,
        ground=posed.reasons[0].ground,
        roles=posed.asked.roles,
        reasons=tuple(posed.reasons),
        told=said_of_call(
            posed.facts, posed.reasons, frame.policy.workspace, frame.home, posed.asked.opening
        ),
        context=(*_context(posed.facts, posed.call), *posed.besides),
        definition=posed.asked.definition,
        command=posed.facts.command,
        place=posed.facts.place,
        branch=posed.facts.branch,
        sandboxed=posed.sandboxed,
        held=posed.asked.held,
        opening=posed.asked.opening,
        alone=_why_alone(posed, frame),
        candidates=offered(
            posed.reasons,
            patterns,
            tool_candidate(posed.asked),
            command_candidates(posed.asked, frame.home, frame.ending),
            whole_call_candidates(posed.asked),
            whole_tool_candidate(posed.asked),
        )
        if not is_never_remembered(posed.asked) and not secret
        else (),
        for_people=secret,
        fingerprint=posed.fingerprint,
        policy_version=frame.policy.version,
        created=posed.now,
        deadline=posed.now + frame.patience,
    )


def _why_alone(posed: QuestionInput, frame: Frame) -> tuple[str, ...]:
    """Return why "approve all" leaves the call out; empty if it is known to be harmless."""
    found = why_alone(posed.facts, frame.policy.workspace, held=posed.asked.held)
    capabilities = {name for reason in posed.reasons for name in reason.capabilities}
    asked = sorted(capabilities & {"fs.delete", "net.egress", "secrets.access", "data.user"})
    found = (*found, *[f"it may {CAPABILITIES[name]}" for name in asked])
    return (*found, "an approval opens its sandbox") if posed.asked.opening else found


def _context(facts: Facts, call: Operation) -> tuple[tuple[str, str], ...]:
    """Additional facts for the reviewer.

    An approval holds only for a call with the same context.
    """
    context = facts.context
    if facts.branch is not None:
        context = (*context, ("Current branch", facts.branch))
    meta = bound_meta(call.params)
    return (*context, ("Sent besides (_meta)", as_json(meta))) if meta else context
