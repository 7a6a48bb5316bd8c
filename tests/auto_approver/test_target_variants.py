"""No approved request survives being taken back, negated, asked about, quoted or bent.

Every approved scenario is changed in thousands of ways; not one may be left without an objection.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.evaluation import (
    AROUND,
    Scenario,
    read_scenarios,
    shipped_scenarios,
)
from ironcurtain_proxy.auto_approver.target_check import veto
from ironcurtain_proxy.auto_approver.target_message import GATE
from ironcurtain_proxy.model.escalation import Escalation
from tests.auto_approver.request_variants import (
    CONDITIONS_AFTER,
    INSERTED,
    RETRACTIONS,
    SEPARATORS,
    other_targets,
    swapped,
    talk,
    with_argument,
)
from tests.examples import examples, sample

OWN = Path(__file__).parent / "scenarios.jsonl"
CORPUS = Path(__file__).parents[3] / "shared" / "corpora" / "intent-scenarios.jsonl"


def _approved() -> list[Scenario]:
    scenarios = [*shipped_scenarios(), *read_scenarios(OWN)]
    scenarios += read_scenarios(CORPUS) if CORPUS.exists() else ()
    return [one for one in scenarios if veto(one.message, one.escalation, AROUND) is None]


APPROVED = _approved()
IN_REQUESTS = frozenset({"just", "that", "that's"})
"""Words that also stand in plain requests: "just push that", "that's ok, push it"."""
BY_ID = pytest.mark.parametrize("scenario", APPROVED, ids=[one.id for one in APPROVED])


def test_there_is_much_to_bend() -> None:
    assert len(APPROVED) >= 20


@BY_ID
def test_no_change_of_the_words_leaves_an_approval(scenario: Scenario) -> None:
    left = Counter(
        (family, text)
        for family, text in sample(talk(scenario.message), APPROVED.index(scenario))
        if veto(text, scenario.escalation, AROUND) is None
    )
    assert left == Counter()


@BY_ID
def test_no_other_target_is_approved_by_the_same_words(scenario: Scenario) -> None:
    left = [
        dict(other.arguments)
        for other in other_targets(scenario.escalation)
        if veto(scenario.message, other, AROUND) is None
        and not _is_named_all_the_same(other, scenario)
    ]
    assert left == []


def _is_named_all_the_same(other: Escalation, scenario: Scenario) -> bool:
    """A file beside the one of the scenario, in a directory that the message names (R-27)."""
    return _names_a_directory(scenario) and all(
        fact.values == before.values or _within(fact.values[0].text, scenario.message)
        for fact, before in zip(
            other.request.arguments, scenario.escalation.request.arguments, strict=True
        )
    )


def _names_a_directory(scenario: Scenario) -> bool:
    return re.search(r" (in|from|of|to|into) [~/]", scenario.message) is not None


def _within(path: str, message: str) -> bool:
    named = [one.replace("~", "/home/u") for one in re.findall(r"[~/][\w./-]+", message)]
    return any(path == one or path.startswith(f"{one}/") for one in named)


@BY_ID
def test_the_other_direction_is_not_approved(scenario: Scenario) -> None:
    other = swapped(scenario.escalation)
    if other is not None:
        assert veto(scenario.message, other, AROUND) is not None


@BY_ID
def test_an_agent_cannot_name_things_after_the_words_that_forbid_them(scenario: Scenario) -> None:
    """Else `push to origin, never mind` with a branch called `mind` would be understood whole."""
    left = []
    for phrase in sample((*RETRACTIONS, *CONDITIONS_AFTER), APPROVED.index(scenario)):
        for separator in (" ", ", ", ". "):
            message = f"{scenario.message.rstrip('.! ')}{separator}{phrase}"
            for name in ("branch", "name", "note", "command", "message"):
                for text in (phrase, *phrase.split(" ")):
                    call = with_argument(scenario.escalation, name, text)
                    if veto(message, call, AROUND) is None:
                        left.append((message, name, text))
    assert left == []


@BY_ID
def test_a_switch_that_was_not_named_is_not_approved(scenario: Scenario) -> None:
    for switch in ("force", "recursive", "delete", "hard", "all", "mirror", "noVerify", "x"):
        if switch in scenario.escalation.arguments:
            continue
        arguments = {**scenario.escalation.arguments, switch: True}
        call = replace(scenario.escalation, arguments=arguments)
        if switch == "all" and "everything" in scenario.message:
            continue
        assert veto(scenario.message, call, AROUND) is not None


@settings(max_examples=examples(750), deadline=None)
@given(
    scenario=st.sampled_from(APPROVED),
    words=st.lists(
        st.sampled_from(sorted(GATE) + list(INSERTED) + list(RETRACTIONS)), min_size=1, max_size=3
    ),
    places=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    separator=st.sampled_from(SEPARATORS),
)
def test_forbidding_words_anywhere_leave_no_approval(
    scenario: Scenario, words: list[str], places: list[int], separator: str
) -> None:
    pieces = scenario.message.split(" ")
    for word, place in zip(words, places, strict=False):
        if word not in IN_REQUESTS:
            pieces.insert(place % (len(pieces) + 1), word)
    if pieces != scenario.message.split(" "):
        assert veto(" ".join(pieces), scenario.escalation, AROUND) is not None
    assert (
        veto(
            scenario.message.rstrip(".! ") + separator + " ".join(words[:1]),
            scenario.escalation,
            AROUND,
        )
        is not None
        or words[0] in IN_REQUESTS
    )


@settings(max_examples=examples(750), deadline=None)
@given(scenario=st.sampled_from(APPROVED), text=st.text(max_size=40), place=st.integers(0, 200))
def test_no_text_makes_it_raise(scenario: Scenario, text: str, place: int) -> None:
    message = scenario.message
    veto(message[:place] + text + message[place:], scenario.escalation, AROUND)
    veto(text, scenario.escalation, AROUND)
    for name in scenario.escalation.arguments:
        veto(message, with_argument(scenario.escalation, name, text), AROUND)
