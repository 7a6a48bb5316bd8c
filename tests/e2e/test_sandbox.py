"""A server that tries to get out of its sandbox.

All of these talk to one installation with several servers, each confined by itself. Whether
something was written is looked up in the installation, never believed to the server.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest

from tests.e2e.confined_installation import (
    BLOCKED,
    INSTALLED_PATH,
    Cell,
    add_hostile,
    done,
    folder,
    refused,
    sandboxes,
)
from tests.e2e.hidden_files import CANARY, furnish, hidden
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, text
from tests.e2e.website import Website
from tests.program import FRESH
from tests.tables import table

SECRET: Final = "neighbours-secret-7261"  # noqa: S105  of no account
ODD: Final = table("e2e/attacks.odd_words", tuple[str, ...])
"""Arguments that a shell would make something else of."""

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """One installation, several servers that cannot get out, and one that may."""
    installation = Installation(tmp_path_factory.mktemp("cell"))
    installation.command = FRESH  # a test looks for its command line
    installation.variables["PATH"] = INSTALLED_PATH  # all other tests have a quicker srt
    furnish(installation)
    add_hostile(installation, "plain", *ODD, env={"ODD": "\n".join(ODD)})
    add_hostile(installation, "neighbour", SECRET, env={"API_TOKEN": SECRET})
    add_hostile(installation, "online", sandbox={"network": {"allowedDomains": ["localhost"]}})
    extra = str(folder(installation, "extra"))
    add_hostile(installation, "writer", sandbox={"filesystem": {"allowWrite": [extra]}})
    add_hostile(installation, "elsewhere", cwd=str(folder(installation, "own")))
    add_hostile(installation, "free", sandbox=False)
    installation.known_sandbox = None  # this one finds out for itself
    yield installation, installation.start()
    installation.end()


# --- files


@pytest.mark.requirement("C-7", "C-10", "C-12")
def test_a_write_outside_fails_and_the_agent_is_told_that_it_was_the_sandbox(cell: Cell) -> None:
    installation, agent = cell
    outside = installation.root / "outside.txt"
    assert BLOCKED in refused(agent.call("plain__write", {"path": str(outside), "text": "x"}))
    assert not outside.exists()


@pytest.mark.requirement("C-10")
def test_an_error_that_is_not_the_sandbox_s_is_not_said_to_be(cell: Cell) -> None:
    installation, agent = cell
    absent = str(installation.workspace / "absent/file.txt")
    assert BLOCKED not in refused(agent.call("plain__append", {"path": absent, "text": "x"}))


@pytest.mark.requirement("C-12")
def test_a_write_into_the_workspace_arrives_there(cell: Cell) -> None:
    installation, agent = cell
    file = installation.workspace / "made.txt"
    done(agent.call("plain__write", {"path": str(file), "text": "made"}))
    assert file.read_text() == "made"


@pytest.mark.requirement("C-12")
def test_a_server_writes_into_its_own_working_directory_and_no_other_does(cell: Cell) -> None:
    installation, agent = cell
    done(agent.call("elsewhere__write", {"path": "here.txt", "text": "x"}))
    assert (installation.root / "own/here.txt").exists()
    there = str(installation.root / "own/there.txt")
    assert BLOCKED in refused(agent.call("plain__write", {"path": there, "text": "x"}))


@pytest.mark.requirement("C-13")
def test_allow_write_opens_a_directory_to_the_server_that_has_it_and_to_no_other(
    cell: Cell,
) -> None:
    installation, agent = cell
    file = installation.root / "extra/file.txt"
    given: Message = {"path": str(file), "text": "x"}
    assert BLOCKED in refused(agent.call("plain__write", given))
    assert not file.exists()
    done(agent.call("writer__write", given))
    assert file.read_text() == "x"
    outside = installation.root / "outside.txt"
    refused(agent.call("writer__write", {"path": str(outside), "text": "x"}))
    assert not outside.exists()


@pytest.mark.requirement("C-12")
def test_a_temporary_file_can_be_made_and_no_other_server_finds_it(cell: Cell) -> None:
    _, agent = cell
    made = orjson.loads(done(agent.call("plain__tmp")))
    assert made["text"] == "temporary"
    assert done(agent.call("plain__read", {"path": made["path"]})) == "temporary"
    assert "temporary" not in text(agent.call("neighbour__read", {"path": made["path"]}))
    agent.call("neighbour__append", {"path": made["path"], "text": "added"})
    assert done(agent.call("plain__read", {"path": made["path"]})) == "temporary"


@hidden
def test_what_is_hidden_cannot_be_read_under_any_of_its_names(cell: Cell, place: str) -> None:
    installation, agent = cell
    file = installation.root / place
    assert CANARY in file.read_text()
    assert CANARY in done(agent.call("free__read", {"path": str(file)}))
    name = "to-" + place.replace("/", "-")
    done(agent.call("plain__symlink", {"source": str(file), "target": name}))
    hard = str(installation.workspace / f"hard-{name}")
    assert agent.call("plain__link", {"source": str(file), "target": hard}).get("isError")
    assert BLOCKED in refused(agent.call("plain__read", {"path": str(file)}))
    for path in (str(file), f"/proc/self/root{file}", f"/proc/1/root{file}", name, hard):
        assert CANARY not in text(agent.call("plain__read", {"path": path}))
    for server in ("online", "writer", "elsewhere"):
        assert CANARY not in text(agent.call(f"{server}__read", {"path": str(file)}))


@hidden
def test_what_is_hidden_cannot_be_changed_removed_moved_or_joined(cell: Cell, place: str) -> None:
    installation, agent = cell
    file = installation.root / place
    before = file.read_bytes()
    beside = file.parent / "injected.json"
    moved = str(installation.workspace / "moved")
    for way, path in (("append", file), ("write", file), ("write", beside)):
        answer = agent.call(f"plain__{way}", {"path": str(path), "text": "injected"})
        assert BLOCKED in refused(answer)
    agent.call("plain__rename", {"source": str(file.parent), "target": moved})
    agent.call("plain__rename", {"source": str(file), "target": moved})
    agent.call("plain__remove", {"path": str(file)})
    assert file.read_bytes() == before
    assert not beside.exists()
    assert CANARY not in text(agent.call("plain__read", {"path": moved}))


@pytest.mark.requirement("C-12")
def test_the_audit_log_cannot_be_read_or_changed_while_it_is_written(cell: Cell) -> None:
    installation, agent = cell
    for path in (installation.audit, installation.session_log):
        assert "plain" not in text(agent.call("plain__read", {"path": str(path)}))
        agent.call("plain__append", {"path": str(path), "text": "injected\n"})
        agent.call("plain__remove", {"path": str(path)})
        assert path.exists()
        assert b"injected" not in path.read_bytes().splitlines()
    logs = orjson.loads(installation.verify_audit("--json").stdout)["logs"]
    # The canary beside it is no log, and is reported as one that is not whole.
    assert [log["ok"] for log in logs if log["path"] == str(installation.audit)] == [True]


@pytest.mark.requirement("C-12")
def test_a_log_that_is_begun_after_the_server_was_is_hidden_from_it(cell: Cell) -> None:
    """After a rotation the log is another file than the one that was there at the start."""
    installation, agent = cell
    log = installation.audit.with_name("audit.jsonl.2")
    log.write_text(CANARY)
    try:
        assert CANARY not in text(agent.call("plain__read", {"path": str(log)}))
    finally:
        log.unlink()


@pytest.mark.requirement("A-73")
@pytest.mark.parametrize("name", ["anything.txt", "response-{id}.json", ".response-{id}.json.tmp"])
def test_no_write_to_the_escalation_directory_arrives_there(cell: Cell, name: str) -> None:
    installation, agent = cell
    directory = installation.root / "escalations"
    file = directory / name.format(id="0b7e5a1c-6f0e-4d5c-9a3d-2f6d1f3c8e11")
    answer = '{"decision":"approved"}'
    for server in ("plain", "writer", "online"):
        written = agent.call(f"{server}__write", {"path": str(file), "text": answer})
        assert BLOCKED in refused(written)
        assert [one.name for one in directory.iterdir()] == ["notes.txt"]


# --- network


@pytest.mark.requirement("C-12")
def test_no_server_reaches_this_machine_past_the_proxy_of_its_sandbox(
    cell: Cell, website: Website
) -> None:
    _, agent = cell
    given: Message = {"host": "127.0.0.1", "port": website.server_port}
    assert done(agent.call("free__connect", given)) == "connected"
    for server in ("plain", "online", "writer"):
        assert BLOCKED in refused(agent.call(f"{server}__connect", given))


@pytest.mark.requirement("C-8", "C-12", "C-13")
def test_only_the_server_with_an_allowed_domain_reaches_it_through_the_proxy(
    cell: Cell, website: Website
) -> None:
    _, agent = cell
    assert done(agent.call("online__http", {"url": website.url})) == "hello"
    assert website.visits == ["/"]
    for server in ("plain", "writer"):
        assert BLOCKED in refused(agent.call(f"{server}__http", {"url": website.url}))
    assert BLOCKED in refused(
        agent.call("online__http", {"url": website.url.replace("localhost", "127.0.0.1")})
    )
    assert website.visits == ["/"]


@pytest.mark.requirement("C-8")
def test_a_server_cannot_use_the_network_proxy_of_another(cell: Cell, website: Website) -> None:
    _, agent = cell
    variables = orjson.loads(done(agent.call("online__environ")))
    ports = {int(variables[name]) for name in variables if name.endswith("_PROXY_PORT")}
    for port in ports - {3128, 1080}:
        refused(agent.call("plain__connect", {"host": "127.0.0.1", "port": port}))
    listening = Path("/proc/net/unix").read_text().split()
    sockets = {word for word in listening if word.startswith("/") and word.endswith(".sock")}
    assert sockets, "the bridges of the sandboxes are elsewhere now: mend this test"
    for path in sockets:
        refused(agent.call("plain__unix", {"path": path}))
    assert website.visits == []


def test_a_unix_socket_outside_cannot_be_connected(cell: Cell) -> None:
    installation, agent = cell
    path = str(installation.root / "s")
    for address in (path, "\0" + installation.mark):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            given: Message = {"path": address.replace("\0", "@")}
            assert done(agent.call("free__unix", given)) == "connected"
            assert BLOCKED in refused(agent.call("plain__unix", given))


# --- processes


@pytest.mark.requirement("C-8")
def test_neither_the_proxy_nor_another_server_is_visible_in_proc(cell: Cell) -> None:
    installation, agent = cell
    assert SECRET in done(agent.call("free__proc"))
    seen = done(agent.call("plain__proc"))
    assert SECRET not in seen
    assert "-m\\nironcurtain_proxy" not in seen
    assert "MCP_SERVERS_CONFIG" not in seen
    for pid in installation.processes(agent) | {agent.process.pid}:
        for file in ("environ", "cmdline"):
            read = agent.call("plain__read", {"path": f"/proc/{pid}/{file}"})
            # It has processes of its own, and a low number may be one of them.
            assert BLOCKED in text(read) or (pid < 100 and SECRET not in text(read))


@pytest.mark.requirement("C-8")
def test_no_process_outside_can_be_signalled(cell: Cell) -> None:
    _, agent = cell
    outside: Message = {"pid": agent.process.pid}
    assert done(agent.call("free__kill", outside)) == "signalled"
    refused(agent.call("plain__kill", outside))


@pytest.mark.requirement("C-8")
def test_each_confined_server_has_a_sandbox_process_of_its_own(cell: Cell) -> None:
    installation, agent = cell
    assert len(sandboxes(installation.processes(agent))) == len(installation.servers) - 1


def test_no_server_enters_a_user_namespace_in_which_it_is_root(cell: Cell) -> None:
    _, agent = cell
    refused(agent.call("plain__unshare"))


def test_the_environment_holds_what_was_configured_and_nothing_of_the_proxy_s(cell: Cell) -> None:
    _, agent = cell
    variables = orjson.loads(done(agent.call("plain__environ")))
    assert variables["ODD"] == "\n".join(ODD)
    assert SECRET not in orjson.dumps(variables).decode()
    for name in ("MCP_SERVERS_CONFIG", "ESCALATION_DIR", "AUDIT_LOG_PATH", "API_TOKEN"):
        assert name not in variables


@pytest.mark.requirement("C-9")
def test_every_argument_arrives_as_it_was_configured(cell: Cell) -> None:
    installation, agent = cell
    assert orjson.loads(done(agent.call("plain__argv"))) == [*ODD]
    assert list(installation.root.rglob("injected")) == []


# --- the record


@pytest.mark.requirement("C-7", "C-11")
def test_the_record_says_of_each_call_whether_its_server_was_confined(cell: Cell) -> None:
    installation, agent = cell
    for server in ("plain", "online", "writer", "elsewhere"):
        agent.call(f"{server}__pids")
        assert installation.outcomes()[-1]["sandboxed"] is True
    agent.call("free__pids")
    assert installation.outcomes()[-1]["sandboxed"] is False


@pytest.mark.requirement("C-11")
def test_sandbox_false_lets_a_server_do_what_the_user_may(cell: Cell) -> None:
    installation, agent = cell
    outside = installation.root / "free.txt"
    done(agent.call("free__write", {"path": str(outside), "text": "x"}))
    assert outside.read_text() == "x"
