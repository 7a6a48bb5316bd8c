"""Persons who sign their answers with real keys of SSH, at a real proxy."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests import program
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import RawClient, at, texts
from tests.program import PROXY


class Team(Person):
    """Persons with keys, at the mailbox of one proxy."""

    def key(self, name: str) -> Path:
        path = self.installation.root / name
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
        subprocess.run(argv, check=True)
        return path

    def joins(self, name: str, *options: str) -> Path:
        key = self.key(name)
        done = self.run("reviewers", "add", name, f"{key}.pub", "--risk", "critical", *options)
        assert done.returncode == 0, done.stderr
        return key

    def answers(self, verb: str, key: Path, *options: str) -> subprocess.CompletedProcess[str]:
        identifier = str(self.until_asked()[0]["escalationId"])
        return self.command(verb, identifier, "--key", str(key), *options)


@pytest.fixture
def team(installation: Installation) -> tuple[Team, RawClient]:
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [rule("two", "escalate", "two must agree", tool=["ask"]) | {"quorum": 2}]
    team = Team(installation)
    installation.variables["ESCALATION_DIR"] = str(team.directory)
    return team, installation.start()


@pytest.fixture
def agent_socket(tmp_path: Path) -> Iterator[Path]:
    """A running ssh-agent."""
    path = tmp_path / "agent"
    running = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        yield path
    finally:
        running.terminate()
        running.wait()


def test_a_call_goes_when_two_persons_signed_by_file_and_by_agent(
    team: tuple[Team, RawClient], agent_socket: Path
) -> None:
    people, agent = team
    ada, bob = people.joins("ada", "--quorum", "0"), people.joins("bob")
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent_socket)}
    subprocess.run(["ssh-add", "-q", str(bob)], check=True, env=environment)
    bob.unlink()
    call = agent.start_call("ask", {"text": "/srv/x"})
    (request,) = people.until_asked()
    assert request["signatures"] == "2 signatures"
    identifier = str(request["escalationId"])
    unsigned = people.command("approve", identifier)
    assert unsigned.returncode == 1
    assert "it needs 2 signatures" in unsigned.stderr
    people.answer({"decision": "approved"})
    for _ in range(2):  # the same person twice is one
        assert people.answers("approve", ada).returncode == 0
    listed = orjson.loads(people.command("pending", "--json").stdout)
    assert [one["id"] for one in listed] == [identifier]
    done = program.run(
        [
            *PROXY, "approve", identifier, "--key", f"{bob}.pub", "--dir", str(people.directory),
        ],
        {**environment, "HOME": str(people.installation.home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    agent.result(call)
    outcome = people.installation.outcomes()[-1]
    assert outcome["decidedBy"] == "signed:ada+bob"
    persons = [at(outcome["signatures"], place, "person") for place in range(3)]
    assert persons == ["ada", "ada", "bob"]
    assert people.is_tidy()


def test_one_denial_ends_it_and_a_stranger_s_signature_does_not_count(
    team: tuple[Team, RawClient],
) -> None:
    people, agent = team
    ada = people.joins("ada")
    people.joins("bob")
    call = agent.start_call("ask", {"text": "/srv/x"})
    stranger = people.answers("approve", people.key("eve"))
    assert stranger.returncode == 1
    assert "did not count" in stranger.stderr
    assert people.answers("approve", ada).returncode == 0
    assert people.answers("deny", ada, "--note", "not on a Friday").returncode == 0
    assert "not on a Friday" in texts(agent.result(call))[1]
    assert people.installation.received() == []
    assert people.installation.outcomes()[-1]["decidedBy"] == "signed:ada"


def test_the_file_can_be_listed_and_a_mistake_in_it_stops_the_start(
    team: tuple[Team, RawClient],
) -> None:
    people, _ = team
    people.joins("ada", "--path", "/srv", "--until", "2027-06-30")
    listed = people.run("reviewers").stdout
    assert "person ada" in listed
    assert "until 2027-06-30" in listed
    twice = people.run(
        "reviewers", "add", "bob", f"{people.installation.root}/ada.pub", "--risk", "low"
    )
    assert twice.returncode == 2
    assert "one key has one entry" in twice.stderr
    path = people.installation.home / ".ironcurtain/reviewers.json"
    document = orjson.loads(path.read_bytes())
    document["reviewers"][0] |= {"risk": "huge", "validUntil": "soon", "key": "ssh-rsa AAAA"}
    path.write_bytes(orjson.dumps(document))
    said = people.run("reviewers").stderr
    for words in ("$.reviewers[0].risk", "$.reviewers[0].validUntil", "$.reviewers[0].key"):
        assert words in said
