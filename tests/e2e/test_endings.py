"""However the session ends, the call under way is accounted for and nothing is left running."""

import signal
import sys
from collections.abc import Callable
from typing import Final

import orjson
import pytest

from tests.e2e.installation import QUICK, ROOT, SCRIPTED, Installation
from tests.e2e.process_tree import Watch, marked
from tests.e2e.raw_client import RawClient, at, text
from tests.e2e.real_servers import npm_server
from tests.program import PATIENCE


def hang_up(agent: RawClient) -> None:
    agent.hang_up()


def terminate(agent: RawClient) -> None:
    agent.process.terminate()


def interrupt(agent: RawClient) -> None:
    agent.process.send_signal(signal.SIGINT)


def kill(agent: RawClient) -> None:
    agent.process.kill()


ENDS: Final = (hang_up, terminate, interrupt, kill)

every_end = pytest.mark.parametrize("end", ENDS, ids=[end.__name__ for end in ENDS])


def assert_nothing_is_left(
    installation: Installation, agent: RawClient, end: Callable[[RawClient], None]
) -> None:
    processes = installation.processes(agent)
    assert len(processes) > 1
    watch = Watch(processes)
    end(agent)
    agent.process.wait(PATIENCE)
    assert watch.survivors() == set()
    assert marked(installation.mark) == set()


@every_end
def test_nothing_outlives_the_proxy(
    end: Callable[[RawClient], None], scripted: Installation
) -> None:
    """G38."""
    agent = scripted.start()
    agent.call("answer", {"text": "x"})
    assert_nothing_is_left(scripted, agent, end)


@every_end
def test_a_server_that_ignores_every_hint_and_its_children_are_ended(
    end: Callable[[RawClient], None], installation: Installation
) -> None:
    """G38."""
    installation.add_scripted(env={"SCRIPTED_STAY": "1"})
    installation.allow_scripted()
    agent = installation.start()
    children = orjson.loads(text(agent.call("spawn")))
    assert set(children) <= installation.processes(agent)
    assert_nothing_is_left(installation, agent, end)


@pytest.mark.parametrize("end", [terminate, kill], ids=["terminate", "kill"])
@pytest.mark.parametrize(
    "wrapper",
    [
        ["sh", "-c", '"$0" "$@"; exit'],
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"],
    ],
    ids=["a shell", "a launcher that waits"],
)
def test_the_grandchildren_of_a_launcher_are_ended(
    wrapper: list[str], end: Callable[[RawClient], None], installation: Installation
) -> None:
    """G38."""
    installation.add_scripted()
    installation.add_server("scripted", [*wrapper, *QUICK, str(SCRIPTED)])
    installation.allow_scripted()
    agent = installation.start()
    agent.call("spawn")
    assert_nothing_is_left(installation, agent, end)


@pytest.mark.parametrize("end", [terminate, kill], ids=["terminate", "kill"])
def test_the_grandchildren_of_npx_are_ended(
    end: Callable[[RawClient], None], installation: Installation
) -> None:
    """G38."""
    npm_server("memory")
    installation.add_server("memory", ["npx", "--no-install", "mcp-server-memory"], cwd=str(ROOT))
    agent = installation.start()
    agent.until_listed("read_graph")
    assert_nothing_is_left(installation, agent, end)


@pytest.mark.parametrize("end", [hang_up, terminate, interrupt], ids=["gone", "TERM", "INT"])
def test_a_call_under_way_is_recorded_as_withdrawn(
    end: Callable[[RawClient], None], scripted: Installation
) -> None:
    agent = scripted.start()
    agent.start_call("hold", {"key": "k"})
    agent.notification("notifications/message")
    end(agent)
    agent.process.wait(PATIENCE)
    intent, outcome = scripted.records()
    assert intent["phase"] == "intent"
    assert outcome["requestId"] == intent["requestId"]
    assert at(outcome, "result", "status") == "error"


def test_a_killed_proxy_leaves_the_intent_of_the_call_it_had_sent(scripted: Installation) -> None:
    agent = scripted.start()
    agent.start_call("hold", {"key": "k"})
    agent.notification("notifications/message")
    agent.process.kill()
    agent.process.wait(PATIENCE)
    (intent,) = scripted.records()
    assert intent["phase"] == "intent"
    verify = scripted.verify_audit()
    assert str(intent["requestId"]) in verify.stdout


def test_an_agent_that_hangs_up_ends_a_session_without_complaint(scripted: Installation) -> None:
    agent = scripted.start()
    agent.call("answer", {"text": "x"})
    assert agent.close() == 0
    assert "Traceback" not in agent.errors.read_text(encoding="utf-8")
    assert scripted.verify_audit().returncode == 0


def test_an_agent_that_stops_reading_can_still_be_left(scripted: Installation) -> None:
    agent = scripted.start()
    for _ in range(3):
        agent.start_call("fill", {"bytes": 20_000_000})
    agent.notify("notifications/initialized")
    assert_nothing_is_left(scripted, agent, hang_up)


def test_a_probe_that_only_opens_and_closes_starts_no_call(scripted: Installation) -> None:
    agent = scripted.launch()
    agent.close()
    assert scripted.records() == []
