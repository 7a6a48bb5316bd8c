"""Approvals that outlive their session: the real proxy, started again and again."""

import os
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, texts
from tests.program import PROXY

pytestmark = pytest.mark.requirement("X-12")

NOT_APPROVED = "tool 'ask' execution denied: user did not approve the action"
TOOL = tool("ask", text={"type": "string"})


@pytest.fixture
def person(installation: Installation) -> Person:
    """An installation in which `ask` escalates and names a file, and its approvals are kept."""
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}}, tools=[TOOL])
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    (installation.root / "out").mkdir()
    configure(installation)
    return Person(installation)


def configure(installation: Installation, scope: str = "project", **grants: Json) -> None:
    directory = installation.home / ".ironcurtain"
    directory.mkdir(mode=0o700, exist_ok=True)
    persist: Json = {"enabled": True, "scope": scope}
    config = {"grants": {"persist": persist, **grants}}
    (directory / "config.json").write_bytes(orjson.dumps(config))


def asking(installation: Installation, agent: RawClient, name: str = "a") -> int:
    return agent.start_call("ask", {"text": str(installation.root / "out" / name)})


def start(installation: Installation, person: Person, **variables: str) -> RawClient:
    return installation.start(ESCALATION_DIR=str(person.directory), **variables)


def approve_and_remember(installation: Installation, person: Person, **variables: str) -> str:
    """One session in which a person is asked. The grant's id, from the file."""
    before = {str(entry["id"]) for entry in kept(installation)}
    agent = start(installation, person, **variables)
    call = asking(installation, agent)
    person.until_asked()
    person.approve("--remember")
    agent.result(call)
    agent.close()
    (identifier,) = {str(entry["id"]) for entry in kept(installation)} - before
    return identifier


def is_asked_again(installation: Installation, person: Person, **variables: str) -> bool:
    """Another session, in which the person says no if they are asked."""
    agent = start(installation, person, **variables)
    call = asking(installation, agent, "b")
    return settles_by_asking(installation, person, agent, call)


def grants_listed(installation: Installation) -> str:
    """What a person reads, who has the same configuration as the client's proxy."""
    installation.write_policy()
    return program.run([*PROXY, "grants", "list"], installation.environment()).stdout


def settles_by_asking(
    installation: Installation, person: Person, agent: RawClient, call: int
) -> bool:
    # The answer may have come before this line.
    while not person.requests() and all(one.get("id") != call for one in agent.arrived):
        agent.wait(0.01)
    if not (asked := bool(person.requests())):
        agent.result(call)
        assert str(installation.outcomes()[-1]["decidedBy"]).startswith("grant:")
    else:
        person.answer({"decision": "denied"})
        assert texts(agent.result(call))[0] == NOT_APPROVED
    agent.close()
    return asked


def file(installation: Installation) -> Path:
    return installation.home / ".ironcurtain" / "grants.json"


def kept(installation: Installation) -> list[Message]:
    if not file(installation).exists():
        return []
    grants = orjson.loads(file(installation).read_bytes())["grants"]
    assert isinstance(grants, list)
    return grants


def edit(installation: Installation, **changes: Json) -> None:
    """As one who knows the format: the digest is right."""
    (entry,) = kept(installation)
    said = {**{name: entry[name] for name in entry if name != "digest"}, **changes}
    digest = sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()
    file(installation).write_bytes(
        orjson.dumps({"version": 1, "grants": [{**said, "digest": digest}]})
    )


@pytest.mark.requirement("E-36")
def test_unless_it_is_switched_on_nothing_outlives_the_session(
    installation: Installation, person: Person
) -> None:
    (installation.home / ".ironcurtain" / "config.json").unlink()
    agent = start(installation, person)
    call = asking(installation, agent)
    person.until_asked()
    person.approve("--remember")
    agent.result(call)
    agent.close()
    assert not file(installation).exists()
    assert is_asked_again(installation, person)


def test_the_scope_session_keeps_nothing_and_says_so(
    installation: Installation, person: Person
) -> None:
    configure(installation, "session")
    assert is_asked_again(installation, person)
    said = (installation.root / "stderr-0.txt").read_text()
    assert "grants.persist is enabled, but its scope is session: nothing is kept" in said


def test_what_was_remembered_counts_in_the_next_session_and_each_use_is_recorded(
    installation: Installation, person: Person
) -> None:
    identifier = approve_and_remember(installation, person)
    assert installation.outcomes()[-1]["decidedBy"] == "human"
    agent = start(installation, person)
    for name in "bcd":
        agent.result(asking(installation, agent, name))
        assert installation.outcomes()[-1]["decidedBy"] == f"grant:{identifier}"
    assert person.requests() == []
    agent.close()
    assert len(installation.received()) == 4
    (entry,) = kept(installation)
    assert entry["uses"] == 3
    assert file(installation).stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("E-27")
def test_where_nobody_can_be_asked_a_kept_grant_still_counts(
    installation: Installation, person: Person
) -> None:
    """R-39."""
    approve_and_remember(installation, person)
    alone = installation.start()
    alone.result(asking(installation, alone, "c"))
    assert str(installation.outcomes()[-1]["decidedBy"]).startswith("grant:")
    beside = alone.result(alone.start_call("ask", {"text": "/srv/elsewhere"}))
    assert "no approval channel available" in texts(beside)[0]


def test_another_rule_about_the_tool_asks_again_and_the_first_one_does_not(
    installation: Installation, person: Person
) -> None:
    approve_and_remember(installation, person)
    first = list(installation.rules)
    installation.rules = [*first, rule("other", "escalate", tool=["another"])]
    assert not is_asked_again(installation, person)
    assert "does not count" not in grants_listed(installation)
    installation.rules = [rule("ask-first", "escalate", "a person must still agree", tool=["ask"])]
    assert is_asked_again(installation, person)
    assert "does not count: a rule about its tool" in grants_listed(installation)
    installation.rules = first
    assert not is_asked_again(installation, person)


