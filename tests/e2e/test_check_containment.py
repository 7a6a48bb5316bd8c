"""A call that is made, `check` and `doctor` say the same of what containment holds."""

from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.confined_installation import done, folder, refused
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, at
from tests.e2e.test_containment import CONFIG, contained, last, shell, why_asked
from tests.program import PROXY

pytestmark = pytest.mark.usefixtures("sandbox")

OPEN: Final = "outside the workspace"
NOTES: Final[Message] = {"filesystem": {"allowWrite": ["~/notes"]}}
CASES: Final[dict[str, tuple[Message, Message, str]]] = {
    "as init writes it": ({}, {}, ""),
    "trusted": ({"sandbox": False}, {}, "does not run in a sandbox"),
    "a network": ({"sandbox": {"network": {"allowedDomains": ["localhost"]}}}, {}, "has a network"),
    "a directory": ({"sandbox": NOTES}, {}, OPEN),
    "lives elsewhere": ({"cwd": "ELSEWHERE"}, {}, OPEN),
    "lives in the workspace": ({"cwd": "@workspace"}, {}, ""),
    "many files": ({}, {"max_files": 3}, "more than 3 files"),
    "many bytes": ({}, {"max_bytes": 1 << 20}, "MiB"),
}
"""The server's entry, the bounds of the timeline, and why a call is asked about; empty: it runs."""


def ran(installation: Installation, *words: str) -> Json:
    answer = program.run([*PROXY, *words, "--json"], installation.environment())
    found: Json = orjson.loads(answer.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_contained_where_nothing_is_open_and_check_and_doctor_say_so(
    installation: Installation, case: str
) -> None:
    entry, bounds, reason = CASES[case]
    (installation.home / "notes").mkdir()
    for number in range(5):
        (installation.workspace / f"{number}.bin").write_bytes(bytes([number + 1]) * 240_000)
    if entry.get("cwd") == "ELSEWHERE":
        entry = {"cwd": str(folder(installation, "elsewhere-own"))}
    document = CONFIG | {"containment": {"undo": True, **bounds}}
    agent = contained(installation, document, entry)
    result = shell(agent, "touch made.txt")
    record = last(installation)
    said = at(ran(installation, "check"), "containment")
    lines = ran(installation, "doctor")
    assert isinstance(lines, list)
    (line,) = [one for one in lines if at(one, "name") == "containment"]
    if not reason:
        done(result)
        assert record["decidedBy"] == "containment"
        assert said == {"held": ["box"], "asked": []}
        assert at(line, "state") == "ok"
        return
    refused(result)
    assert reason in why_asked(installation)
    assert at(said, "held") == []
    why = str(at(said, "asked", 0, "why"))
    assert why.removeprefix("they ") == str(record["uncontained"]).removeprefix("it ")
    assert why in str(at(line, "found"))
    # A person, or `init`, opens hosts on purpose.
    assert at(line, "state") == ("ok" if case == "a network" else "warn")
    assert (at(line, "remedy") == "") is (case == "a network")


def test_without_the_switch_every_call_is_asked_about_check_says_off_and_doctor_nothing(
    installation: Installation,
) -> None:
    agent = contained(installation, {"capabilities": CONFIG["capabilities"]})
    refused(shell(agent, "touch made.txt"))
    assert "uncontained" not in last(installation)
    assert not (installation.home / ".ironcurtain/points").exists()
    assert at(ran(installation, "check"), "containment") is None
    lines = ran(installation, "doctor")
    assert isinstance(lines, list)
    assert "containment" not in [at(one, "name") for one in lines]


def test_a_directory_that_is_a_cache_counts_for_no_bound(tmp_path: Path) -> None:
    from ironcurtain_proxy.snapshots.timeline.opening import beyond_bounds  # noqa: PLC0415

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
