"""The script that makes the pictures of the documents records calls that a log can hold."""

import runpy
from pathlib import Path

from ironcurtain_proxy.model.decision import in_record

SCRIPT = Path(__file__).parents[2] / "scripts/screens.py"


def test_every_made_up_call_of_the_pictures_names_a_decider_of_records() -> None:
    script = runpy.run_path(str(SCRIPT))
    deciders = {in_record(script["_recorded"](at, script["NOON"]).decided_by) for at in range(240)}
    assert deciders == {"kernel", "human", "containment"}