def test_a_tool_that_is_defined_otherwise_is_asked_about_again(
    installation: Installation, person: Person
) -> None:
    installation.variables["PINS"] = "warn"
    approve_and_remember(installation, person)
    changed = {**TOOL, "description": "Does what it did, and more."}
    (installation.root / "tools-scripted.json").write_bytes(orjson.dumps({"tools": [changed]}))
    assert is_asked_again(installation, person)


def test_another_server_under_the_same_name_is_asked_about_again(
    installation: Installation, person: Person
) -> None:
    approve_and_remember(installation, person)
    server = installation.servers["scripted"]
    assert isinstance(server, dict)
    installation.servers["scripted"] = {**server, "env": {**_env(server), "DATABASE": "production"}}
    assert is_asked_again(installation, person)


def _env(server: Message) -> Message:
    env = at(server, "env")
    assert isinstance(env, dict)
    return env


def test_what_has_expired_asks_again(installation: Installation, person: Person) -> None:
    approve_and_remember(installation, person)
    now = datetime.now(UTC)  # noqa: TID251  the proxy's time is real
    created, day = now - timedelta(days=20), timedelta(days=1)
    edit(installation, createdAt=created.isoformat(), expiresAt=(now + day).isoformat())
    assert not is_asked_again(installation, person)
    edit(installation, createdAt=created.isoformat(), expiresAt=(now - day).isoformat())
    assert is_asked_again(installation, person)


def test_an_entry_that_was_edited_by_hand_asks_again_and_is_told(
    installation: Installation, person: Person
) -> None:
    approve_and_remember(installation, person)
    raw = file(installation).read_bytes()
    file(installation).write_bytes(raw.replace(str(installation.root / "out").encode(), b"/srv"))
    assert is_asked_again(installation, person)
    assert "grant 1 is ignored: it was changed" in (installation.root / "stderr-1.txt").read_text()


def test_two_projects_do_not_share_what_is_for_a_project(
    installation: Installation, person: Person
) -> None:
    approve_and_remember(installation, person)
    assert is_asked_again(installation, person, **elsewhere(installation))
    assert not is_asked_again(installation, person)


def test_two_projects_share_what_is_for_the_user(
    installation: Installation, person: Person
) -> None:
    configure(installation, "user")
    approve_and_remember(installation, person, **elsewhere(installation))
    assert not is_asked_again(installation, person)


def elsewhere(installation: Installation) -> dict[str, str]:
    other = installation.home / "other"
    other.mkdir(exist_ok=True)
    return {"ALLOWED_DIRECTORY": str(other)}


@pytest.mark.requirement("D-31")
def test_kept_grants_are_listed_and_revoked_when_no_session_runs(
    installation: Installation, person: Person
) -> None:
    identifier = approve_and_remember(installation, person)
    (one,) = listed(installation)
    assert (one["id"], one["scope"]) == (identifier, "project")
    assert one["workspace"] == str(installation.workspace.resolve())
    assert (one["uses"], one["unusedDays"], one["session"]) == (0, 0, None)
    assert "not used yet, given on" in command(installation, "list")
    assert command(installation, "list", "--unused", "1") == "no grant is unused for so long\n"
    assert command(installation, "revoke", identifier[:6]) == f"revoked {identifier[:8]}\n"
    assert listed(installation) == []
    assert is_asked_again(installation, person)


@pytest.mark.requirement("D-31")
@pytest.mark.parametrize("how", ["revoke", "clear"])
def test_what_is_taken_back_while_a_session_runs_is_asked_about_at_its_next_call(
    installation: Installation, person: Person, how: str
) -> None:
    identifier = approve_and_remember(installation, person)
    agent = start(installation, person)
    agent.result(asking(installation, agent, "b"))
    command(installation, how, *([identifier] if how == "revoke" else []))
    assert settles_by_asking(installation, person, agent, asking(installation, agent, "c"))
    assert kept(installation) == []


def listed(installation: Installation) -> list[Message]:
    found = orjson.loads(command(installation, "list", "--json"))
    assert isinstance(found, list)
    return found


def command(installation: Installation, *words: str) -> str:
    """`grants`, as from any shell: it is told nothing of this session's mailbox."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(installation.home)}
    done = program.run([*PROXY, "grants", *words], environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("D-31")
def test_sessions_at_once_keep_all_they_were_given_and_lose_what_was_cleared(
    installation: Installation, person: Person
) -> None:
    (installation.root / "more").mkdir()
    one = start(installation, person)
    two = installation.start(
        ESCALATION_DIR=str(person.directory), AUDIT_LOG_PATH=str(installation.root / "two")
    )
    for agent, directory in ((one, "out"), (two, "more")):
        call = agent.start_call("ask", {"text": str(installation.root / directory / "a")})
        person.until_asked()
        person.approve("--remember")
        agent.result(call)
    assert len(kept(installation)) == 2
    file(installation).unlink()
    assert settles_by_asking(installation, person, one, asking(installation, one, "b"))


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("project", "for 30 days in this project"),
        ("user", "for 30 days"),
        ("session", "until this session ends"),
    ],
)
def test_a_question_says_until_when_an_approval_is_kept(
    installation: Installation, person: Person, scope: str, words: str
) -> None:
    configure(installation, scope)
    agent = start(installation, person)
    call = asking(installation, agent)
    (request,) = person.until_asked()
    offered = request["whitelistCandidates"]
    assert isinstance(offered, list)
    assert f" {words} (" in str(offered[0])
    person.answer({"decision": "denied"})
    agent.result(call)
