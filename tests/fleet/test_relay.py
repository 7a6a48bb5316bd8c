"""Questions of a real proxy reach PostgreSQL, and only signed answers come back from there."""

import signal
from collections.abc import Iterator

import orjson
import psycopg
import pytest

from ironcurtain_proxy.mailbox.messages import signed_response_bytes
from ironcurtain_proxy.model.signing import SignedAnswer
from tests.auto_confirm.store.postgres import Server, a_server, find
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, RawClient, at, texts
from tests.fleet.conftest import Machine
from tests.program import wait_until


def rows(url: str, words: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(words.encode()).fetchall()


def listed(machine: Machine) -> list[Message]:
    done = machine.there("pending", "--json")
    return list(orjson.loads(done.stdout)) if done.returncode == 0 else []


def the_only(machine: Machine) -> Message:
    wait_until(lambda: len(listed(machine)) == 1, "no question came")
    return listed(machine)[0]


def asks(agent: RawClient) -> int:
    return agent.start_call("ask", {"text": "/srv/x"})


def test_two_persons_elsewhere_sign_and_the_call_goes(machine: Machine) -> None:
    ada, bob = machine.joins("ada"), machine.joins("bob", "--quorum", "2")
    machine.relay()
    agent = machine.installation.start()
    call = asks(agent)
    shown = the_only(machine)
    local = orjson.loads(machine.command("pending", "--json").stdout)[0]
    assert (shown["id"], shown["requestDigest"]) == (local["id"], local["requestDigest"])
    for key in (ada, bob):
        done = machine.there("approve", str(shown["id"]), "--key", str(key))
        assert done.returncode == 0, done.stderr
        assert "signed (2 signatures needed)" in done.stdout
    assert "isError" not in agent.result(call)
    assert machine.installation.outcomes()[-1]["decidedBy"] == "signed:ada+bob"
    wait_until(lambda: listed(machine) == [], "the question stayed open")
    ((left, counted),) = rows(
        machine.url,
        """SELECT max(length(request)), (SELECT count(*) FROM ironcurtain_answers
           WHERE outcome = 'counted') FROM ironcurtain_questions""",
    )
    assert (left, counted) == (0, 2)
    late = machine.there("approve", str(shown["id"]), "--key", str(ada))
    assert (late.returncode, "no pending escalation" in late.stderr) == (1, True)


def test_rows_that_an_intruder_writes_approve_nothing(machine: Machine) -> None:
    """The intruder has the whole database, and a true answer of ada to another question."""
    ada = machine.joins("ada")
    machine.relay()
    agent = machine.installation.start()
    first = asks(agent)
    true = machine.there("approve", str(the_only(machine)["id"]), "--key", str(ada))
    assert true.returncode == 0, true.stderr
    agent.result(first)
    ((body,),) = rows(machine.url, "SELECT body FROM ironcurtain_answers")
    assert isinstance(body, bytes)
    call = asks(agent)
    shown = the_only(machine)
    replayed = orjson.loads(body)
    forged = [
        body,
        orjson.dumps({**replayed, "escalationId": shown["id"]}),
        orjson.dumps(
            {**replayed, "escalationId": shown["id"], "requestDigest": shown["requestDigest"]}
        ),
        orjson.dumps({"decision": "approved", "requestDigest": shown["requestDigest"]}),
        signed_response_bytes(
            SignedAnswer(
                key=str(replayed["key"]), approved=True, policy_version="", machine="",
                question=str(shown["id"]), digest=str(shown["requestDigest"]), signature=b"x" * 64,
            )
        ),
        b"", b"[]", b"\x00", b"{" * 1000,
    ]  # fmt: skip
    with psycopg.connect(machine.url, autocommit=True) as connection:
        for number, raw in enumerate(forged * 8):  # more than lie in a mailbox at once
            connection.execute(
                "INSERT INTO ironcurtain_answers (question, hash, body) VALUES (%s, %s, %s)",
                (shown["id"], str(number), raw),
            )
        connection.execute(
            "UPDATE ironcurtain_questions SET request = %s WHERE id = %s",
            (b'{"escalationId": "what nobody asked"}', shown["id"]),
        )
    pending = "SELECT FROM ironcurtain_answers WHERE outcome IS NULL"
    wait_until(lambda: rows(machine.url, pending) == [], "the machine looked at none")
    assert len(machine.installation.received()) == 1
    assert machine.command("approve", str(shown["id"]), "--key", str(ada)).returncode == 0
    assert "isError" not in agent.result(call)


def test_a_changed_row_shows_another_digest_and_its_signature_does_not_count(
    machine: Machine,
) -> None:
    ada = machine.joins("ada")
    machine.relay()
    agent = machine.installation.start()
    call = asks(agent)
    shown = the_only(machine)
    with psycopg.connect(machine.url, autocommit=True) as connection:
        connection.execute(
            b"""UPDATE ironcurtain_questions SET request = convert_to(
                replace(convert_from(request, 'utf8'), '/srv/x', '/srv/harmless'), 'utf8')"""
        )
    assert the_only(machine)["requestDigest"] != shown["requestDigest"]
    done = machine.there("approve", str(shown["id"]), "--key", str(ada))
    assert (done.returncode, "does not accept it" in done.stderr) == (1, True)
    assert machine.installation.received() == []
    assert machine.command("deny", str(shown["id"]), "--key", str(ada)).returncode == 0
    agent.result(call)


def test_a_question_and_its_answer_outlive_relay_and_proxy(machine: Machine) -> None:
    """Both are killed; the answer that came meanwhile is used once, by the same call."""
    machine.installation.variables["ESCALATION_HOLD_AFTER_SECONDS"] = "0.2"
    ada = machine.joins("ada")
    relay = machine.relay()
    agent = machine.installation.start()
    assert texts(agent.result(asks(agent)))[0].startswith("HELD: ")
    shown = the_only(machine)
    relay.kill()
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()
    done = machine.there("approve", str(shown["id"]), "--key", str(ada))
    assert "has not looked at it yet" in done.stdout
    machine.relay()
    wait_until(lambda: list(machine.directory.glob("response-*")), "the answer did not come")
    second = machine.installation.start()
    assert "isError" not in second.result(asks(second))
    assert texts(second.result(asks(second)))[0].startswith("HELD: ")
    assert len(machine.installation.received()) == 1
    assert at(machine.installation.outcomes()[0], "escalationId") == shown["id"]


@pytest.fixture
def server() -> Iterator[Server]:
    if find("postgres") is None or find("initdb") is None:
        pytest.skip("no postgres on this machine")
    with a_server() as found:
        yield found


def test_a_question_waits_while_postgresql_is_down_and_is_sent_when_it_is_back(
    installation: Installation, server: Server
) -> None:
    machine = Machine(installation, server.url)
    ada = machine.joins("ada")
    machine.relay()
    agent = installation.start()
    try:
        first = asks(agent)
        the_only(machine)
        server.crash()
        second = agent.start_call("ask", {"text": "/srv/y"})
        wait_until(lambda: len(machine.requests()) == 2, "nobody was asked")
        assert machine.there("pending").returncode == 2
        server.start()
        wait_until(lambda: len(listed(machine)) == 2, "a question was lost")
        for one in listed(machine):
            done = machine.there("approve", str(one["id"]), "--key", str(ada))
            assert done.returncode == 0, done.stderr
        for call in (first, second):
            assert "isError" not in agent.result(call)
        assert len(installation.received()) == 2
        told = (installation.root / "relay.log").read_text()
        assert "questions wait on this machine" in told
        assert "database: well again" in told
    finally:
        machine.end()


def test_a_copy_of_a_machine_ends_no_question_of_the_first(machine: Machine) -> None:
    """Two relays under one name: each would end what the other one has sent."""
    machine.joins("ada")
    machine.relay()
    agent = machine.installation.start()
    call = asks(agent)
    shown = the_only(machine)
    copy = machine.relay()
    log = machine.installation.root / "relay.log"
    wait_until(
        lambda: "an /etc/machine-id of its own" in log.read_text(), "the copy was not refused"
    )
    assert [one["id"] for one in listed(machine)] == [shown["id"]]
    machine.relays[0].kill()
    machine.relays[0].wait()
    wait_until(lambda: "database: well again" in log.read_text(), "nobody took over")
    assert copy.poll() is None
    done = machine.there("deny", str(shown["id"]), "--key", str(machine.installation.root / "ada"))
    assert done.returncode == 0, done.stderr
    agent.result(call)
