"""`init` with servers that are reached over HTTP: found, asked about, described, and logged in."""

import os
import sys
import webbrowser
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.cli.init_dialogue import Dialogue
from ironcurtain_proxy.cli.init_ending import wanting_login, with_logins
from ironcurtain_proxy.cli.init_servers import read_servers, settings_for
from ironcurtain_proxy.model.values import Json
from tests.cli.test_init import Machine, read_until, started_by, terminal
from tests.downstream.remote.authorization import an_authority, guarded_site
from tests.downstream.remote.site import Site, serving
from tests.program import PATIENCE

BROWSER = "import sys, httpx; httpx.get(sys.argv[1], follow_redirects=True, trust_env=False)"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site()) as found:
        yield found


@pytest.fixture
def guarded() -> Iterator[Site]:
    with an_authority() as authority, serving(guarded_site(authority)) as found:
        yield found


def entry_of(machine: Machine) -> dict[str, Json]:
    text = machine.cursor.read_text().removeprefix("// mine\n")
    found = orjson.loads(text)["mcpServers"]["ironcurtain"]
    assert isinstance(found, dict)
    return found


def test_a_server_over_http_is_described_and_reached_through_the_proxy(
    machine: Machine, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3cret-value")
    headers = {"X-Api-Key": "${env:KEY}", "X-Team": "crew"}
    before = machine.give_cursor(far={"url": site.url, "headers": {**headers}})
    code, said, faults = machine.run("--yes")
    assert code == 0, said + faults
    assert f"far: {site.url}  (over the network)" in said
    assert "its headers move to the proxy's own file: X-Api-Key, X-Team" in said
    assert "s3cret-value" not in said
    assert "check --live: 0 errors" in said
    assert {one.headers.get("x-api-key") for one in site.heard} >= {"s3cret-value"}
    policy = (machine.home / ".ironcurtain/generated/compiled-policy.json").read_bytes()
    (rule,) = [one for one in orjson.loads(policy)["rules"] if "far" in one["if"]["server"]]
    assert rule["if"] == {"server": ["far"], "tool": ["echo"]}
    assert rule["then"] == "escalate"
    assert b"s3cret-value" not in b"".join(machine.files().values())
    env = entry_of(machine)["env"]
    assert isinstance(env, dict)
    # As the client does, which fills in what it is told to.
    filled: dict[str, Json] = {k: str(v).replace("${env:KEY}", "k") for k, v in env.items()}
    given: dict[str, Json] = {**entry_of(machine), "env": filled}
    with started_by(given, machine) as client:
        client.initialize()
        client.until_listed("echo")
    code, said, _ = machine.run("--undo")
    assert (code, machine.cursor.read_bytes()) == (0, before)


def test_without_a_person_a_login_is_left_for_later_and_said(
    machine: Machine, guarded: Site
) -> None:
    machine.give_cursor(far={"url": guarded.url})
    code, said, _ = machine.run("--yes", "--seconds", "20")
    assert code == 1
    assert "far wants a login: run `ironcurtain-proxy login far`" in said
    servers = orjson.loads((machine.home / ".ironcurtain/mcp-servers.json").read_bytes())
    assert servers == {"far": {"url": guarded.url}}
    assert "SERVER_FILTER" in str(entry_of(machine))


def test_a_person_who_logs_in_on_the_way_gets_the_tools_described(
    machine: Machine, guarded: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(machine.home))
    monkeypatch.setenv("BROWSER", f"{sys.executable} -c '{BROWSER}' %s")
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    (machine.home / ".ironcurtain").mkdir(mode=0o700)
    entry: dict[str, Json] = {"url": guarded.url, "addresses": ["127.0.0.1"]}
    settings = settings_for({"far": entry}, machine.workspace)
    before = read_servers(settings, 20)
    assert wanting_login(settings, before) == ["far"]
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    talk = Dialogue(yes=False, as_json=False)
    (after,) = with_logins(talk, settings, before, 20)
    assert after.error == ""
    assert [tool.name for tool in after.tools] == ["echo"]


def test_a_login_that_fails_leaves_the_server_for_later(machine: Machine, guarded: Site) -> None:
    machine.give_cursor(far={"url": guarded.url})
    with terminal(machine) as (screen, process):
        read_until(screen, "(s asks before each step) [Y/n/s]")
        os.write(screen, b"s\n")
        read_until(screen, "behind the proxy? [Y/n]")
        os.write(screen, b"\n")
        read_until(screen, "Connect to far now, to read the tools? [Y/n]")
        os.write(screen, b"\n")
        read_until(screen, "far wants a login: open its page in your browser now? [Y/n]")
        os.write(screen, b"\n")
        assert "127.0.0.1 is no public address" in read_until(screen, "(d shows the difference)")
        os.write(screen, b"y\n")
        assert "ironcurtain-proxy login far" in read_until(screen, "Put our hooks first")
        os.write(screen, b"n\n")
        assert process.wait(PATIENCE) == 1


def test_what_a_server_on_another_machine_is_given_is_never_taken_for_a_file_of_this_one(
    machine: Machine, site: Site
) -> None:
    site.tools = ["read_file", "write_file"]
    machine.give_cursor(filesystem={"url": site.url})
    assert machine.run("--yes")[0] == 0
    file = machine.home / ".ironcurtain/generated/compiled-policy.json"
    rules = orjson.loads(file.read_bytes())["rules"]
    # Rules for a client's own tools name the server that they stand for.
    named = [
        (one["if"]["server"], one["then"]) for one in rules if one["if"]["server"] != ["filesystem"]
    ]
    assert named == [(["filesystem-server"], "escalate")]
