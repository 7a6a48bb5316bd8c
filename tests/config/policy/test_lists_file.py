"""Dynamic lists."""

from pathlib import Path

from ironcurtain_proxy.config.policy.policy_file import read_lists_file
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.values import Json
from tests.config.files import said, write


def test_a_list_is_its_values_and_additions_without_removals(tmp_path: Path) -> None:
    entry: dict[str, Json] = {
        "values": ["a", "b", "a"],
        "manualAdditions": ["c", "b"],
        "manualRemovals": ["a"],
        "resolvedAt": "",
        "inputHash": "",
    }
    report = Report()
    file = read_lists_file(write(tmp_path / "l.json", {"lists": {"x": entry}}), report)
    assert file is not None
    assert file.lists == {"x": ("b", "c")}
    assert report.problems == ()


def test_a_list_with_a_slip_is_refused(tmp_path: Path) -> None:
    report = Report()
    entry: dict[str, Json] = {"value": [], "manualAdditions": "c"}
    read_lists_file(write(tmp_path / "l.json", {"lists": {"x": entry}}), report)
    assert said(report) == [
        "$.lists.x.value: unknown key [values]",
        "$.lists.x.values: is missing",
        "$.lists.x.manualAdditions: must be a list, not text",
    ]
