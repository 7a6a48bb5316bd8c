"""A rule that is printed says as much as the rule that was read."""

from pathlib import Path

import pytest

from ironcurtain_proxy.cli.policy_change import rule_as_json
from ironcurtain_proxy.config.policy.policy_file import ConditionsForm, PolicyReader
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.reading.forms import keys_of_form
from ironcurtain_proxy.model.values import Json
from tests.config.files import policy, said, write
from tests.tables import table

CONDITIONS: dict[str, Json] = table("cli/rule_json.conditions", dict[str, Json])


def test_every_condition_is_tried() -> None:
    assert set(CONDITIONS) == {*keys_of_form(ConditionsForm)}


@pytest.mark.parametrize("key", CONDITIONS)
def test_a_rule_keeps_each_condition_when_it_is_printed(key: str, tmp_path: Path) -> None:
    rule: dict[str, Json] = {
        "name": "r",
        "description": "d",
        "principle": "p",
        "if": {key: CONDITIONS[key]},
        "then": "escalate",
        "reason": "because",
        "contained": False,
        "containedReads": True,
        "everywhere": True,
        "quorum": 2,
        "signers": ["lead", "security"],
    }
    report = Report()
    reader = PolicyReader(home=Path("/home/ada"), report=report)
    read = reader.read(write(tmp_path / "compiled-policy.json", policy(rule)))
    assert read is not None
    assert said(report) == []
    assert rule_as_json(read.rules[0]) == rule
