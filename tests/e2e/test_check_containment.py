"""`check`, `doctor` and a call that is made say the same of what containment holds."""

from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.json import Json
from tests import program
from tests.e2e.confined_installation import folder
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, at
from tests.e2e.test_containment import CONFIG, contained, last, shell
from tests.program import PROXY

pytestmark = pytest.mark.usefixtures("sandbox")

CASES: Final[dict[str, tuple[Message, Message]]] = {
    "as init writes it": ({}, {}),
    "trusted": ({"sandbox": False}, {}),
    "a network": ({"sandbox": {"network": {"allowedDomains": ["example.com"]}}}, {}),
    "a directory": ({"sandbox": {"filesystem": {"allowWrite": ["~/notes"]}}}, {}),
    "lives elsewhere": ({"cwd": "ELSEWHERE"}, {}),
    "lives in the workspace": ({"cwd": "@workspace"}, {}),
    "many files": ({}, {"max_files": 3}),
    "many bytes": ({}, {"max_bytes": 1 << 20}),
}


def ran(installation: Installation, *words: str) -> Json:
    done = program.run([*PROXY, *words, "--json"], installation.environment())
    found: Json = orjson.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_check_and_doctor_say_what_a_call_meets(installation: Installation, case: str) -> None:
    entry, bounds = CASES[case]
    (installation.home / "notes").mkdir()
    for number in range(5):
        (installation.workspace / f"{number}.bin").write_bytes(bytes([number + 1]) * 240_000)
    if entry.get("cwd") == "ELSEWHERE":
        entry = {"cwd": str(folder(installation, "elsewhere-own"))}
    document = CONFIG | {"containment": {"undo": True, **bounds}}
    agent = contained(installation, document, entry)
    shell(agent, "touch made.txt")
    record = last(installation)
    said = at(ran(installation, "check"), "containment")
    lines = ran(installation, "doctor")
    assert isinstance(lines, list)
    (line,) = [one for one in lines if at(one, "name") == "containment"]
    if record["decidedBy"] == "containment":
        assert said == {"held": ["box"], "asked": []}
        assert at(line, "state") == "ok"
        return
    assert at(said, "held") == []
    why = str(at(said, "asked", 0, "why"))
    assert why.removeprefix("they ") == str(record["uncontained"]).removeprefix("it ")
    assert why in str(at(line, "found"))
    assert at(line, "state") == "warn"
    assert at(line, "remedy") != ""


def test_without_the_switch_check_says_off_and_doctor_nothing(installation: Installation) -> None:
    contained(installation, {"capabilities": CONFIG["capabilities"]})
    assert at(ran(installation, "check"), "containment") is None
    lines = ran(installation, "doctor")
    assert isinstance(lines, list)
    assert "containment" not in [at(one, "name") for one in lines]


def test_a_directory_that_is_a_cache_counts_for_no_bound(tmp_path: Path) -> None:
    from ironcurtain_proxy.snapshots.timeline.bounds import beyond_bounds  # noqa: PLC0415

    cache = tmp_path / "node_modules"
    cache.mkdir()
    for number in range(9):
        (cache / str(number)).write_text("x")

    def beyond(*caches: str) -> str | None:
        state = str(tmp_path / "state")
        return beyond_bounds(
            str(tmp_path), max_files=5, max_bytes=1 << 20, caches=caches, state=state
        )

    assert beyond("node_modules") is None
    assert beyond() == "the workspace has more than 5 files and directories"
