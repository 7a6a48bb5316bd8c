"""Nothing of a sandbox outlives the proxy, however that ends, nor a second proxy's start."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import (
    add_hostile,
    arguments_of,
    bound_below,
    directory_of,
    done,
    escalations,
    is_guardian,
    is_srt,
    kill_at_once,
    sandboxes,
    settings_files,
    those,
)
from tests.e2e.installation import Installation
from tests.e2e.process_tree import Watch, descendants, marked
from tests.e2e.raw_client import RawClient
from tests.e2e.servers import hostile
from tests.program import PATIENCE

pytestmark = [pytest.mark.requirement("C-7", "C-12"), pytest.mark.usefixtures("sandbox")]


def hang_up(agent: RawClient) -> None:
    agent.hang_up()


def terminate(agent: RawClient) -> None:
    agent.process.terminate()


def kill(agent: RawClient) -> None:
    agent.process.kill()


ENDS: Final = (hang_up, terminate, kill)


@pytest.mark.parametrize("end", ENDS, ids=[end.__name__ for end in ENDS])
def test_nothing_of_a_sandbox_outlives_the_proxy(
    single: Installation, end: Callable[[RawClient], None]
) -> None:
    """Neither processes nor sockets nor settings."""
    agent = single.start()
    done(agent.call("spawn"))
    processes = single.processes(agent)
    assert any(hostile.GRANDCHILD in arguments_of(pid) for pid in processes)
    (sandbox,) = sandboxes(processes)
    directory = directory_of(sandbox)
    assert any(one.is_socket() for one in directory.iterdir())
    watch = Watch(processes)
    end(agent)
    agent.process.wait(PATIENCE)
    assert watch.survivors() == set()
    assert marked(single.mark) == set()
    assert not directory.exists()
    assert settings_files(single) == []


# --- killed at once with what guards its servers, so that nobody is left to end them


def stubborn(installation: Installation) -> tuple[RawClient, set[int], Path]:
    """A proxy with a server that does not end by itself, all processes, the sandbox's directory."""
    agent = installation.start()
    done(agent.call("spawn"))
    done(agent.call("stay"))
    below = descendants(agent.process.pid)
    (sandbox,) = sandboxes(below)
    directory = directory_of(sandbox)
    assert bound_below(directory)
    return agent, below, directory


def is_nothing_left(installation: Installation, directory: Path) -> bool:
    return not (directory.exists() or bound_below(directory) or settings_files(installation))


def test_no_process_and_no_socket_outlives_the_proxy_and_the_guardian(single: Installation) -> None:
    agent, below, directory = stubborn(single)
    watch = Watch(below)
    kill_at_once({agent.process.pid} | those(below, is_guardian))
    assert watch.survivors() == set()
    assert marked(single.mark) == set()
    assert bound_below(directory) == []
    done(single.start().call("pids"))
    assert is_nothing_left(single, directory)


def test_the_next_start_ends_and_removes_what_is_left_where_srt_was_killed_too(
    single: Installation,
) -> None:
    agent, below, directory = stubborn(single)
    watch = Watch(below)
    kill_at_once({agent.process.pid} | those(below, is_guardian) | those(below, is_srt))
    assert bound_below(directory), "nobody was left to end it"
    done(single.start().call("pids"))
    assert watch.survivors() == set()
    assert is_nothing_left(single, directory)


def test_the_proxy_ends_and_removes_what_is_left_of_srt_and_the_guardian(
    single: Installation,
) -> None:
    agent, below, directory = stubborn(single)
    watch = Watch(below)
    kill_at_once(those(below, is_guardian) | those(below, is_srt))
    assert watch.survivors() == set()
    assert agent.close() == 0
    assert is_nothing_left(single, directory)


def test_a_start_leaves_alone_what_a_living_proxy_has(single: Installation, tmp_path: Path) -> None:
    agent, below, directory = stubborn(single)
    other = Installation(tmp_path / "other")
    add_hostile(other, "hostile")
    escalations(other)
    other.variables["TMPDIR"] = single.environment()["TMPDIR"]
    try:
        done(other.start().call("pids"))
        assert directory.is_dir()
        assert bound_below(directory)
        assert descendants(agent.process.pid) == below
        done(agent.call("pids"))
    finally:
        other.end()
