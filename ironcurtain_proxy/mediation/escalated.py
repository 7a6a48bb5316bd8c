"""Escalated calls: earlier approvals that settle them, the question, and the consent given.

A `Consent` is valid from the question until the call is forwarded. Meanwhile grants may end, and
the tool may change.

`SignedAnswers` is the one place that decides whether an answer may settle a question that needs
signatures. Every question of a session is asked by `SignedAnswers.ask`, whatever asks and whoever
answers. An answer by the mailbox comes there twice: `weigh` decides, at each answer, whether the
question is settled, and `ask` looks at all of it again when the answer is used, because a key may
have been revoked meanwhile. An approval that has not come by `weigh` is refused: no channel,
engine, model or program can make one.

Nothing here reads a file or knows a library: the keys and the check of a signature are given.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import goes_by_name
from ironcurtain_proxy.grants.grant_settlement import Approvals, Claim, NewGrantTerms, reasons_left
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mediation.question import (
    Frame,
    QuestionInput,
    question_about,
    said_of_targets,
)
from ironcurtain_proxy.model.case import Case, besides, by_grants, by_reviewer
from ironcurtain_proxy.model.decision import (
    KERNEL,
    ClientDialog,
    Contained,
    Engine,
    Escalate,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
    in_record,
)
from ironcurtain_proxy.model.escalation import (
    AlreadyUsed,
    Approved,
    Declined,
    Edited,
    Escalation,
    EscalationId,
    Held,
    OriginReason,
    Ruling,
    Superseded,
)
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    GrantPattern,
    Pattern,
    SameFlag,
    SandboxOpening,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.operation import QUESTION_METHODS
from ironcurtain_proxy.model.request import ArgumentFact, Facts, PathValue, lasting
from ironcurtain_proxy.model.signing import (
    NO_SIGNATORIES,
    RISKS,
    Quorum,
    ReviewerKey,
    Signatories,
    SignatureNeed,
    SignedAnswer,
    risk_of,
)
from ironcurtain_proxy.model.values import Json, RealPath, object_of
from ironcurtain_proxy.ports import Clock, Questioner, World

# --- signatures


Verify: TypeAlias = Callable[[ReviewerKey, SignedAnswer], bool]
"""Return whether an answer bears a signature by this key. Never raises."""
HasGrown: TypeAlias = Callable[[SignedAnswer, datetime, datetime], bool]
"""Return whether the counter of a passkey has grown since its question was asked, at a time, and
note it at another one. Never raises."""

LATE: Final = timedelta(seconds=0.5)
"""The time after the deadline in which a busy machine may take its last look."""
_MOST_ACCEPTED: Final = 1000


class _Accepted(Struct, frozen=True):
    """What an approval rests on, until it is used."""

    question: Escalation
    digest: str
    answers: tuple[SignedAnswer, ...]


class SignedAnswers(Struct, kw_only=True):
    """Implements `ports.AnswerJudge`."""

    clock: Clock
    signatories: Callable[[], Signatories] = lambda: NO_SIGNATORIES
    """Returns what `reviewers.json` says at this moment."""
    verify: Verify = lambda _key, _answer: False
    machine: str = ""
    requesters: frozenset[str] = frozenset()
    """The names of whom the agent works for: the user of the machine, the agent's token."""
    _accepted: dict[EscalationId, _Accepted] = field(default_factory=dict)
    has_grown: HasGrown = lambda _answer, _asked, _now: True

    # --- asking ----------------------------------------------------------------------------------

    async def ask(
        self,
        questions: Questioner,
        question: Escalation,
        quorums: Sequence[Quorum] = (),
        on_wait: Callable[[float], Awaitable[None]] | None = None,
    ) -> Ruling | Held | AlreadyUsed | Superseded:
        """Ask a question, and return an answer that may settle it.

        Args:
            questions: asks the reviewers.
            question: what is asked.
            quorums: what the rules demand of an approval.
            on_wait: see `Questioner.ask`.
        """
        need = self._need(question, quorums)
        if need is None:
            asked = replace(question, for_people=True) if quorums else question
            ruling = await questions.ask(asked, on_wait)
            return self._believed(asked, ruling, needs="a person" if quorums else "")
        if why := self._why_impossible(question, need):
            return Declined(by=KERNEL, kind="invalid", reason=why)
        asked = replace(question, signing=need, for_people=True)
        return self._believed(asked, await questions.ask(asked, on_wait), needs=str(need))

    def _need(self, question: Escalation, quorums: Sequence[Quorum]) -> SignatureNeed | None:
        known = self.signatories()
        demanded = tuple([one for one in quorums if one.count])
        if known.quorum > max([one.count for one in demanded], default=0):
            demanded = (*demanded, Quorum(known.quorum))
        if not demanded:
            return None
        risk = risk_of(question.request, question.opening, has_secret=question.for_people)
        return SignatureNeed(quorums=demanded, risk=risk, machine=self.machine)

    def _why_impossible(self, question: Escalation, need: SignatureNeed) -> str:
        """Return why nobody could ever approve a question; empty if enough persons may."""
        known = self.signatories()
        usable = [key for key in known.keys.values() if not self._unusable(known, key)]
        able = [key for key in usable if not self._may_not(known, key, question, need)]
        for quorum in need.quorums:
            persons = {key.identity for key in able if _has_role(key, quorum)}
            if len(persons) < quorum.count:
                return (
                    f"an approval needs {quorum}, and reviewers.json names {len(persons)} who may "
                    f"approve this ({need.risk} risk)"
                )
        return ""

    def _believed(
        self, question: Escalation, ruling: Ruling | Held | AlreadyUsed | Superseded, needs: str
    ) -> Ruling | Held | AlreadyUsed | Superseded:
        """Return an answer as it counts; `needs` says what it must come from, if anything."""
        if not isinstance(ruling, Approved):
            return ruling
        match ruling.by:
            case Signers():
                return self._used(question, ruling)
            case Person() | ClientDialog():
                is_enough = question.signing is None
            case Program() | LlmApprover() | Engine() | Grants() | Contained():
                is_enough = not needs
            case ProxyItself() | Nobody():
                is_enough = not needs
            case _:
                assert_never(ruling.by)
        if is_enough:
            return ruling
        return _refused(f"an approval needs {needs}, and {in_record(ruling.by)} is not enough")

    def _used(self, question: Escalation, ruling: Approved) -> Ruling:
        """Use a signed approval, once, if it would be accepted at this moment, too."""
        accepted = self._accepted.pop(ruling.question or question.id, None)
        if accepted is None:
            return _refused("the approval was used, or is not of this session")
        if accepted.question.signing != question.signing:
            return _refused("other signatures are needed now")
        again = self._settled(accepted)
        if isinstance(again, Approved) and replace(again, question=ruling.question) == ruling:
            return ruling
        return _refused("a key that signed it does not count any more")

    # --- answers ---------------------------------------------------------------------------------

    def weigh(
        self, question: Escalation, digest: str, answers: Sequence[SignedAnswer]
    ) -> Approved | Declined | None:
        """Return what signed answers come to; `None` means that further ones are needed.

        Args:
            question: what was asked.
            digest: SHA-256 of the bytes that were shown.
            answers: all that came, without those that `objection` named.
        """
        accepted = _Accepted(question, digest, tuple(answers))
        ruling = self._settled(accepted)
        if isinstance(ruling, Approved):
            while len(self._accepted) >= _MOST_ACCEPTED:
                del self._accepted[next(iter(self._accepted))]
            self._accepted[question.id] = accepted
        return ruling

    def objection(self, question: Escalation, digest: str, answer: SignedAnswer) -> str:
        """Return why an answer does not count; empty if it does."""
        if self.clock.steady() > question.deadline + LATE:
            return "it came after the deadline"
        why = self._objection(self.signatories(), question, digest, answer)
        if why or self.has_grown(answer, question.created, self.clock.steady()):
            return why
        return "its counter has not grown: the passkey may have been copied"

    def _objection(
        self, known: Signatories, question: Escalation, digest: str, answer: SignedAnswer
    ) -> str:
        key = known.keys.get(answer.key)
        if key is None:
            return "its key is not in reviewers.json"
        if not self.verify(key, answer):
            return "its signature does not fit what it says"
        if why := self._unusable(known, key) or _of_another(question, digest, answer):
            return why
        if not answer.approved:
            return ""
        need, unneeded = question.signing, "the question needs no signature"
        why = "" if answer.remember is None else _keeps_too_much(key, question, answer.remember)
        return why or (unneeded if need is None else self._may_not(known, key, question, need))

    def _unusable(self, known: Signatories, key: ReviewerKey) -> str:
        if known.has_revoked(key):
            return f"the key {key.id} of {key.person} is revoked"
        # By `steady`, too: a clock that is set back gives no key a longer life.
        if key.until is not None and key.until <= max(self.clock.now(), self.clock.steady()):
            return f"the key {key.id} of {key.person} ended on {key.until.date().isoformat()}"
        return ""

    def _may_not(
        self, known: Signatories, key: ReviewerKey, question: Escalation, need: SignatureNeed
    ) -> str:
        """Return why a key may not approve a question; empty if it may."""
        who = key.person
        if RISKS.index(need.risk) > RISKS.index(key.risk):
            return f"{who} may approve up to {key.risk} risk, and this call is {need.risk}"
        if key.servers is not None and question.server not in key.servers:
            return f'{who} may not approve calls of the server "{question.server}"'
        if key.paths is not None and (why := _beyond(key, question)):
            return f"{who} {why}"
        if need.excludes_requester and known.is_of(key, self.requesters):
            return f"{who} is whom the agent works for, and several must sign"
        if not any(_has_role(key, quorum) for quorum in need.quorums):
            return f"{who} has none of the roles that the rule names"
        return ""

    def _settled(self, accepted: _Accepted) -> Approved | Declined | None:
        question, digest, known = accepted.question, accepted.digest, self.signatories()
        valid = [
            (known.keys[one.key], one)
            for one in accepted.answers
            if not self._objection(known, question, digest, one)
        ]
        for key, answer in valid:
            if not answer.approved:
                return Declined(by=Signers((key.person,)), kind="denied", note=answer.note)
        need = question.signing
        if need is None or not all(_is_reached(one, valid) for one in need.quorums):
            return None
        remembered = {answer.remember for _, answer in valid}
        return Approved(
            by=Signers(tuple(dict.fromkeys([key.person for key, _ in valid]))),
            # What not all of them chose, nobody has.
            remember=remembered.pop() if len(remembered) == 1 else None,
            note="; ".join(dict.fromkeys([one.note for _, one in valid if one.note])),
            details=(("requestDigest", digest), ("signatures", list(_recorded(valid)))),
        )


