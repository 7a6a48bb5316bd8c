"""Whose answer it is, by a token or by a proof of it."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.mailbox.messages import Credential

TOKEN = "t0ken-" * 8
OWN = Credential("night-shift", TOKEN)
ID = "25174eed-4dc6-49b6-a0ab-e4984f43988e"
DIGEST = "d" * 64


def an_answer(**more: object) -> dict[str, object]:
    return {
        "decision": "approved",
        "reviewer": "night-shift",
        "escalationId": ID,
        "requestDigest": DIGEST,
        "note": "as agreed",
        **more,
    }


def objection(answer: dict[str, object]) -> str:
    return OWN.objection(answer, ID, DIGEST)


def proved(credential: Credential = OWN, **more: object) -> dict[str, object]:
    answer = an_answer(**more)
    return {**answer, "proof": credential.proof(answer)}


def test_the_token_or_a_proof_of_it_makes_an_answer() -> None:
    assert objection(an_answer(token=TOKEN)) == ""
    assert objection(proved()) == ""


def test_the_proof_is_what_the_documents_say_it_is() -> None:
    lines = f"ironcurtain-answer-1\nnight-shift\n{ID}\n{DIGEST}\napproved\nas agreed"
    wanted = hmac.new(TOKEN.encode(), lines.encode(), hashlib.sha256).hexdigest()
    assert OWN.proof(an_answer()) == wanted


@pytest.mark.parametrize(
    "answer",
    [
        an_answer(),
        an_answer(token=""),
        an_answer(token=None),
        an_answer(token=TOKEN[:-1]),
        an_answer(token=[TOKEN]),
        an_answer(token="é" * 48),
        an_answer(proof=TOKEN),
        an_answer(proof="", token=TOKEN),
        proved(Credential("night-shift", "another-" * 6)),
        proved(Credential("day-shift", "another-" * 6), reviewer="day-shift"),
    ],
    ids=str,
)
def test_without_the_token_it_is_no_answer(answer: dict[str, object]) -> None:
    assert objection(answer) == "its token is missing, or wrong"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"reviewer": "day-shift"}, "another reviewer"),
        ({"reviewer": None}, "another reviewer"),
        ({"escalationId": ID.replace("2", "3")}, "another question"),
        ({"escalationId": None}, "another question"),
        ({"requestDigest": "e" * 64}, "something other"),
        ({"requestDigest": None}, "something other"),
    ],
    ids=str,
)
@pytest.mark.requirement("X-8")
def test_the_right_token_on_something_else_is_no_answer(
    more: dict[str, object], words: str
) -> None:
    assert words in objection(an_answer(token=TOKEN, **more))
    assert words in objection(proved(OWN, **more))


@given(
    key=st.sampled_from(["decision", "reviewer", "escalationId", "requestDigest", "note"]),
    value=st.text(),
)
def test_a_proof_fits_no_other_answer(key: str, value: str) -> None:
    answer = proved()
    changed = {**answer, key: value}
    assert (objection(changed) == "") == (changed == answer)


def test_words_do_not_slip_from_one_line_of_a_proof_into_the_next() -> None:
    one = an_answer(decision="approved", note="x")
    other = an_answer(decision="approved\nx", note="")
    assert OWN.proof(one) != OWN.proof(other)


def test_the_token_is_not_printed() -> None:
    assert TOKEN not in repr(OWN)
    assert OWN.kept_out_of(f"it is {TOKEN}!") == "it is ***!"
