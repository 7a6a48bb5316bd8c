"""One kernel for the hooks of a client and for the servers that it uses."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks import sharing
from ironcurtain_proxy.hooks.installing import install, place_in
from ironcurtain_proxy.hooks.kernel import SHARED
from ironcurtain_proxy.model.values import Json
from tests.e2e.raw_client import NEWEST, Message, RawClient
from tests.hooks.agreement import stand_ins
from tests.hooks.hooked import HookedHome, decision_in, installed_at
from tests.hooks.test_questions import listener, waiting
from tests.program import PATIENCE, wait_until

PROXY = """
import sys
from ironcurtain_proxy.hooks import health
health._client_above = lambda _pid: ("claude", int(sys.argv[1]))
from ironcurtain_proxy.cli import main
sys.exit(main(["serve"]))
"""
"""The proxy for servers, which takes this process for its client, and so is a child of it."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookedHome]:
    hooked = HookedHome(tmp_path)
    config = orjson.loads((hooked.state / "config.json").read_bytes())
    servers = orjson.loads(stand_ins(hooked.state))
    hooked.write("config.json", {**config, "mcpServers": servers})
    install(place_in("claude", hooked.home, hooked.state))
    installed_at(hooked.state, 0)
    monkeypatch.chdir(hooked.workspace)
    yield hooked
    hooked.end_session()


@contextmanager
def proxy(home: HookedHome, **variables: str) -> Iterator[RawClient]:
    """Start the proxy, and wait until it serves the hooks, or says why not."""
    words = [sys.executable, "-c", PROXY, str(os.getpid())]
    environment, before = {**home.environment(), **variables}, notes(home).keys()
    with RawClient(words, environment, home.home / "errors", home.workspace) as agent:
        info: Message = {"name": "x", "version": "1"}
        greeted: Message = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": info}
        agent.result(agent.request("initialize", greeted))
        agent.notify("notifications/initialized")
        try:
            wait_until(lambda: notes(home).keys() - before)
            (own,) = notes(home).keys() - before
            # The end of a session is told to a socket that is there, and to no other.
            doors = home.state / "doors"
            wait_until(lambda: notes(home)[own] or any(one.is_socket() for one in doors.iterdir()))
            yield agent
        finally:
            # It ends with the last of both.
            home.end_session()


def notes(home: HookedHome) -> dict[Path, str]:
    """Return why each proxy does not serve the hooks; empty for one that does, or is about to."""
    found = (home.state / "sessions").glob(f"*/{SHARED}")
    return {one: one.read_text().removeprefix("claude").lstrip("\n") for one in found}


def said(home: HookedHome) -> list[str]:
    return [*notes(home).values()]


def records(home: HookedHome) -> list[Message]:
    """Return all records of the log that holds those of both doors."""
    logs = home.state.glob("audit.jsonl*")
    (found,) = [one for one in logs if b'"door":"hook"' in one.read_bytes()]
    return [orjson.loads(line) for line in found.read_bytes().splitlines()]


def test_a_kernel_that_has_judged_nothing_leaves_the_hooks_and_the_user_s_words_to_the_proxy(
    home: HookedHome,
) -> None:
    home.fire("SessionStart", {"source": "startup"})
    home.fire("UserPromptSubmit", {"prompt": "look at the page"})
    own = home.kernel()
    with proxy(home):
        assert said(home) == [""]
        wait_until(lambda: not Path(f"/proc/{own}").exists())
        found = [*(home.state / "sessions").glob("*/user-context.json")]
        assert ["look at the page" in one.read_text() for one in found] == [True]


def test_one_kernel_serves_both_doors_and_ends_with_the_last_of_both(home: HookedHome) -> None:
    page: Message = {"url": "https://example.com/a"}
    with listener(home), proxy(home) as agent:
        call = home.call("WebFetch", {**page, "prompt": "x"})
        hook = home.start("PreToolUse", call)
        assert home.command("approve", waiting(home), "--remember").returncode == 0
        assert decision_in(hook.communicate(timeout=PATIENCE)[0]) == "allow"
        home.fire("PostToolUse", {**call, "tool_response": {}})
        made = str(home.workspace / "made.txt")
        native = home.call("Write", {"file_path": made, "content": "x"})
        home.fire("PreToolUse", native)
        Path(made).write_text("x")
        home.fire("PostToolUse", {**native, "tool_response": {}})
        agent.result(agent.start_call("filesystem__write_file", {"path": made, "content": "y"}))
        assert "ok" in str(agent.result(agent.start_call("fetch__fetch", page)))
        status = home.command("hooks", "status").stdout
        assert f"the proxy of process {agent.process.pid} serves them, too" in status
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        # The servers' agent has gone; the hooks have the same kernel, with what it remembers.
        assert home.decide("WebFetch", {**page, "prompt": "y"}) == "allow"
        home.end_session()
        assert agent.process.wait(timeout=PATIENCE) == 0
    ended = [one for one in records(home) if "result" in one]
    assert len({str(one["session"]) for one in ended}) == 1
    decided = [(one.get("door"), one["toolName"], one["decidedBy"]) for one in ended]
    (_, _, grant) = decided[3]
    assert str(grant).startswith("grant:")
    assert decided == [
        ("hook", "fetch", "human"),
        ("hook", "write_file", "kernel"),
        ("mcp", "write_file", "kernel"),
        ("mcp", "fetch", grant),
        ("hook", "fetch", grant),
    ]
    listed = home.command("rollback", "--list").stdout
    assert listed.count(f"session {str(ended[0]['session'])[:12]}…") == 2
    assert [one.name for one in (home.state / "doors").iterdir()] == ["claude.fired"]


