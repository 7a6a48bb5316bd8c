"""The risk of a call, and the words for the signatures that it needs."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import ToolEffect
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.signing import (
    CallRisk,
    Quorum,
    ReviewerKey,
    Signatories,
    SignatureNeed,
    SignedAnswer,
    risk_of,
)

CALL = AccessRequest(server="s", tool="t", annotated=True, has_arguments=False, arguments=())
OPENED = SandboxOpening(hosts=("example.org",))

RISKS: list[tuple[ToolEffect | None, SandboxOpening | None, bool, CallRisk]] = [
    ("reads", None, False, "low"),
    ("writes", None, False, "medium"),
    ("sends", None, False, "high"),
    ("runs", None, False, "high"),
    ("destroys", None, False, "critical"),
    (None, None, False, "critical"),
    ("reads", None, True, "critical"),
    ("reads", OPENED, False, "high"),
    ("destroys", OPENED, False, "critical"),
]


@pytest.mark.parametrize(("effect", "opening", "secret", "risk"), RISKS)
def test_a_call_has_the_risk_of_the_worst_that_it_may_do(
    effect: ToolEffect | None, opening: SandboxOpening | None, secret: bool, risk: CallRisk
) -> None:
    assert risk_of(replace(CALL, effect=effect), opening, has_secret=secret) == risk


def test_a_need_is_said_in_words() -> None:
    quorums = (Quorum(1), Quorum(2, frozenset({"lead", "security"})), Quorum(1))
    need = SignatureNeed(quorums=quorums, risk="low", machine="m")
    assert str(need) == "1 signature and 2 signatures of lead or security"
    assert need.excludes_requester
    assert not SignatureNeed(quorums=quorums[:1], risk="low", machine="m").excludes_requester


def test_no_signature_is_a_person_in_words_and_a_key_may_be_revoked_elsewhere() -> None:
    assert str(Quorum(0)) == "a person"
    named = Signatories(keys={}, revoked=frozenset({"a"}))
    assert named.without(frozenset({"b"})).revoked == {"a", "b"}
    assert named.without(frozenset()) == named


def test_a_passkey_s_counter_stands_behind_its_page_and_its_flags() -> None:
    answer = SignedAnswer(
        key="k", approved=True, policy_version="1", machine="m", question="q", digest="d"
    )
    assert answer.counter == 0
    data = b"\xff" * 32 + b"\x05" + (258).to_bytes(4, "big") + b"\xff"
    assert replace(answer, authenticator=data).counter == 258


def test_a_person_has_several_names_whatever_their_case_and_their_key() -> None:
    key = ReviewerKey(id="i", public=b"", person="Ada", risk="low", accounts=frozenset({"ada.l"}))
    phone = replace(key, id="j", person="ADA", accounts=frozenset())
    assert phone.identity == key.identity
    other = replace(phone, id="k", person="bob")
    known = Signatories(keys={one.id: one for one in (key, phone, other)})
    for one in (key, phone):
        assert known.is_of(one, frozenset({"ADA"}))
        assert known.is_of(one, frozenset({"x", "Ada.L"}))
        assert not known.is_of(one, frozenset({"adam", "", "bob"}))
    assert not known.is_of(other, frozenset({"ada.l"}))


def test_a_key_is_revoked_by_any_of_its_names_and_by_no_other() -> None:
    key = ReviewerKey(
        id="i", names=frozenset({"i", "as SSH"}), public=b"", person="Ada", risk="low"
    )
    known = Signatories(keys={"i": key})
    assert not known.has_revoked(key)
    assert known.without(frozenset({"i"})).has_revoked(key)
    assert known.without(frozenset({"as SSH"})).has_revoked(key)
    assert not known.without(frozenset({"j"})).has_revoked(key)
