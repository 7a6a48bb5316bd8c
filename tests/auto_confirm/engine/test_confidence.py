"""How sure the engine is, and of what."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import assess
from ironcurtain_proxy.auto_confirm.engine.interaction import ApproveRate, Interaction, Knowledge
from ironcurtain_proxy.auto_confirm.engine.risk import Confidence
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, SAFE_PATHS

EDIT = calls.edit("/srv/project/a")
KNOWN = calls.pattern("edit", "/srv/project/.*", auto_approve=False)
OFTEN = {("edit", "/srv/project/a"): ApproveRate(approved=10, decided=10)}


def confidence(interaction: Interaction, knowledge: Knowledge) -> Confidence:
    return assess(interaction, ON, knowledge).confidence


@pytest.mark.parametrize(
    ("knowledge", "factor"),
    [
        pytest.param(
            replace(CALM, patterns=(KNOWN,)),
            ("known pattern", 20),
            marks=pytest.mark.requirement("B-113"),
        ),
        pytest.param(
            replace(CALM, approve_rates=OFTEN),
            ("usually approved", 20),
            marks=pytest.mark.requirement("B-114"),
        ),
        pytest.param(
            replace(CALM, safe_paths=SAFE_PATHS),
            ("in a safe path", 15),
            marks=pytest.mark.requirement("B-115"),
        ),
        pytest.param(
            replace(CALM, context_similarity=69),
            ("unlike earlier work", -15),
            marks=pytest.mark.requirement("B-116"),
        ),
        pytest.param(
            replace(CALM, health="stuck"),
            ("session slow or stuck", -20),
            marks=pytest.mark.requirement("B-117"),
        ),
        pytest.param(
            replace(CALM, health="failing"),
            ("session slow or stuck", -20),
            marks=pytest.mark.requirement("B-117"),
        ),
    ],
)
def test_each_reason_has_its_weight(knowledge: Knowledge, factor: tuple[str, int]) -> None:
    found = confidence(EDIT, knowledge)
    assert found.factors == (("base", 50), factor)
    assert found.hundredths == 50 + factor[1]


@pytest.mark.requirement("B-112", "B-116")
def test_with_nothing_known_it_is_one_half() -> None:
    assert confidence(EDIT, CALM).hundredths == 50
    assert confidence(EDIT, replace(CALM, context_similarity=70)).hundredths == 50


@pytest.mark.requirement("B-118")
def test_it_never_leaves_zero_to_one() -> None:
    best = replace(CALM, patterns=(KNOWN,), approve_rates=OFTEN, safe_paths=SAFE_PATHS)
    assert confidence(EDIT, best).hundredths == 100
    assert confidence(EDIT, best).factors[-1] == ("from 0 to 1", -5)
    worst = replace(CALM, context_similarity=0, health="failing")
    assert confidence(EDIT, worst).hundredths == 15


@pytest.mark.requirement("B-114")
@pytest.mark.parametrize(
    ("approved", "decided", "counts"),
    [(3, 3, False), (4, 4, True), (9, 10, False), (91, 100, True), (90, 100, False), (0, 0, False)],
)
def test_a_rate_counts_above_nine_tenths_of_more_than_three(
    approved: int, decided: int, counts: bool
) -> None:
    rates = {("edit", "/srv/project/a"): ApproveRate(approved, decided)}
    found = confidence(EDIT, replace(CALM, approve_rates=rates))
    assert (("usually approved", 20) in found.factors) == counts


def test_what_was_learned_of_one_scope_says_nothing_of_another() -> None:
    other = calls.edit("/srv/project/b")
    assert confidence(other, replace(CALM, approve_rates=OFTEN)).hundredths == 50


def test_what_was_learned_never_speaks_for_a_high_risk() -> None:
    rates = {("delete", "/srv/project/a"): ApproveRate(99, 99)}
    assert confidence(calls.delete(), replace(CALM, approve_rates=rates)).hundredths == 50


@pytest.mark.requirement("B-115")
def test_a_safe_path_holds_for_every_path_and_its_own_operation() -> None:
    knowledge = replace(CALM, safe_paths=SAFE_PATHS)
    half = calls.edit("/srv/project/a", "/etc/a")
    assert confidence(half, knowledge).hundredths == 50
    for_reads = tuple(replace(safe, operation="read") for safe in SAFE_PATHS)
    assert confidence(EDIT, replace(CALM, safe_paths=for_reads)).hundredths == 50
    assert confidence(calls.fetch(), knowledge).hundredths == 50


@pytest.mark.requirement("X-10")
@pytest.mark.parametrize("call", [calls.fetch(), calls.query(), calls.shell("install")])
def test_a_harmless_path_beside_something_else_says_nothing(call: Interaction) -> None:
    beside = calls.path_fact("also", "/tmp/a", roles=("read-path",))
    request = replace(call.request, arguments=(*call.request.arguments, beside))
    found = confidence(replace(call, request=request), replace(CALM, safe_paths=SAFE_PATHS))
    assert found.hundredths == 50
