"""What the document on approvals says is so, as far as a program can tell."""

import re
from pathlib import Path

import pytest

from ironcurtain_proxy.approval.capabilities import AUTONOMOUS, SUPERVISED, level_of
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.annotation import CAPABILITIES
from tests.e2e.installation import ROOT
from tests.tables import table

PAGE = (ROOT / "docs/approvals.md").read_text(encoding="utf-8")
DOCUMENT = " ".join(PAGE.partition("\n## Answer questions\n")[0].split())


@pytest.mark.requirement("D-1", "D-3", "D-4", "D-43")
@pytest.mark.parametrize(
    "statement", table("e2e/approvals_document.the_document_states_what_approvals_are", list[str])
)
def test_the_document_states_what_approvals_are_and_are_not(statement: str) -> None:
    assert statement in DOCUMENT


@pytest.mark.requirement("D-6")
def test_the_modes_are_offered_by_how_much_uncommitted_work_is_at_stake(tmp_path: Path) -> None:
    section = DOCUMENT.partition("## How much is at stake: uncommitted work")[2].partition("## ")[0]
    assert "choose by how much of your work is uncommitted" in section
    file, risks = tmp_path / "config.json", {}
    for setting in re.findall(r"`(\"capabilities\": [^`]*)`", section):
        file.write_text(f"{{{setting}}}", encoding="utf-8")
        profile = load_settings({"HOME": str(tmp_path)}, file).overlay.capabilities.profile
        assert profile is not None
        risks[profile.name] = level_of("fs.write", profile)
    assert risks == {"autonomous": "allow", "supervised": "approve"}


@pytest.mark.requirement("D-41", "D-42")
def test_the_document_lists_every_capability_with_its_words_and_no_other() -> None:
    page = DOCUMENT.partition("## Who named the target")[0]
    rows = dict(re.findall(r"\| `([a-z.]+)` \| ([a-z ]+) \|", page))
    assert rows == dict(CAPABILITIES)


@pytest.mark.requirement("D-41")
def test_a_name_that_nobody_knows_is_asked_about_as_the_document_says() -> None:
    assert "A name that nobody knows is asked about, never allowed" in DOCUMENT
    assert [level_of("fs.format", profile) for profile in (AUTONOMOUS, SUPERVISED)] == [
        "approve",
        "approve",
    ]


@pytest.mark.requirement("D-44")
def test_the_document_names_the_three_sources_of_isolation_in_their_order() -> None:
    places = [
        DOCUMENT.index(text)
        for text in ("1. the command line", "2. the manifest", "3. at run time")
    ]
    assert places == sorted(places)