def _of_another(question: Escalation, digest: str, answer: SignedAnswer) -> str:
    """Return what an answer was signed for, if it is not this question."""
    if answer.question != question.id:
        return "it answers another question"
    if question.signing is not None and answer.machine != question.signing.machine:
        return "it answers a question of another machine"
    if answer.policy_version != question.policy_version:
        return "it was signed under another policy"
    if answer.digest != digest:
        return "it answers something other than what was asked"
    return ""


def _beyond(key: ReviewerKey, question: Escalation) -> str:
    """Return why a key that is bound to directories may not approve; empty if it may."""
    if question.command is not None:
        return "may approve calls in some directories only, and a command may reach others"
    values = [value for fact in question.request.arguments for value in fact.values]
    paths = [value.path for value in values if isinstance(value, PathValue)]
    if not paths:
        return "may approve calls in some directories only, and this call names none"
    opened = () if question.opening is None else question.opening.paths
    outside = [one for one in (*paths, *opened) if not _is_below(one, key)]
    return f"may not approve calls on {outside[0]}" if outside else ""


def _keeps_too_much(key: ReviewerKey, question: Escalation, remember: int) -> str:
    """Return why an answer may not remember what it names; empty if it may."""
    pattern = question.chosen(remember)
    if pattern is None:
        return "it would remember what was not offered"
    further = _reaches_further(pattern, key, question)
    return f"it would remember more than {key.person} may approve" if further else ""