def test_servers_go_on_where_hooks_end_and_hooks_where_the_proxy_ends_but_not_where_it_is_killed(
    home: HookedHome,
) -> None:
    with proxy(home) as agent:
        # No hook has come: that the proxy itself holds the door says nothing.
        read: Message = {"path": str(home.workspace)}
        refused = agent.result(agent.start_call("filesystem__list_directory", read))
        assert "runs without the hooks" in str(refused)
        assert home.decide("Bash", {"command": "ls"}) == "silence"
        assert "ok" in str(agent.result(agent.start_call("filesystem__list_directory", read)))
        home.end_session()
        assert "ok" in str(agent.result(agent.start_call("filesystem__list_directory", read)))
    with proxy(home) as agent, proxy(home):
        assert home.decide("Bash", {"command": "ls"}) == "silence"
        assert "another proxy that the client started serves them" in said(home)
        agent.process.send_signal(signal.SIGINT)
        agent.process.wait(timeout=PATIENCE)
        assert home.decide("Bash", {"command": "ls"}) == "silence"
        assert home.kernel() != agent.process.pid
    home.end_session()
    with proxy(home) as agent:
        assert home.decide("Bash", {"command": "ls"}) == "silence"
        agent.process.kill()
        agent.process.wait()
        # What it had approved is gone, and nobody knows why: only a new session goes on.
        assert home.decide("Bash", {"command": "ls"}) == "deny"
        assert home.fire("SessionStart", {"source": "startup"}).returncode == 0
        assert home.decide("Bash", {"command": "ls"}) == "silence"


def test_a_kernel_that_has_judged_a_call_keeps_the_hooks_and_the_status_says_so(
    home: HookedHome,
) -> None:
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    with proxy(home):
        assert said(home) == ["calls had come before this proxy was there"]
        assert home.decide("Bash", {"command": "ls"}) == "silence"
        status = home.command("hooks", "status").stdout
        assert "they have a kernel of their own beside it: calls had come before" in status


@pytest.mark.parametrize(
    ("variables", "config", "why"),
    [
        ({}, {}, ""),
        ({"AUDIT_LOG_PATH": "/tmp/x"}, {}, "another configuration (audit)"),
        ({"GENERATED_DIR": "/tmp/x"}, {}, "another configuration (generated_dir)"),
        ({"ALLOWED_DIRECTORY": "/tmp"}, {}, "another configuration (workspace)"),
        ({"IRONCURTAIN_CONFIG": "other.json"}, {}, "another configuration"),
        ({"AUTO_APPROVE_ENABLED": "true"}, {}, "another configuration (auto_approve)"),
        ({}, {"auto_confirm": {"enabled": True}}, "the auto-confirm engine"),
        ({}, {"observed": True}, "its hooks only record"),
        ({}, {"moved": True}, "has hooks of another installation"),
    ],
)
def test_a_proxy_serves_hooks_only_as_their_own_kernel_would(
    home: HookedHome, variables: dict[str, str], config: dict[str, Json], why: str
) -> None:
    if config.pop("observed", False):
        home.observe()
    if config.pop("moved", False):
        file = place_in("claude", home.home, home.state).file
        file.write_text(file.read_text().replace("stub.py", "other/stub.py"))
    (home.workspace / "other.json").write_text("{}")
    known = orjson.loads((home.state / "config.json").read_bytes())
    home.write("config.json", {**known, **config})
    settings = load_settings({**home.environment(), **variables})
    found = ""
    try:
        sharing._settings("claude", os.getpid(), settings)
    except ConfigurationError as error:
        found = str(error)
    assert why in found
    assert bool(why) is bool(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees another user's process as its own")
def test_a_client_of_another_user_is_not_served(home: HookedHome) -> None:
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        signal.pause()
    try:
        wait_until(lambda: Path(f"/proc/{child}").stat().st_uid != os.geteuid())
        with pytest.raises(ConfigurationError, match="another user's"):
            sharing._settings("claude", child, load_settings({**home.environment()}))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
