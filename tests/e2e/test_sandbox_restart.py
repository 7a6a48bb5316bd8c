"""Whatever of a sandbox is killed, nothing of it stays, and the server is confined again."""

import itertools
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

import orjson
import pytest

from tests.e2e.confined_installation import (
    BLOCKED,
    PATH,
    add_hostile,
    arguments_of,
    bound_below,
    directory_of,
    done,
    escalations,
    folder,
    is_bridge,
    is_bubblewrap,
    is_guardian,
    is_server,
    is_srt,
    refused,
    sandboxes,
    settings_files,
    those,
)
from tests.e2e.installation import Installation
from tests.e2e.process_tree import Watch, descendants
from tests.e2e.raw_client import Message, RawClient
from tests.e2e.servers import hostile
from tests.program import PATIENCE

pytestmark = pytest.mark.usefixtures("sandbox")


KILLED: Final = {
    "srt, SIGKILL": (is_srt, signal.SIGKILL),
    "srt, SIGINT": (is_srt, signal.SIGINT),
    "the server, SIGKILL": (is_server, signal.SIGKILL),
    "bubblewrap, SIGKILL": (is_bubblewrap, signal.SIGKILL),
    "the network's bridge, SIGTERM": (is_bridge, signal.SIGTERM),
    "the network's bridge, SIGKILL": (is_bridge, signal.SIGKILL),
    "the guardian, SIGKILL": (is_guardian, signal.SIGKILL),
}


def until_answered(agent: RawClient, outside: Path) -> str:
    """The first answer of a server that is started again to an attempt to write outside."""
    end = time.monotonic() + PATIENCE
    for attempt in itertools.count():
        # Each with another text: what is repeated too often is stopped by the circuit breaker.
        given: Message = {"path": str(outside), "text": str(attempt)}
        answer = orjson.dumps(agent.answer(agent.start_call("write", given))).decode()
        assert not outside.exists(), answer
        # What the proxy says while the server is away, and once a start of it has failed.
        away = ('"Error: server ', '"Error: The server ', "Unknown tool")
        if not any(one in answer for one in away):
            return answer
        assert time.monotonic() < end, f"it was not started again: {answer}"
        time.sleep(0.05)  # an agent is told nothing while the tools stay the same
    raise AssertionError


@pytest.mark.requirement("C-7", "C-11", "C-12")
@pytest.mark.parametrize("killed", [[*KILLED][:4], [*KILLED][4:]], ids=["first", "others"])
def test_a_server_is_confined_however_often_it_is_started_again_and_nothing_is_left_of_the_last(
    single: Installation, killed: list[str]
) -> None:
    """More kills in one session would be pauses: each before a start is twice the one before."""
    agent = single.start()
    for number, what in enumerate(killed):
        who, signal_ = KILLED[what]
        done(agent.call("spawn"))  # answered by a server that runs by then
        (first,) = sandboxes(single.processes(agent))
        directory = directory_of(first)
        assert bound_below(directory), what
        below = descendants(agent.process.pid)
        assert any(hostile.GRANDCHILD in arguments_of(pid) for pid in below), what
        watch = Watch(below)
        os.kill(min(those(below, who)), signal_)
        assert watch.survivors() == set(), what
        assert BLOCKED in until_answered(agent, single.root / f"outside-{number}.txt"), what
        assert single.outcomes()[-1]["sandboxed"] is True, what
        assert not directory.exists(), what
        assert bound_below(directory) == [], what
        assert settings_files(single) == [], what
        (second,) = sandboxes(single.processes(agent))
        assert bound_below(directory_of(second)), what
        inside = single.workspace / f"inside-{number}.txt"
        done(agent.call("write", {"path": str(inside), "text": "x"}))
        assert inside.read_text() == "x", what


def fail_at(installation: Installation, run: int) -> None:
    """Let srt fail, once, as it does where the machine is too busy to start socat in 0.6 s."""
    srt = folder(installation, "programs") / "srt"
    counter = installation.root / "runs"
    real = shutil.which("srt", path=PATH)
    srt.write_text(
        f"""#!/bin/sh
        echo run >> {counter}
        if [ "$(wc -l < {counter})" = {run} ]; then
            echo 'Error: Failed to create bridge sockets after 5 attempts' >&2
            exit 1
        fi
        exec {real} "$@"
        """
    )
    srt.chmod(0o755)
    installation.variables["PATH"] = f"{srt.parent}:{PATH}"


@pytest.mark.requirement("C-14")
def test_a_machine_that_is_busy_for_a_moment_does_not_count_as_one_without_a_sandbox(
    single: Installation,
) -> None:
    fail_at(single, 1)
    agent = single.start()
    outside = single.root / "outside.txt"
    assert BLOCKED in refused(agent.call("write", {"path": str(outside), "text": "x"}))


@pytest.mark.requirement("C-7", "C-12")
def test_a_server_whose_first_new_start_fails_is_confined_when_the_next_succeeds(
    single: Installation,
) -> None:
    """The first run is the one that finds out whether a sandbox can be had."""
    fail_at(single, 3)
    agent = single.start()
    agent.until_listed("write")
    (sandbox,) = sandboxes(single.processes(agent))
    os.kill(sandbox, signal.SIGKILL)
    agent.notification("notifications/tools/list_changed")
    assert BLOCKED in until_answered(agent, single.root / "outside.txt")
    assert single.outcomes()[-1]["sandboxed"] is True
    assert "write" in agent.tool_names()
    assert "bridge sockets" in single.session_log.read_text()


def test_another_server_works_on_while_one_is_started_again(installation: Installation) -> None:
    escalations(installation)
    installation.variables["SANDBOX_POLICY"] = "enforce"
    add_hostile(installation, "one", "first")
    add_hostile(installation, "two", "second")
    agent = installation.start()
    done(agent.call("two__tmp"))
    both = those(descendants(agent.process.pid), is_guardian)
    (one,) = [pid for pid in both if "first" in arguments_of(pid)]
    (two,) = both - {one}
    watch = Watch({one} | descendants(one))
    sibling = descendants(two)
    os.kill(one, signal.SIGKILL)
    assert watch.survivors() == set()
    outside = installation.root / "outside.txt"
    assert BLOCKED in refused(agent.call("two__write", {"path": str(outside), "text": "x"}))
    assert descendants(two) == sibling
