"""Approvals that outlive their session: the real proxy, started again and again."""

import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.json import Json
from tests.e2e.house import PROXY, House, rule, tool
from tests.e2e.person import Person
from tests.e2e.raw_client import Message, RawClient, at, texts

pytestmark = pytest.mark.requirement("X-12")

NOT_APPROVED = "tool 'ask' execution denied: user did not approve the action"
TOOL = tool("ask", text={"type": "string"})


@pytest.fixture
def person(house: House) -> Person:
    """A house in which `ask` escalates and names a file, and its approvals are kept."""
    house.add_scripted("scripted", {"ask": {"text": ["write-path"]}}, tools=[TOOL])
    house.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    (house.root / "out").mkdir()
    configure(house)
    return Person(house)


def configure(house: House, scope: str = "project", **grants: Json) -> None:
    directory = house.home / ".ironcurtain"
    directory.mkdir(mode=0o700, exist_ok=True)
    persist: Json = {"enabled": True, "scope": scope}
    config = {"grants": {"persist": persist, **grants}}
    (directory / "config.json").write_bytes(orjson.dumps(config))


def asking(house: House, agent: RawClient, name: str = "a") -> int:
    return agent.start_call("ask", {"text": str(house.root / "out" / name)})


def start(house: House, person: Person, **variables: str) -> RawClient:
    return house.start(ESCALATION_DIR=str(person.directory), **variables)


def approve_and_remember(house: House, person: Person, **variables: str) -> str:
    """One session in which a person is asked. The grant's id, from the file."""
    before = {str(entry["id"]) for entry in kept(house)}
    agent = start(house, person, **variables)
    call = asking(house, agent)
    person.until_asked()
    assert person.command("approve", "all", "--remember").returncode == 0
    agent.result(call)
    agent.close()
    (identifier,) = {str(entry["id"]) for entry in kept(house)} - before
    return identifier


def is_asked_again(house: House, person: Person, **variables: str) -> bool:
    """Another session, in which the person says no if they are asked."""
    agent = start(house, person, **variables)
    call = asking(house, agent, "b")
    return settles_by_asking(house, person, agent, call)


def settles_by_asking(house: House, person: Person, agent: RawClient, call: int) -> bool:
    done = len(house.outcomes())
    while len(house.outcomes()) == done and not person.requests():
        time.sleep(0.005)
    if not (asked := bool(person.requests())):
        agent.result(call)
        assert str(house.outcomes()[-1]["decidedBy"]).startswith("grant:")
    else:
        person.answer({"decision": "denied"})
        assert texts(agent.result(call))[0] == NOT_APPROVED
    agent.close()
    return asked


def file(house: House) -> Path:
    return house.home / ".ironcurtain" / "grants.json"


def kept(house: House) -> list[Message]:
    if not file(house).exists():
        return []
    grants = orjson.loads(file(house).read_bytes())["grants"]
    assert isinstance(grants, list)
    return grants


def edit(house: House, **changes: Json) -> None:
    """As one who knows the format: the digest is right."""
    (entry,) = kept(house)
    said = {**{name: entry[name] for name in entry if name != "digest"}, **changes}
    digest = sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()
    file(house).write_bytes(orjson.dumps({"version": 1, "grants": [{**said, "digest": digest}]}))


@pytest.mark.requirement("E-36")
def test_unless_it_is_switched_on_nothing_outlives_the_session(
    house: House, person: Person
) -> None:
    (house.home / ".ironcurtain" / "config.json").unlink()
    agent = start(house, person)
    call = asking(house, agent)
    person.until_asked()
    assert person.command("approve", "all", "--remember").returncode == 0
    agent.result(call)
    agent.close()
    assert not file(house).exists()
    assert is_asked_again(house, person)


def test_the_scope_session_keeps_nothing_and_says_so(house: House, person: Person) -> None:
    configure(house, "session")
    assert is_asked_again(house, person)
    said = (house.root / "stderr-0.txt").read_text()
    assert "grants.persist is enabled, but its scope is session: nothing is kept" in said


def test_what_was_remembered_counts_in_the_next_session_and_each_use_is_recorded(
    house: House, person: Person
) -> None:
    identifier = approve_and_remember(house, person)
    assert house.outcomes()[-1]["decidedBy"] == "human"
    agent = start(house, person)
    for name in "bcd":
        agent.result(asking(house, agent, name))
        assert house.outcomes()[-1]["decidedBy"] == f"grant:{identifier}"
    assert person.requests() == []
    agent.close()
    assert len(house.received()) == 4
    (entry,) = kept(house)
    assert entry["uses"] == 3
    assert file(house).stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("E-27")
def test_where_nobody_can_be_asked_a_kept_grant_still_counts(house: House, person: Person) -> None:
    """R-39."""
    approve_and_remember(house, person)
    alone = house.start()
    alone.result(asking(house, alone, "c"))
    assert str(house.outcomes()[-1]["decidedBy"]).startswith("grant:")
    beside = alone.result(alone.start_call("ask", {"text": "/srv/elsewhere"}))
    assert "no approval channel available" in texts(beside)[0]


