"""Only answers that the right persons signed approve a question that needs signatures."""

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

import ironcurtain_proxy
from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.mediation.session import PlannedCall
from ironcurtain_proxy.model.decision import (
    AUTO_APPROVER,
    CONTAINMENT,
    HUMAN,
    IN_CLIENT,
    KERNEL,
    TIMEOUT,
    Decider,
    Engine,
    Grants,
    Program,
    Signers,
)
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, EscalationId, Ruling
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered, Refused
from ironcurtain_proxy.model.signing import CallRisk, Quorum, SignedAnswer
from ironcurtain_proxy.signing import KeyFile
from tests.fakes import FakeClock, Harness
from tests.mediation.supervised_session import call, grant, supervised
from tests.questions import a_question
from tests.signed_answers import DIGEST, SoftPasskey, Team, needing, signed

pytestmark = pytest.mark.anyio

CLOCK = FakeClock()
OTHER = EscalationId("7db5443e-0000-4000-8000-00000000000f")


def a_signed_question(count: int = 1, *roles: str, risk: CallRisk = "low") -> Escalation:
    return replace(a_question(), signing=needing(count, *roles, risk=risk))


# --- what one answer is refused for --------------------------------------------------------------


def after(make: Callable[[SignedAnswer], SignedAnswer]) -> Callable[..., SignedAnswer]:
    """An answer that somebody changes after it was signed."""
    return lambda key, question: make(signed(key, question))


def before(**changed: object) -> Callable[..., SignedAnswer]:
    """An answer that its author signed for something else."""
    return lambda key, question: signed(key, question, lambda one: replace(one, **changed))


