"""A call that is made, `check` and `doctor` say the same of what containment holds."""

from pathlib import Path
from typing import Final, TypeAlias

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.confined_installation import add_hostile, done, folder, refused
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, at
from tests.e2e.test_containment import CONFIG, contained, last, shell, why_asked
from tests.program import PROXY

pytestmark = pytest.mark.usefixtures("sandbox")

OPEN: Final = "outside the workspace"
OPENED: Final = {"directory": "notes", "lives-elsewhere": "elsewhere-own"}
NOTES: Final[Message] = {"filesystem": {"allowWrite": ["~/notes"]}}
Case: TypeAlias = tuple[dict[str, tuple[Message, str]], Message]
CASES: Final[dict[str, Case]] = {
    "held, or open on purpose": (
        {
            "box": ({}, ""),
            "lives-inside": ({"cwd": "@workspace"}, ""),
            "net": ({"sandbox": {"network": {"allowedDomains": ["localhost"]}}}, "has a network"),
        },
        {},
    ),
    "open": (
        {
            "box": ({"sandbox": False}, "does not run in a sandbox"),
            "directory": ({"sandbox": NOTES}, OPEN),
            "lives-elsewhere": ({"cwd": "ELSEWHERE"}, OPEN),
        },
        {},
    ),
    "many files": ({"box": ({}, "more than 3 files")}, {"max_files": 3}),
    "many bytes": ({"box": ({}, "MiB")}, {"max_bytes": 1 << 20}),
}
"""Each server's entry, and why its calls are asked about (empty: they run); the bounds."""


def ran(installation: Installation, *words: str) -> Json:
    answer = program.run([*PROXY, *words, "--json"], installation.environment())
    found: Json = orjson.loads(answer.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_call_is_contained_where_nothing_is_open_and_check_and_doctor_say_so(
    installation: Installation, case: str
) -> None:
    servers, bounds = CASES[case]
    (installation.home / "notes").mkdir()
    for number in range(5):
        (installation.workspace / f"{number}.bin").write_bytes(bytes([number + 1]) * 240_000)
    elsewhere = str(folder(installation, "elsewhere-own"))
    entries = {
        name: entry if entry.get("cwd") != "ELSEWHERE" else {"cwd": elsewhere}
        for name, (entry, _) in servers.items()
    }
    for name in [one for one in entries if one != "box"]:
        add_hostile(installation, name, **entries[name])
    tools: Json = {f"{name}/shell": {"commandArgument": "command"} for name in servers}
    document: Message = {"containment": {"undo": True, **bounds}, "capabilities": {"tools": tools}}
    agent = contained(installation, document, entries["box"])
    reasons: dict[str, str] = {}
    for name, (_, reason) in servers.items():
        tool = f"{name}__shell" if len(servers) > 1 else "shell"
        result = agent.call(tool, {"command": f"touch made-{name}.txt"})
        record = last(installation)
        if reason:
            refused(result)
            assert reason in why_asked(installation)
            reasons[name] = str(record["uncontained"]).removeprefix("it ")
        else:
            done(result)
            assert record["decidedBy"] == "containment"
    said_alike(installation, [name for name in servers if name not in reasons], reasons)


def said_alike(installation: Installation, held: list[str], reasons: dict[str, str]) -> None:
    """Hold `check` and `doctor` to what calls met."""
    said = at(ran(installation, "check"), "containment")
    answer = ran(installation, "doctor")
    assert isinstance(answer, list)
    lines = [one for one in answer if at(one, "name") == "containment"]
    found = at(said, "held")
    assert isinstance(found, list)
    assert sorted(map(str, found)) == sorted(held)
    asked = at(said, "asked")
    assert isinstance(asked, list)
    assert len(lines) == len(asked) + bool(held)
    for one in asked:
        why, names = str(at(one, "why")), at(one, "servers") or ["box"]
        assert isinstance(names, list)
        assert {reasons.pop(str(name)) for name in names} == {why.removeprefix("they ")}
        whose = f"{', '.join(map(str, names))}, because {why}" if at(one, "servers") else why
        (line,) = [each for each in lines if whose in str(at(each, "found"))]
        lines.remove(line)
        # A person, or `init`, opens hosts on purpose.
        is_on_purpose = "has a network" in why
        assert at(line, "state") == ("ok" if is_on_purpose else "warn")
        assert (at(line, "remedy") == "") is is_on_purpose
        if OPEN in why:
            # It names what is open: a rule opens directories, too, and no entry has them.
            (place,) = [OPENED[str(name)] for name in names]
            assert f"/{place}: " in str(at(line, "remedy"))
    assert reasons == {}
    assert [at(one, "state") for one in lines] == (["ok"] if held else [])


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
    from ironcurtain_proxy.snapshots.opening import beyond_bounds  # noqa: PLC0415

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
