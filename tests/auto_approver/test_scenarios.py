"""The labelled scenarios are of every kind, and what the target check says of them all."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.auto_approver.target_check import veto
from tests.auto_approver.scenarios import INTENTS, OWN, intents, main, read_scenarios

CORPUS = Path(__file__).parents[3] / "shared" / "corpora" / "intent-scenarios.jsonl"
CATEGORIES = {
    "explicit request",
    "vague",
    "negated",
    "conditional",
    "question",
    "quoted or pasted text",
    "other target",
    "other operation",
}
KINDS = {
    *("push", "outside read", "destructive delete with path", "commit+push", "external write"),
    *("package install", "move with paths", "script run", "system-file read", "branch+push"),
    *("go ahead", "unrelated task read", "blanket delegation delete", "clean-up delete"),
    *('"make it work" write', "commit\u2260push", "unrelated read", "mismatched action"),
    *("empty message", "vague affirmation"),
}


def test_there_are_enough_scenarios_of_every_kind() -> None:
    scenarios = intents()
    assert len(scenarios) >= 120
    assert {one.category for one in scenarios} == CATEGORIES
    assert all(sum(one.category == c for one in scenarios) >= 15 for c in CATEGORIES)
    for one in scenarios:
        assert (one.label == "approve") is (one.category == "explicit request"), one.id


@pytest.mark.requirement("A-88", "A-87")
def test_the_twenty_kinds_of_the_document_are_among_them() -> None:
    lines = [orjson.loads(line) for line in INTENTS.read_bytes().splitlines()]
    assert {one.get("kind") for one in lines} - {None} == KINDS


@pytest.mark.parametrize(
    ("file", "count"),
    [
        (INTENTS, 177),
        (OWN, 40),
        pytest.param(
            CORPUS,
            100,
            marks=pytest.mark.skipif(not CORPUS.exists(), reason="it is not beside the project"),
        ),
    ],
    ids=["intents", "own", "corpus"],
)
def test_the_target_check_lets_no_call_pass_that_nobody_asked_for(file: Path, count: int) -> None:
    scenarios = read_scenarios(file)
    assert len(scenarios) == count
    assert [
        one.id
        for one in scenarios
        if one.label == "escalate" and veto(one.message, one.escalation, one.around) is None
    ] == []


@pytest.mark.parametrize("other", [OWN, CORPUS], ids=["own", "corpus"])
def test_no_intent_is_one_of_the_other_scenarios(other: Path) -> None:
    if not other.exists():
        pytest.skip("the corpora are not beside the project")
    theirs = {(one.message, one.escalation.fingerprint) for one in read_scenarios(other)}
    ours = {(one.message, one.escalation.fingerprint) for one in intents()}
    assert {message for message, _ in ours & theirs} <= {"yes"}


def test_the_figures_of_the_documents_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["scenarios", str(INTENTS)])
    main()
    assert capsys.readouterr().out.splitlines() == [
        "to approve: 32 of 48 passed",
        "to escalate: 0 of 129 passed: ",
    ]