def _is_below(path: RealPath, key: ReviewerKey) -> bool:
    return any(map(path.is_within, key.paths or ()))


def _reaches_further(pattern: Pattern, key: ReviewerKey, question: Escalation) -> bool:
    """Return whether a grant would settle calls that a key may not approve.

    It is looked at beside the call itself, which the key may approve.
    """
    match pattern:
        case CapabilityPattern():
            # Of any server and tool.
            return key.paths is not None or key.servers is not None or key.risk != RISKS[-1]
        case ToolPattern() | CallPattern(digest=None) | FamilyPattern():
            return key.paths is not None
        case CallPattern():
            return False
        case GrantPattern(constraints=held, parts=parts):
            if key.paths is None:
                return False
            below = [one for one in held if isinstance(one, WithinDirectory)]
            named = {one.role for one in held if not isinstance(one, SameFlag)}
            return (
                not all(_is_below(one.directory, key) for one in below)
                or any(named.isdisjoint(fact.roles) for fact in _with_paths(question))
                or any(_reaches_further(one, key, question) for one in parts)
            )
        case _:
            assert_never(pattern)


def _with_paths(question: Escalation) -> Iterator[ArgumentFact]:
    for fact in question.request.arguments:
        if any(isinstance(value, PathValue) for value in fact.values):
            yield fact