def test_another_policy_asks_again_and_the_first_one_does_not(house: House, person: Person) -> None:
    approve_and_remember(house, person)
    first = list(house.rules)
    house.rules = [rule("ask-first", "escalate", "a person must still agree", tool=["ask"])]
    assert is_asked_again(house, person)
    house.rules = first
    assert not is_asked_again(house, person)


def test_a_tool_that_is_defined_otherwise_is_asked_about_again(
    house: House, person: Person
) -> None:
    approve_and_remember(house, person)
    changed = {**TOOL, "description": "Does what it did, and more."}
    (house.root / "tools-scripted.json").write_bytes(orjson.dumps({"tools": [changed]}))
    assert is_asked_again(house, person)


def test_another_server_under_the_same_name_is_asked_about_again(
    house: House, person: Person
) -> None:
    approve_and_remember(house, person)
    server = house.servers["scripted"]
    assert isinstance(server, dict)
    house.servers["scripted"] = {**server, "env": {**_env(server), "DATABASE": "production"}}
    assert is_asked_again(house, person)


def _env(server: Message) -> Message:
    env = at(server, "env")
    assert isinstance(env, dict)
    return env


def test_what_has_expired_asks_again(house: House, person: Person) -> None:
    approve_and_remember(house, person)
    now = datetime.now(UTC)  # noqa: TID251  the proxy's time is real
    created, day = now - timedelta(days=20), timedelta(days=1)
    edit(house, createdAt=created.isoformat(), expiresAt=(now + day).isoformat())
    assert not is_asked_again(house, person)
    edit(house, createdAt=created.isoformat(), expiresAt=(now - day).isoformat())
    assert is_asked_again(house, person)


def test_an_entry_that_was_edited_by_hand_asks_again_and_is_told(
    house: House, person: Person
) -> None:
    approve_and_remember(house, person)
    raw = file(house).read_bytes()
    file(house).write_bytes(raw.replace(str(house.root / "out").encode(), b"/srv"))
    assert is_asked_again(house, person)
    assert "grant 1 is ignored: it was changed" in (house.root / "stderr-1.txt").read_text()


def test_two_projects_do_not_share_what_is_for_a_project(house: House, person: Person) -> None:
    approve_and_remember(house, person)
    assert is_asked_again(house, person, **elsewhere(house))
    assert not is_asked_again(house, person)


def test_two_projects_share_what_is_for_the_user(house: House, person: Person) -> None:
    configure(house, "user")
    approve_and_remember(house, person, **elsewhere(house))
    assert not is_asked_again(house, person)


def elsewhere(house: House) -> dict[str, str]:
    other = house.home / "other"
    other.mkdir(exist_ok=True)
    return {"ALLOWED_DIRECTORY": str(other)}


@pytest.mark.requirement("D-31")
def test_kept_grants_are_listed_and_revoked_when_no_session_runs(
    house: House, person: Person
) -> None:
    identifier = approve_and_remember(house, person)
    (one,) = listed(house)
    assert (one["id"], one["scope"]) == (identifier, "project")
    assert one["workspace"] == str(house.workspace.resolve())
    assert (one["uses"], one["unusedDays"], one["session"]) == (0, 0, None)
    assert "never used since" in command(house, "list")
    assert command(house, "list", "--unused", "1") == "nothing is unused so long\n"
    assert command(house, "revoke", identifier[:6]) == f"revoked {identifier[:8]}\n"
    assert listed(house) == []
    assert is_asked_again(house, person)


@pytest.mark.requirement("D-31")
@pytest.mark.parametrize("how", ["revoke", "clear"])
def test_what_is_taken_back_while_a_session_runs_is_asked_about_at_its_next_call(
    house: House, person: Person, how: str
) -> None:
    identifier = approve_and_remember(house, person)
    agent = start(house, person)
    agent.result(asking(house, agent, "b"))
    command(house, how, *([identifier] if how == "revoke" else []))
    assert settles_by_asking(house, person, agent, asking(house, agent, "c"))
    assert kept(house) == []


def listed(house: House) -> list[Message]:
    found = orjson.loads(command(house, "list", "--json"))
    assert isinstance(found, list)
    return found


def command(house: House, *words: str) -> str:
    """`grants`, as from any shell: it is told nothing of this session's mailbox."""
    done = subprocess.run(
        [*PROXY, "grants", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(house.home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("D-31")
def test_sessions_at_once_keep_all_they_were_given_and_lose_what_was_cleared(
    house: House, person: Person
) -> None:
    (house.root / "more").mkdir()
    one = start(house, person)
    two = house.start(ESCALATION_DIR=str(person.directory), AUDIT_LOG_PATH=str(house.root / "two"))
    for agent, directory in ((one, "out"), (two, "more")):
        call = agent.start_call("ask", {"text": str(house.root / directory / "a")})
        person.until_asked()
        assert person.command("approve", "all", "--remember").returncode == 0
        agent.result(call)
    assert len(kept(house)) == 2
    file(house).unlink()
    assert settles_by_asking(house, person, one, asking(house, one, "b"))