UNTRUE = "its signature does not fit what it says"
FORGED: dict[str, tuple[Callable[..., SignedAnswer], str]] = {
    "an altered note": (after(lambda one: replace(one, note="x")), UNTRUE),
    "a denial turned round": (
        lambda key, question: replace(signed(key, question, approved=False), approved=True),
        UNTRUE,
    ),
    "a candidate added": (after(lambda one: replace(one, remember=0)), UNTRUE),
    "a bit of the signature": (
        after(
            lambda one: replace(one, signature=bytes([one.signature[0] ^ 1]) + one.signature[1:])
        ),
        UNTRUE,
    ),
    "no signature": (after(lambda one: replace(one, signature=b"")), UNTRUE),
    "a moved answer": (after(lambda one: replace(one, question=OTHER)), UNTRUE),
    "another question": (before(question=OTHER), "it answers another question"),
    "another machine": (before(machine="b" * 32), "it answers a question of another machine"),
    "another policy": (before(policy_version="older"), "it was signed under another policy"),
    "another request": (before(digest="e" * 64), "it answers something other than what was asked"),
    "not offered": (before(remember=7), "it would remember what was not offered"),
    "an unknown key": (before(key="SHA256:unknown"), "its key is not in reviewers.json"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_an_answer_that_does_not_fit_is_refused_with_its_reason(kind: str) -> None:
    make, why = FORGED[kind]
    team = Team(CLOCK)
    key, question = team.add("ada"), a_signed_question()
    judge, answer = team.judge(), make(key, question)
    assert judge.objection(question, DIGEST, answer) == why
    assert judge.weigh(question, DIGEST, [answer]) is None
    assert judge.objection(question, DIGEST, signed(key, question)) == ""


KEY = KeyFile(Ed25519PrivateKey.generate())


def after_passkey(**changed: object) -> Callable[[SoftPasskey, SignedAnswer], SignedAnswer]:
    return lambda key, answer: replace(key.signs(answer), **changed)


PASSKEYS: dict[str, Callable[[SoftPasskey, SignedAnswer], SignedAnswer]] = {
    "another challenge": lambda key, answer: key.signs(answer, challenge=bytes(32)),
    "another page": lambda key, answer: key.signs(
        answer, origin="https://questions.example.com.evil.org"
    ),
    "another port of the page": lambda key, answer: key.signs(
        answer, origin="https://questions.example.com:8443"
    ),
    "a key of another host": lambda key, answer: key.signs(answer, host="example.com"),
    "nobody verified": lambda key, answer: key.signs(answer, flags=0x01),
    "nobody present": lambda key, answer: key.signs(answer, flags=0x04),
    "a registration": lambda key, answer: key.signs(answer, type="webauthn.create"),
    "a frame of another page": lambda key, answer: key.signs(answer, crossOrigin=True),
    "words in place of a truth": lambda key, answer: key.signs(answer, crossOrigin="no"),
    "another authenticator": lambda key, answer: replace(
        SoftPasskey().signs(answer), key=key.passkey.fingerprint
    ),
    "the other decision": after_passkey(approved=True),
    "an altered note": after_passkey(note="x"),
    "a candidate added": after_passkey(remember=0),
    "a moved answer": after_passkey(question=OTHER),
    "another digest": after_passkey(digest="e" * 64),
    "another counter": after_passkey(authenticator=bytes(37)),
    "no authenticator": after_passkey(authenticator=b""),
    "no browser": after_passkey(client=b""),
    "a browser's list": after_passkey(client=b"[]"),
    "a browser's torn words": after_passkey(client=b"{"),
    "the signature of a plain key": lambda key, answer: replace(
        answer, key=key.passkey.fingerprint, signature=KEY.sign(answer)
    ),
}


@pytest.mark.parametrize("kind", PASSKEYS)
def test_a_passkey_s_answer_that_does_not_fit_is_refused(kind: str) -> None:
    team, question = Team(CLOCK), a_signed_question()
    key = team.add_passkey("ada")
    answer = replace(
        signed(KEY, question, approved=kind != "the other decision"), key="", signature=b""
    )
    why = team.judge().objection(question, DIGEST, PASSKEYS[kind](key, answer))
    assert why == "its signature does not fit what it says"
    assert team.judge().objection(question, DIGEST, key.signs(answer)) == ""


def test_a_passkey_approves_with_the_proof_in_the_record_and_a_copy_of_it_does_not() -> None:
    team, question = Team(CLOCK), a_signed_question()
    key, judge = team.add_passkey("ada"), team.judge()
    answer = replace(signed(KEY, question), key="", signature=b"")
    first = key.signs(answer)
    for _ in range(2):  # a file may be looked at again
        assert judge.objection(question, DIGEST, first) == ""
    found = judge.weigh(question, DIGEST, [first])
    assert isinstance(found, Approved)
    assert found.by == Signers(("ada",))
    assert "clientData" in str(found.details)
    key.counter = 0
    assert "may have been copied" in judge.objection(question, DIGEST, key.signs(answer))
    key.counter = 5
    assert judge.objection(question, DIGEST, key.signs(answer)) == ""


def test_a_page_that_is_taken_over_deceives_only_where_a_passkey_may_approve() -> None:
    """WebAuthn signs a challenge, and shows nobody what that stands for."""
    team, shown = Team(CLOCK), a_signed_question()
    phone = team.add_passkey("ada")
    laptop = team.add("laptop", person="ada", roles=frozenset({"by-command"}))
    meant = replace(shown, id=EscalationId(OTHER))
    given = phone.signs(replace(signed(KEY, meant), key="", signature=b""))
    judge = team.judge()
    assert judge.objection(shown, DIGEST, given)
    assert judge.objection(meant, DIGEST, given) == ""
    grave = replace(meant, signing=needing(1, "by-command"))
    assert "none of the roles" in judge.objection(grave, DIGEST, given)
    assert judge.objection(grave, DIGEST, signed(laptop, grave)) == ""


def test_a_counter_is_compared_over_restarts_and_answers_may_come_in_any_order(
    tmp_path: Path,
) -> None:
    team = Team(CLOCK, counters=tmp_path / "state/passkey-counters.json")
    asked = CLOCK.steady() - timedelta(seconds=1)
    key, judge = team.add_passkey("ada"), team.judge()

    def answered(identifier: str, counter: int) -> tuple[Escalation, SignedAnswer]:
        question = replace(a_signed_question(), id=EscalationId(identifier), created=asked)
        key.counter = counter - 1
        return question, key.signs(replace(signed(KEY, question), key="", signature=b""))

    first, second, copied = answered("a", 5), answered("b", 6), answered("c", 6)
    for question, answer in (second, first):
        assert judge.objection(question, DIGEST, answer) == ""
    assert "may have been copied" in judge.objection(copied[0], DIGEST, copied[1])
    for restarted in (team.judge(), team.judge()):
        assert restarted.objection(first[0], DIGEST, first[1]) == ""
        for question, answer in (copied, answered("d", 4)):
            assert "may have been copied" in restarted.objection(question, DIGEST, answer)
    assert judge.objection(second[0], DIGEST, answered("b", 9)[1]) == ""
    assert team.counters is not None
    team.counters.write_bytes(b"{torn")
    assert team.judge().objection(first[0], DIGEST, first[1]) == ""


def test_words_of_an_authenticator_beside_a_plain_signature_count_for_nothing() -> None:
    """They are not signed there, and would set a counter that the person's next answer lacks."""
    team, question = Team(CLOCK), a_signed_question()
    key = team.add("ada")
    junk = replace(signed(key, question), authenticator=b"\xff" * 37)
    judge = team.judge()
    assert "does not fit" in judge.objection(question, DIGEST, junk)
    assert judge.objection(question, DIGEST, signed(key, question)) == ""


def test_a_revoked_key_counts_for_nothing() -> None:
    team = Team(CLOCK)
    key, question = team.add("ada"), a_signed_question()
    judge = team.judge()
    team.revoked.add(key.key)
    for approved in (True, False):
        answer = signed(key, question, approved=approved)
        assert judge.objection(question, DIGEST, answer).endswith("of ada is revoked")


def test_an_answer_after_the_deadline_is_late() -> None:
    team = Team(FakeClock())
    key, question = team.add("ada"), a_signed_question()
    judge = team.judge()
    assert isinstance(team.clock, FakeClock)
    team.clock.seconds = 61
    said = judge.objection(question, DIGEST, signed(key, question))
    assert said == "it came after the deadline"


def test_of_ten_thousand_forged_answers_none_is_believed() -> None:
    team = Team(CLOCK)
    key, question = team.add("ada"), a_signed_question()
    stranger = Team(CLOCK).add("stranger")
    judge, right = team.judge(), signed(key, question)
    kinds = [make for make, _ in FORGED.values()]
    for number in range(10_000):
        match number % 3:
            case 0:
                forged = replace(right, signature=os.urandom(64))
            case 1:
                forged = replace(signed(stranger, question), key=key.key)
            case _:
                forged = kinds[number % len(kinds)](key, question)
        assert judge.objection(question, DIGEST, forged)
        if number % 500 == 0:
            assert judge.weigh(question, DIGEST, [forged]) is None


# --- how many ------------------------------------------------------------------------------------


def test_two_different_persons_are_needed_and_two_keys_of_one_do_not_do() -> None:
    team = Team(CLOCK)
    phone, laptop = team.add("phone", person="ada"), team.add("laptop", person="ada")
    bob, question = team.add("bob"), a_signed_question(2)
    judge = team.judge()
    both = [signed(phone, question), signed(laptop, question)]
    assert judge.weigh(question, DIGEST, both) is None
    # Nor any number of answers by one person who has the database, under another's name too.
    often = [signed(phone, question, lambda one, n=n: replace(one, note=str(n))) for n in range(5)]  # type: ignore[misc]
    borrowed = replace(signed(phone, question), key=bob.key)
    assert judge.weigh(question, DIGEST, [*often, borrowed]) is None
    found = judge.weigh(question, DIGEST, [*both, signed(bob, question)])
    assert isinstance(found, Approved)
    assert found.by == Signers(("ada", "bob"))


def test_one_person_with_two_spellings_is_one() -> None:
    team, question = Team(CLOCK), a_signed_question(2)
    keys = team.add("ada"), team.add("Ada")
    judge = team.judge()
    assert judge.weigh(question, DIGEST, [signed(key, question) for key in keys]) is None
    team.add("bob", accounts=frozenset({"jose\u0301"}))
    team.requesters = frozenset({"Jos\u00e9"})
    why = team.judge().objection(question, DIGEST, signed(team.keys["bob"], question))
    assert "is whom the agent works for" in why


def test_whose_agent_asks_is_known_at_each_key_of_the_person() -> None:
    """`reviewers add ada phone.txt` repeats no accounts."""
    team, question = Team(CLOCK), a_signed_question(2)
    bob = team.add("bob")
    team.add("ada", accounts=frozenset({"root"}))
    phone = team.add("phone", person="Ada")
    judge = team.judge()
    assert "is whom the agent works for" in judge.objection(
        question, DIGEST, signed(phone, question)
    )
    assert judge.weigh(question, DIGEST, [signed(one, question) for one in (bob, phone)]) is None


def test_a_denial_after_the_first_of_two_approvals_ends_it() -> None:
    team = Team(CLOCK)
    ada, bob, question = team.add("ada"), team.add("bob"), a_signed_question(2)
    answers = [signed(ada, question), signed(bob, question, approved=False)]
    assert team.judge().weigh(question, DIGEST, answers) == Declined(by=Signers(("bob",)))


def test_only_what_all_of_them_chose_is_remembered() -> None:
    team = Team(CLOCK)
    ada, bob, question = team.add("ada"), team.add("bob"), a_signed_question(2)
    first = signed(ada, question, lambda one: replace(one, remember=0))
    found = team.judge().weigh(question, DIGEST, [first, signed(bob, question)])
    assert isinstance(found, Approved)
    assert found.remember is None


async def test_a_question_that_too_few_may_approve_is_refused_at_once() -> None:
    team = Team(CLOCK)
    team.add("ada", accounts=frozenset({"root"}))
    team.add("bob")
    made = Harness(asking(2), signed=team.judge())
    reply = await made.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert not made.questions.asked
    (record,) = made.recorder.records
    assert "names 1 who may approve this" in record.reason


# --- every way to an approval --------------------------------------------------------------------


def asking(count: int) -> Policy:
    rule = Rule(name="all", effect="escalate", reason="so", quorum=Quorum(count))
    return Policy(rules=(rule,), version="v1")


DECIDERS: dict[type, Decider] = {
    type(one): one
    for one in (
        *(HUMAN, AUTO_APPROVER, CONTAINMENT, IN_CLIENT, KERNEL, TIMEOUT, Engine("risk")),
        *(Grants(("g",)), Program("p", "process"), Signers(("ada", "bob"))),
    )
}


def test_every_kind_of_decider_is_tried() -> None:
    assert set(DECIDERS) == {*get_args(Decider)}


@pytest.mark.parametrize("by", DECIDERS.values(), ids=lambda by: by.word)
async def test_no_way_to_an_approval_goes_round_the_signatures(by: Decider) -> None:
    team = Team(CLOCK)
    team.add("ada")
    team.add("bob")
    made = Harness(asking(2), signed=team.judge())
    made.questions.ruling = Approved(by=by, remember=0)
    reply = await made.mediator.handle("read", {})
    assert isinstance(reply, Refused)
    assert made.questions.asked[0].signing is not None
    assert made.questions.asked[0].for_people


@pytest.mark.parametrize("by", DECIDERS.values(), ids=lambda by: by.word)
async def test_where_a_person_must_answer_no_program_or_model_does(by: Decider) -> None:
    """So it is while the fleet's policy has expired, also without any keys."""
    made = Harness(asking(0))
    made.questions.ruling = Approved(by=by)
    reply = await made.mediator.handle("read", {})
    assert isinstance(reply, Refused) == (by not in (HUMAN, IN_CLIENT))
    assert made.questions.asked[0].for_people
    assert made.questions.asked[0].signing is None


@pytest.mark.parametrize("count", [0, 2])
async def test_an_earlier_approval_does_not_take_the_place_of_a_person(count: int) -> None:
    made = supervised("escalate")
    grant(made, "fs.write")
    made.questions.ruling = Approved(by=HUMAN)
    assert isinstance(await call(made), Answered)
    team = Team(CLOCK)
    for name in ("ada", "bob"):
        team.add(name)
    guarded = supervised("escalate")
    guarded.policy = asking(count)
    guarded.signed = team.judge()
    guarded.begin(guarded.world)
    grant(guarded, "fs.write")
    guarded.questions.ruling = Approved(by=HUMAN) if count else Declined(by=HUMAN, kind="denied")
    assert isinstance(await call(guarded), Refused)
    assert guarded.questions.asked


async def test_a_plan_needs_signatures_too_where_every_approval_does() -> None:
    team = Team(CLOCK, quorum=1)
    team.add("ada")
    made = supervised()
    made.signed = team.judge()
    made.begin(made.world)
    made.questions.ruling = Approved(by=HUMAN)
    found = await made.planner.open(made.announced(), [PlannedCall("edit", {})])
    assert isinstance(found, Refused)


def test_all_questions_are_asked_in_one_place() -> None:
    package = Path(ironcurtain_proxy.__file__).parent
    asking_places = [
        str(module.relative_to(package))
        for module in sorted(package.rglob("*.py"))
        if re.search(r"questions\.ask\(", module.read_text("utf-8"))
    ]
    assert asking_places == ["mediation/escalated.py"]


class _Asked:
    """A reviewer who signs, as the mailbox does it."""

    def __init__(self, team: Team, judge: SignedAnswers) -> None:
        self.team, self.judge = team, judge
        self.between: Callable[[], None] = lambda: None
        self.again: Ruling | None = None

    async def ask(self, question: Escalation, on_wait: object = None) -> Ruling:
        if self.again is not None:
            return self.again
        answers = [signed(key, question) for key in self.team.keys.values()]
        found = self.judge.weigh(question, DIGEST, answers)
        self.between()
        assert found is not None
        return found


async def test_a_signed_approval_is_used_once_and_not_after_its_key_was_revoked() -> None:
    team = Team(CLOCK)
    ada = team.add("ada")
    judge = team.judge()
    asked = _Asked(team, judge)
    question = a_question()
    found = await judge.ask(asked, question, [Quorum(1)])
    assert isinstance(found, Approved)
    asked.again = found
    replayed = await judge.ask(asked, question, [Quorum(1)])
    assert isinstance(replayed, Declined)
    assert "was used" in replayed.reason
    asked.again, asked.between = None, lambda: team.revoked.add(ada.key)
    revoked = await judge.ask(asked, a_question(identifier=OTHER), [Quorum(1)])
    assert isinstance(revoked, Declined)
    assert "does not count any more" in revoked.reason


async def test_one_person_may_approve_the_own_agent_where_one_signature_is_enough() -> None:
    team = Team(CLOCK, quorum=1, requesters=frozenset({"ada"}))
    team.add("ada")
    judge = team.judge()
    found = await judge.ask(_Asked(team, judge), a_question())
    assert isinstance(found, Approved)
    assert found.by == Signers(("ada",))


async def test_an_answer_may_come_until_its_deadline_and_the_approval_be_used_later() -> None:
    team = Team(FakeClock())
    team.add("ada")
    judge = team.judge()
    asked = _Asked(team, judge)

    def later() -> None:
        assert isinstance(team.clock, FakeClock)
        team.clock.seconds += timedelta(minutes=4).total_seconds()

    asked.between = later
    assert isinstance(await judge.ask(asked, a_question(), [Quorum(1)]), Approved)