def _has_role(key: ReviewerKey, quorum: Quorum) -> bool:
    return not quorum.roles or not quorum.roles.isdisjoint(key.roles)


def _is_reached(quorum: Quorum, valid: Sequence[tuple[ReviewerKey, SignedAnswer]]) -> bool:
    """Return whether enough different persons signed: two keys of one person are one."""
    return len({key.identity for key, _ in valid if _has_role(key, quorum)}) >= quorum.count


def _recorded(valid: Sequence[tuple[ReviewerKey, SignedAnswer]]) -> Iterator[Json]:
    """Yield the signatures for the record, with all that a later check of them needs."""
    for key, one in valid:
        said: dict[str, Json] = {"person": key.person, "key": key.id}
        if one.client:
            said["authenticatorData"] = one.authenticator.hex()
            said["clientData"] = one.client.decode("utf-8", "replace")
        yield {**said, "signature": one.signature.hex()}


def _refused(reason: str) -> Declined:
    return Declined(by=KERNEL, kind="invalid", reason=reason)


# --- escalated


class Consent(Struct, frozen=True, kw_only=True):
    """The consent behind an escalated call: a reviewer's approval, earlier approvals, or both."""

    claim: Claim | None = None
    """The call as it was approved; None if containment settled it, which asks nobody."""
    reasons: tuple[OriginReason, ...] = ()
    """The reasons that a reviewer approved; earlier approvals must cover the rest."""
    roots: tuple[str, ...] = ()
    """Directories that the server must be told about for this call."""
    opening: SandboxOpening | None = None
    """The access beyond the sandbox that was approved."""
    revocable: bool = False
    """The consent holds only if the call can be undone."""


NO_CONSENT: Final = Consent()
"""That of a call which the policy alone allows."""


class Lapsed(Struct, frozen=True):
    """An approval that the call rests on ended, or was used up, before the call was sent."""


