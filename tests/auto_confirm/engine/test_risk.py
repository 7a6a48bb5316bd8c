"""The formula of risk, and its bands at their very edges."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import assess
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction, Knowledge
from ironcurtain_proxy.auto_confirm.engine.risk import Risk, band_of
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import CALM, ON, SAFE_PATHS


def risk(interaction: Interaction, knowledge: Knowledge = CALM) -> Risk:
    return assess(interaction, ON, knowledge).risk


@pytest.mark.requirement("B-39", "B-40", "B-41", "B-42", "B-43")
@pytest.mark.parametrize(
    ("hundredths", "band"),
    [
        (0, "SAFE"), (19, "SAFE"), (20, "LOW"), (40, "LOW"), (41, "MEDIUM"), (70, "MEDIUM"),
        (71, "HIGH"), (90, "HIGH"), (91, "CRITICAL"), (100, "CRITICAL"),
    ],
)  # fmt: skip
def test_a_band_ends_where_the_document_says(hundredths: int, band: str) -> None:
    assert band_of(hundredths) == band


@pytest.mark.parametrize(
    ("interaction", "factors"),
    [
        (calls.git("git_pull"), {"base: Git pull/fetch": 30}),
        (calls.push(), {"base: Git push to feature/*": 55}),
        (calls.shell("rm", "unlink"), {"base: Shell exec (rm)": 80, "destructive word": 10}),
        (calls.shell("mount"), {"base: Shell exec (dd, mount)": 95}),
        (calls.fetch("localhost"), {"base: no row": 50}),
        (calls.fetch(), {"base: no row": 50, "external host": 5}),
        (calls.fetch("127.0.0.1.nip.io"), {"base: no row": 50, "external host": 5}),
        (calls.query(), {"base: no row": 50, "database": 5}),
        (calls.edit("/tmp/a"), {"base: File edit in /tmp/": 30, "outside the workspace": 10}),
        (
            calls.fetch("prod.example.org"),
            {"base: no row": 50, "external host": 5, "production target": 10},
        ),
        (calls.query("DROP TABLE a"), {"base: no row": 50, "database": 5, "destructive word": 10}),
    ],
)
@pytest.mark.requirement("B-14")
def test_each_factor_is_named_with_its_contribution(
    interaction: Interaction, factors: dict[str, int]
) -> None:
    found = risk(interaction)
    assert dict(found.factors) == factors
    assert found.hundredths == sum(factors.values())


@pytest.mark.parametrize(
    ("knowledge", "factor"),
    [
        (replace(CALM, health="failing"), ("session failing or unknown", 5)),
        (replace(CALM, health="unknown"), ("session failing or unknown", 5)),
        (replace(CALM, earlier_failures=1), ("earlier failures", 5)),
        (replace(CALM, earlier_failures=2), ("earlier failures", 10)),
        (replace(CALM, earlier_failures=99), ("earlier failures", 10)),
    ],
)
def test_a_session_that_fails_adds_to_the_risk(
    knowledge: Knowledge, factor: tuple[str, int]
) -> None:
    assert risk(calls.edit("/srv/project/a"), knowledge).factors[1:] == (factor,)


def test_a_stuck_or_well_session_adds_nothing_to_the_risk() -> None:
    for health in ("stuck", "well"):
        assert risk(calls.edit("/srv/project/a"), replace(CALM, health=health)).hundredths == 30


@pytest.mark.requirement("B-39")
def test_reading_in_a_safe_path_is_safe() -> None:
    knowledge = replace(CALM, safe_paths=SAFE_PATHS)
    found = risk(calls.read("/srv/project/a"), knowledge)
    assert (found.hundredths, found.band) == (15, "SAFE")
    assert risk(calls.read("/tmp/a"), knowledge).hundredths == 25
    assert risk(calls.read("/home/ann/a"), knowledge).hundredths == 40


@pytest.mark.parametrize(
    "interaction",
    [
        calls.edit("/srv/project/a"),
        calls.read("/srv/project/.env"),
        calls.read("/srv/project/a", "/srv/other/a"),
        calls.git("git_pull"),
        calls.fetch(),
    ],
)
def test_only_a_public_read_in_a_safe_path_is_discounted(interaction: Interaction) -> None:
    assert risk(interaction) == risk(interaction, replace(CALM, safe_paths=SAFE_PATHS))


def test_an_option_beside_a_path_does_not_end_the_discount() -> None:
    facts = (
        calls.path_fact("path", "/srv/project/a", roles=("read-path",)),
        calls.text_fact("head", role="none"),
    )
    knowledge = replace(CALM, safe_paths=SAFE_PATHS)
    assert risk(calls.call("filesystem", "read_text_file", *facts), knowledge).hundredths == 15
    assert risk(calls.call("odd", "frobnicate", *facts), knowledge).hundredths == 50


def test_a_path_to_read_does_not_make_a_deployment_a_read() -> None:
    page = calls.path_fact("path", "/srv/project/a", roles=("read-path",))
    knowledge = replace(CALM, safe_paths=SAFE_PATHS)
    assert risk(calls.call("odd", "publish_page", page), knowledge).hundredths == 95


def test_a_branch_can_be_a_production_target() -> None:
    assert ("production target", 10) in risk(calls.push(branch="feature/prod")).factors
    assert ("production target", 10) in risk(calls.push(current="live")).factors
    assert ("production target", 10) not in risk(calls.push()).factors
    assert risk(calls.push(current=None)).factors == (("base: Git push to main", 80),)


def test_the_worst_row_gives_the_base() -> None:
    moved = calls.call(
        "filesystem",
        "move_file",
        calls.path_fact("source", "/srv/project/a", roles=("read-path", "delete-path")),
        calls.path_fact("destination", "/srv/project/b", roles=("write-path",)),
    )
    assert risk(moved).factors[0] == ("base: File delete", 80)
    half = calls.edit("/srv/project/a", "/etc/a")
    assert risk(half).factors[0] == ("base: no row", 50)


def test_additions_lift_a_risk_by_one_band_at_most() -> None:
    knowledge = replace(CALM, health="failing", earlier_failures=9)
    worst = calls.git(
        "git_pull", calls.url_fact("remote", "o", "prod.example.org", role="git-remote-url")
    )
    worst = replace(worst, workspace=None, arguments={"target": "purge"})
    found = risk(worst, knowledge)
    assert (found.hundredths, found.band) == (70, "MEDIUM")
    assert found.factors[-1] == ("at most one band up", -10)
    assert sum(value for _, value in found.factors) == 70
    high = replace(calls.delete("/etc/prod"), workspace=None)
    assert risk(high, knowledge).hundredths == 100


@pytest.mark.parametrize("content", ["deploy to production", "rm -rf /", "drop table a"])
def test_what_is_written_into_a_file_is_not_what_is_done(content: str) -> None:
    about = calls.edit("/srv/project/a")
    about = replace(about, arguments={**about.arguments, "content": content})
    assert risk(about).hundredths == 30
