"""`complain`: decisions thought wrong become scenarios of `policy test`, as a person runs it."""

import os
import subprocess
from pathlib import Path

import orjson
import pytest

from tests import program
from tests.cli.test_policy import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def complain(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(place.home), "PATH": os.environ["PATH"]}
    return program.run([*program.PROXY, "complain", *words], environ)


def record(seq: int, tool: str, arguments: object, status: str) -> dict[str, object]:
    server, _, tool = tool.partition("/")
    return {
        "requestId": f"{seq}a3f",
        "serverName": server,
        "toolName": tool,
        "arguments": arguments,
        "policyDecision": {"status": status, "rule": "r", "reason": "because"},
        "decidedBy": "policy",
        "seq": seq,
    }


def test_a_complaint_is_a_scenario_that_fails_until_the_policy_is_changed(place: Place) -> None:
    read = {"path": str(place.home / "notes/a: b\u202e\U000e0041ü.txt"), "head": 3}
    place.record(record(1, "filesystem/read_file", read, "escalate"))
    done = complain(place, "1", "--note", "these are my own notes")
    assert done.returncode == 0, done.stderr
    file = place.home / ".ironcurtain/complaints.yaml"
    (line,) = file.read_text().splitlines()
    assert r"a: b\u202e\U000e0041ü.txt" in line
    kept = orjson.loads(line[2:].replace(r"\U000e0041", ""))
    assert kept["note"] == "these are my own notes"
    assert kept["of"]["decision"] == {"status": "escalate", "rule": "r", "reason": "because"}
    tested = place.run("test", str(file))
    assert tested.returncode == 1
    assert "expected allow; ask by escalate-read-outside-workspace" in tested.stdout
    suggested = place.run("suggest")
    assert "1 complaint, 1 of them still decided so" in suggested.stdout
    place.run("allow", "filesystem/read_file", "--path", "~/notes")
    assert place.run("test", str(file)).returncode == 0
    assert orjson.loads(place.run("suggest", "--json").stdout)["complaints"] == {
        "kept": 1,
        "unmet": 0,
    }


def test_a_second_complaint_of_a_call_and_an_unknown_call_change_nothing(place: Place) -> None:
    place.record(record(1, "time/get_current_time", {"timezone": "UTC"}, "allow"))
    assert complain(place, "1a3f").returncode == 0
    file = place.home / ".ironcurtain/complaints.yaml"
    before = file.read_text()
    assert '"expect":"ask"' in before
    again = complain(place, "1", "--expect", "deny")
    assert (again.returncode, "before" in again.stderr) == (1, True)
    assert complain(place, "9").returncode == 1
    assert file.read_text() == before


def test_a_call_that_cannot_be_decided_again_is_kept_and_not_tried(place: Place) -> None:
    place.record(
        record(1, "filesystem/read_file", {"path": "[redacted: key]"}, "deny"),
        record(2, "elsewhere/tool", {}, "deny"),
        record(3, "time/get_current_time", {"timezone": "UTC"}, "allow"),
    )
    for seq in (1, 2):
        assert complain(place, str(seq)).returncode == 0
    assert complain(place, "3", "--expect", "allow").returncode == 0
    tested = place.run("test", str(place.home / ".ironcurtain/complaints.yaml"))
    assert tested.returncode == 0
    assert "1 scenario, 0 not met" in tested.stdout
    assert "1 complaint not tried: an argument is masked" in tested.stdout
    assert "1 complaint not tried: no such server" in tested.stdout


@pytest.mark.parametrize(
    "old", ["not: [a list", "[{call: x/y, of: 1}]", "- {call: x/y, of: 1}\n# mine\n"]
)
def test_a_file_that_a_person_edited_is_kept_as_it_is_or_named_as_unusable(
    place: Place, old: str
) -> None:
    place.record(record(1, "time/get_current_time", {"timezone": "UTC"}, "allow"))
    file = place.home / ".ironcurtain/complaints.yaml"
    file.write_text(old)
    done = complain(place, "1")
    assert file.read_text().startswith(old)
    assert (done.returncode, str(file) in done.stderr) in {(0, False), (2, True)}
    assert (done.returncode == 0) == old.startswith("-")


def test_arguments_that_yaml_cannot_hold_do_not_spoil_the_file(place: Place) -> None:
    place.record(
        record(1, "time/get_current_time", {"timezone": "UTC"}, "allow"),
        record(2, "time/get_current_time", {"timezone": 1e30}, "deny"),
        record(3, "time/get_current_time", {"x" * 2000: "UTC"}, "deny"),
    )
    assert complain(place, "1").returncode == 0
    file = place.home / ".ironcurtain/complaints.yaml"
    before = file.read_text()
    for seq in ("2", "3"):
        done = complain(place, seq)
        assert (done.returncode, "no form in YAML" in done.stderr) == (2, True)
    assert file.read_text() == before