class EscalatedCalls(Struct, frozen=True, kw_only=True):
    """The escalated calls of one session, with the approvals they can use."""

    world: World
    approvals: Approvals
    frame: Frame
    signed: SignedAnswers
    grant_ttl: timedelta | None = None
    """The time for which a remembered approval holds; None: as long as the session."""

    def claim(self, case: Case, facts: Facts, opening: SandboxOpening | None) -> Claim:
        """Return a call with all that an approval of it has to cover, made once for each attempt.

        Args:
            case: the call.
            facts: of the call.
            opening: the access beyond the sandbox that an approval has to name.
        """
        call, decision = case.call, case.decision
        return Claim(
            call=EscalatedCall(
                server=call.server,
                tool=call.tool,
                definition=self.world.tools.definition(call.server, call.tool),
                request=lasting(facts).request,
                arguments=facts.arguments,
                roles=decision.roles if isinstance(decision, Escalate) else (),
                command=facts.command,
                place=facts.place,
                held=case.held,
                opening=opening,
                goes_by_name=bool(facts.acts_by_itself)
                or goes_by_name(facts.request, self.frame.in_force.policy),
            ),
            reasons=case.judged.reasons,
            run=case.arrival.run,
        )

    def is_as_defined(self, claim: Claim) -> bool:
        """Return whether the tool has the definition that a claim was made for."""
        call = claim.call
        return self.world.tools.definition(call.server, call.tool) == call.definition

    def left(self, claim: Claim) -> tuple[OriginReason, ...]:
        """Return the reasons that no earlier approval covers now and a reviewer must see.

        Uses no budget.
        """
        return self.approvals.look(claim, self.world.clock.steady()).open

    def question(
        self,
        case: Case,
        facts: Facts,
        claim: Claim,
        left: tuple[OriginReason, ...],
        directories: frozenset[RealPath] | None,
        besides: tuple[tuple[str, str], ...] = (),
    ) -> Escalation:
        """Return the question for a reviewer, with `besides` as additional explanation."""
        world = self.world
        return question_about(
            QuestionInput(
                id=world.ids.new_escalation(),
                now=world.clock.steady(),
                call=case.call,
                facts=lasting(facts),
                asked=claim.call,
                reasons=left,
                fingerprint=world.fingerprint(case),
                directories=directories,
                alike=world.tools.alike(case.call.server, case.call.tool),
                sandboxed=world.servers.is_sandboxed(case.call.server),
                besides=besides,
            ),
            self.frame,
        )

    async def named(self, facts: Facts) -> tuple[tuple[str, str], ...]:
        """Return the line of a question that says who named the targets of its call."""
        targets = facts.request.targets
        if not targets and self.world.origins is not None:
            targets = await self.world.origins.targets(facts.request)
        return said_of_targets(targets, self.world.clock.now())

    async def ask(
        self, case: Case, question: Escalation
    ) -> Ruling | Held | AlreadyUsed | Superseded | Edited:
        """Return the answer to a question; the case gets the time that it took."""
        asked = self.world.clock.monotonic()
        # A server that asks something works on the call that its question belongs to.
        is_sent = case.call.method in QUESTION_METHODS
        with self.world.waiting(case.call.caller, is_sent=is_sent):
            on_wait = pulse(case.call.params, case.on_progress)
            ruling = await self.signed.ask(
                self.world.questions, question, case.judged.quorums, on_wait
            )
        case.wait(self.world.clock.monotonic() - asked)
        if not isinstance(ruling, Approved):
            return ruling
        case.approve(ruling.question or question.id)
        if ruling.changed is None:
            return ruling
        case.edit(ruling, question)
        return Edited(ruling.question or question.id)

    def accept(self, case: Case, question: Escalation, approved: Approved, claim: Claim) -> None:
        """Accept an approval; the grants that it creates hold from now on."""
        now = self.world.clock.steady()
        how = NewGrantTerms(new_id=self.world.ids.new, now=now, ttl=self.grant_ttl)
        self.approvals.remember(question, approved, claim.call, how)
        case.settle(by_reviewer(approved, question.id))

    def use(self, case: Case, facts: Facts, consent: Consent) -> bool:
        """Use earlier approvals for what a consent leaves to them.

        Return False, and use nothing, if they no longer cover all of it.
        """
        claim = consent.claim or self.claim(case, facts, None)
        if not self.is_as_defined(claim):
            return False
        # What a reviewer was shown, earlier approvals need not name as well.
        call = replace(claim.call, opening=None) if consent.reasons else claim.call
        left = reasons_left(claim.reasons, consent.reasons)
        cover = self.approvals.use(
            replace(claim, call=call, reasons=left), self.world.clock.steady()
        )
        if cover.open:
            return False
        if case.settlement is None:
            case.settle(by_grants(cover.grants, cover.run))
        else:
            case.settle(besides(case.settlement, cover.grants, cover.run))
        return True


def sign_of_life(token: Json, seconds: float) -> Mapping[str, Json]:
    """Return the `params` of a progress notification of a call that waits for its approval.

    Progress values must grow, and those of the server begin at 0 or 1, so that these stay close
    to zero.
    """
    return {
        "progressToken": token,
        "progress": seconds / 1e9,
        "message": f"waiting for approval ({seconds:.0f} s)",
    }


def pulse(
    params: Mapping[str, Json], tell: Callable[[Mapping[str, Json]], Awaitable[None]] | None
) -> Callable[[float], Awaitable[None]] | None:
    """Return a function that reports a call's waiting seconds; None if the client asked for none.

    Args:
        params: the call's, with the client's token in `_meta`.
        tell: sends a progress notification.
    """
    token = object_of(params.get("_meta")).get("progressToken")
    if tell is None or token is None:
        return None
    return lambda seconds: tell(sign_of_life(token, seconds))
