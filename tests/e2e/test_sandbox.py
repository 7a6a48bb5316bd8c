"""A server that tries to get out of its sandbox, and what the operator is told about sandboxes.

Most of these talk to one house with several servers, each confined by itself. Whether something was
written is looked up in the house, never believed to the server: in a directory that is hidden from
it a write seems to succeed, and is lost.
"""

import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.json import Json
from tests.e2e.confined import (
    BLOCKED,
    HOSTILE,
    PATH,
    Cell,
    add_hostile,
    arguments_of,
    directory_of,
    done,
    escalations,
    folder,
    refused,
    sandboxes,
    settings_files,
    use_default_sandbox,
)
from tests.e2e.family import Watch, marked
from tests.e2e.house import House, rule
from tests.e2e.raw_client import DEADLINE, Message, RawClient, at, text
from tests.e2e.real_servers import COMMANDS
from tests.e2e.servers import hostile
from tests.e2e.website import Website

CANARY: Final = "the canary sings"
SECRET: Final = "neighbours-secret-7261"  # noqa: S105  of no account
ODD: Final = (
    "two words",
    "it's",
    'say "x"',
    "$(touch injected)",
    "`touch injected`",
    "a; touch injected",
    "a && touch injected #",
    "first\nsecond",
    "\ttab ",
    "back\\slash\\",
    "$HOME ${HOME} ~ * ? [a] {a,b} !x",
    "%s é \u2028",
    "--",
    "-s",
    "",
    "last",
)
"""Arguments that a shell would make something else of."""

pytestmark = pytest.mark.usefixtures("sandbox")


# --- houses


HIDDEN: Final[Mapping[str, str]] = {
    "the user's ssh key": "home/.ssh/id_rsa",
    "the user's cloud key": "home/.aws/credentials",
    "the user's gpg key": "home/.gnupg/private-keys-v1.d/key",
    "the state directory": "home/.ironcurtain/state.json",
    "another session": "home/.ironcurtain/sessions/other/request-1.json",
    "the policy directory": "policy/notes.txt",
    "the policy": "policy/compiled-policy.json",
    "the configuration": "settings/config.json",
    "the escalation directory": "escalations/notes.txt",
    "a rotated audit log": "audit/audit.jsonl.1",
    "a place the operator protects": "vault/deep/key",
}
"""What no server may read or change, by its place in the house."""

LONE: Final = ("config.json", "audit.jsonl.1")
"""Those that are hidden without the directory they lie in, which may be anybody's."""

hidden = pytest.mark.parametrize("place", HIDDEN.values(), ids=[*HIDDEN])


def furnish(house: House) -> None:
    """Put something into every place that is to stay hidden."""
    for place in HIDDEN.values():
        file = house.root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CANARY)
    config = house.root / "settings/config.json"
    config.write_text(f'{{"auditFsync": "group", "_comment": "{CANARY}"}}')
    escalations(house)
    house.rules.append(rule(CANARY, server=["nobody"]))
    house.variables |= {
        "IRONCURTAIN_CONFIG": str(config),
        "PROTECTED_PATHS": orjson.dumps([str(house.root / "vault")]).decode(),
        "SANDBOX_POLICY": "enforce",
    }


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """One house, several servers that cannot get out, and one that may."""
    house = House(tmp_path_factory.mktemp("cell"))
    furnish(house)
    add_hostile(house, "plain", *ODD, env={"ODD": "\n".join(ODD)})
    add_hostile(house, "neighbour", SECRET, env={"API_TOKEN": SECRET})
    add_hostile(house, "online", sandbox={"network": {"allowedDomains": ["localhost"]}})
    extra = str(folder(house, "extra"))
    add_hostile(house, "writer", sandbox={"filesystem": {"allowWrite": [extra]}})
    add_hostile(house, "elsewhere", cwd=str(folder(house, "own")))
    add_hostile(house, "free", sandbox=False)
    yield house, house.start()
    house.end()


# --- files


@pytest.mark.requirement("C-7", "C-10", "C-12")
def test_a_write_outside_fails_and_the_agent_is_told_that_it_was_the_sandbox(cell: Cell) -> None:
    house, agent = cell
    outside = house.root / "outside.txt"
    assert BLOCKED in refused(agent.call("plain__write", {"path": str(outside), "text": "x"}))
    assert not outside.exists()


@pytest.mark.requirement("C-10")
def test_an_error_that_is_not_the_sandbox_s_is_not_said_to_be(cell: Cell) -> None:
    house, agent = cell
    absent = str(house.workspace / "absent/file.txt")
    assert BLOCKED not in refused(agent.call("plain__append", {"path": absent, "text": "x"}))


@pytest.mark.requirement("C-12")
def test_a_write_into_the_workspace_arrives_there(cell: Cell) -> None:
    house, agent = cell
    file = house.workspace / "made.txt"
    done(agent.call("plain__write", {"path": str(file), "text": "made"}))
    assert file.read_text() == "made"


@pytest.mark.requirement("C-12")
def test_a_server_writes_into_its_own_working_directory_and_no_other_does(cell: Cell) -> None:
    house, agent = cell
    done(agent.call("elsewhere__write", {"path": "here.txt", "text": "x"}))
    assert (house.root / "own/here.txt").exists()
    there = str(house.root / "own/there.txt")
    assert BLOCKED in refused(agent.call("plain__write", {"path": there, "text": "x"}))


@pytest.mark.requirement("C-13")
def test_allow_write_opens_a_directory_to_the_server_that_has_it_and_to_no_other(
    cell: Cell,
) -> None:
    house, agent = cell
    file = house.root / "extra/file.txt"
    given: Message = {"path": str(file), "text": "x"}
    assert BLOCKED in refused(agent.call("plain__write", given))
    assert not file.exists()
    done(agent.call("writer__write", given))
    assert file.read_text() == "x"
    outside = house.root / "outside.txt"
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
    house, agent = cell
    file = house.root / place
    assert CANARY in file.read_text()
    assert CANARY in done(agent.call("free__read", {"path": str(file)}))
    name = "to-" + place.replace("/", "-")
    done(agent.call("plain__symlink", {"source": str(file), "target": name}))
    hard = str(house.workspace / f"hard-{name}")
    assert agent.call("plain__link", {"source": str(file), "target": hard}).get("isError")
    for path in (str(file), f"/proc/self/root{file}", f"/proc/1/root{file}", name, hard):
        assert CANARY not in text(agent.call("plain__read", {"path": path}))
    for server in ("online", "writer", "elsewhere"):
        assert CANARY not in text(agent.call(f"{server}__read", {"path": str(file)}))


@hidden
def test_what_is_hidden_cannot_be_changed_removed_moved_or_joined(cell: Cell, place: str) -> None:
    house, agent = cell
    file = house.root / place
    before = file.read_bytes()
    beside = file.parent / "injected.json"
    moved = str(house.workspace / "moved")
    agent.call("plain__append", {"path": str(file), "text": "injected"})
    agent.call("plain__write", {"path": str(file), "text": "injected"})
    agent.call("plain__write", {"path": str(beside), "text": "injected"})
    agent.call("plain__rename", {"source": str(file.parent), "target": moved})
    agent.call("plain__rename", {"source": str(file), "target": moved})
    agent.call("plain__remove", {"path": str(file)})
    assert file.read_bytes() == before
    assert not beside.exists()
    assert CANARY not in text(agent.call("plain__read", {"path": moved}))


@pytest.mark.requirement("C-12")
def test_the_audit_log_cannot_be_read_or_changed_while_it_is_written(cell: Cell) -> None:
    house, agent = cell
    for path in (house.audit, house.session_log):
        assert "plain" not in text(agent.call("plain__read", {"path": str(path)}))
        agent.call("plain__append", {"path": str(path), "text": "injected\n"})
        agent.call("plain__remove", {"path": str(path)})
        assert path.exists()
        assert b"injected" not in path.read_bytes().splitlines()
    assert house.verify_audit().returncode == 0


@pytest.mark.requirement("C-12")
def test_a_log_that_is_begun_after_the_server_was_is_hidden_from_it(cell: Cell) -> None:
    """After a rotation the log is another file than the one that was there at the start."""
    house, agent = cell
    log = house.audit.with_name("audit.jsonl.2")
    log.write_text(CANARY)
    try:
        assert CANARY not in text(agent.call("plain__read", {"path": str(log)}))
    finally:
        log.unlink()


@pytest.mark.requirement("A-73")
@pytest.mark.parametrize("name", ["anything.txt", "response-{id}.json", ".response-{id}.json.tmp"])
def test_no_write_to_the_escalation_directory_arrives_there(cell: Cell, name: str) -> None:
    house, agent = cell
    directory = house.root / "escalations"
    file = directory / name.format(id="0b7e5a1c-6f0e-4d5c-9a3d-2f6d1f3c8e11")
    answer = '{"decision":"approved"}'
    for server in ("plain", "writer", "online"):
        agent.call(f"{server}__write", {"path": str(file), "text": answer})
        assert [one.name for one in directory.iterdir()] == ["notes.txt"]


@pytest.mark.requirement("A-73", "C-13")
@pytest.mark.parametrize("name", ["escalations", "deep/deeper/escalations"])
def test_an_escalation_directory_in_the_workspace_cannot_be_written_or_moved_away(
    single: House, name: str
) -> None:
    directory = single.workspace / name
    directory.mkdir(parents=True)
    (directory / "notes.txt").write_text("notes")
    single.variables["ESCALATION_DIR"] = str(directory)
    agent = single.start()
    top = single.workspace / Path(name).parts[0]
    for source in (directory, top):
        target = str(single.workspace / "moved")
        agent.call("rename", {"source": str(source), "target": target})
    agent.call("write", {"path": str(directory / "response-1.json"), "text": "{}"})
    assert directory.is_dir(), [str(one) for one in single.workspace.rglob("*")]
    assert [one.name for one in directory.iterdir()] == ["notes.txt"]
    assert (directory / "notes.txt").read_text() == "notes"


@pytest.mark.requirement("A-73", "C-13")
def test_allow_write_of_everything_does_not_open_what_is_hidden(house: House) -> None:
    furnish(house)
    add_hostile(house, "hostile", sandbox={"filesystem": {"allowWrite": [str(house.root)]}})
    agent = house.start()
    done(agent.call("write", {"path": str(house.root / "anywhere.txt"), "text": "x"}))
    for place in HIDDEN.values():
        file = house.root / place
        before = file.read_bytes()
        assert CANARY not in text(agent.call("read", {"path": str(file)}))
        top = house.root / Path(place).parts[0]
        agent.call("rename", {"source": str(top), "target": f"{top}-moved"})
        agent.call("append", {"path": str(file), "text": "injected"})
        agent.call("write", {"path": str(file.parent / "injected.json"), "text": "x"})
        agent.call("remove", {"path": str(file)})
        assert file.exists(), f"{place} is gone"
        assert file.read_bytes() == before
        if file.name not in LONE:
            assert not (file.parent / "injected.json").exists()


OURS: Final = tuple(
    [
        place
        for place in HIDDEN.values()
        if not place.startswith(("home/.ssh", "home/.aws", "home/.gnupg"))
    ]
)
"""What no entry opens; its own keys the operator may open."""


@pytest.mark.requirement("A-73", "C-13")
@pytest.mark.parametrize("key", ["allowRead", "allowWrite", "denyRead"])
@pytest.mark.parametrize("whole", [False, True], ids=["the file", "its directory"])
def test_no_entry_opens_what_is_ours(house: House, key: str, whole: bool) -> None:
    """R-31."""
    furnish(house)
    files = [house.root / place for place in OURS]
    named: list[Json] = [str(file.parent if whole else file) for file in files]
    add_hostile(house, "hostile", sandbox={"filesystem": {key: [] if key == "denyRead" else named}})
    agent = house.start()
    opened: list[str] = []
    for file in files:
        before = file.read_bytes()
        if CANARY in text(agent.call("read", {"path": str(file)})):
            opened.append(f"{file} was read")
        agent.call("append", {"path": str(file), "text": "injected"})
        beside = file.parent / "injected.json"
        agent.call("write", {"path": str(beside), "text": "x"})
        if file.read_bytes() != before:
            opened.append(f"{file} was changed")
        if beside.exists() and file.name not in LONE:
            opened.append(f"{beside} was made")
    assert not opened, "\n".join(opened)


@pytest.mark.requirement("C-13")
def test_keys_that_are_not_there_yet_cannot_be_put_there(house: House) -> None:
    add_hostile(house, "hostile", sandbox={"filesystem": {"allowWrite": [str(house.home)]}})
    house.variables["SANDBOX_POLICY"] = "enforce"
    agent = house.start()
    keys = house.home / ".ssh"
    agent.call("symlink", {"source": str(house.workspace), "target": str(keys)})
    agent.call("rename", {"source": str(house.workspace), "target": str(keys)})
    agent.call("write", {"path": str(keys / "authorized_keys"), "text": "x"})
    assert not (keys / "authorized_keys").exists()
    assert not keys.is_symlink()


@pytest.mark.requirement("C-12")
def test_no_file_of_the_sandbox_s_own_stays_in_the_workspace(single: House) -> None:
    (single.workspace / "mine.txt").write_text("mine")
    agent = single.start()
    done(agent.call("write", {"path": str(single.workspace / "made.txt"), "text": "x"}))
    during = {one.name for one in single.workspace.iterdir()}
    assert during == {"mine.txt", "made.txt"}
    agent.close()
    assert {one.name for one in single.workspace.iterdir()} == {"mine.txt", "made.txt"}


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
    house, agent = cell
    path = str(house.root / "s")
    for address in (path, "\0" + house.mark):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            given: Message = {"path": address.replace("\0", "@")}
            assert done(agent.call("free__unix", given)) == "connected"
            assert BLOCKED in refused(agent.call("plain__unix", given))


# --- processes


@pytest.mark.requirement("C-8")
def test_neither_the_proxy_nor_another_server_is_visible_in_proc(cell: Cell) -> None:
    _, agent = cell
    assert SECRET in done(agent.call("free__proc"))
    seen = done(agent.call("plain__proc"))
    assert SECRET not in seen
    assert "-m\\nironcurtain_proxy" not in seen
    assert "MCP_SERVERS_CONFIG" not in seen


@pytest.mark.requirement("C-8")
def test_no_process_outside_can_be_signalled(cell: Cell) -> None:
    _, agent = cell
    outside: Message = {"pid": agent.process.pid}
    assert done(agent.call("free__kill", outside)) == "signalled"
    refused(agent.call("plain__kill", outside))


@pytest.mark.requirement("C-8")
def test_each_confined_server_has_a_sandbox_process_of_its_own(cell: Cell) -> None:
    house, agent = cell
    assert len(sandboxes(house.processes(agent))) == len(house.servers) - 1


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
    house, agent = cell
    assert orjson.loads(done(agent.call("plain__argv"))) == [*ODD]
    assert list(house.root.rglob("injected")) == []


@pytest.mark.requirement("C-9")
def test_a_command_whose_path_needs_quoting_is_run(house: House) -> None:
    program = folder(house, "a $(touch injected); 'dir'") / 'run "it" & more'
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HOSTILE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    add_hostile(house, "hostile")
    configured = house.servers["hostile"]
    assert isinstance(configured, dict)
    configured |= {"command": str(program), "args": ["a b", ""]}
    house.variables["SANDBOX_POLICY"] = "enforce"
    agent = house.start()
    assert orjson.loads(done(agent.call("argv"))) == ["a b", ""]
    refused(agent.call("write", {"path": str(house.root / "outside"), "text": "x"}))


@pytest.mark.parametrize("name", ["t" * 120, "a b", "a,b:c"], ids=["long", "space", "signs"])
def test_a_temporary_directory_of_any_name_costs_no_server_its_sandbox(
    single: House, name: str
) -> None:
    """A socket's path holds 107 bytes, and socat reads a comma as the beginning of an option."""
    single.variables["TMPDIR"] = str(folder(single, name))
    agent = single.start()
    outside = single.root / "outside.txt"
    assert BLOCKED in refused(agent.call("write", {"path": str(outside), "text": "x"}))
    assert not outside.exists()


# --- the record


@pytest.mark.requirement("C-7", "C-11")
def test_the_record_says_of_each_call_whether_its_server_was_confined(cell: Cell) -> None:
    house, agent = cell
    for server in ("plain", "online", "writer", "elsewhere"):
        agent.call(f"{server}__pids")
        assert house.outcomes()[-1]["sandboxed"] is True
    agent.call("free__pids")
    assert house.outcomes()[-1]["sandboxed"] is False


@pytest.mark.requirement("C-11")
def test_sandbox_false_lets_a_server_do_what_the_user_may(cell: Cell) -> None:
    house, agent = cell
    outside = house.root / "free.txt"
    done(agent.call("free__write", {"path": str(outside), "text": "x"}))
    assert outside.read_text() == "x"


# --- where no sandbox can be had


def path_without(house: House, *names: str) -> Path:
    """A directory with every program of the PATH but these."""
    programs = folder(house, "programs")
    for directory in PATH.split(":"):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            place = programs / program.name
            if program.name not in names and not place.is_symlink():
                place.symlink_to(program.resolve())
    house.variables["PATH"] = str(programs)
    return programs


LACKING: Final = (
    ("srt", "npm install", "sandbox-runtime"),
    ("bwrap", "apt-get install", "bubblewrap"),
    ("socat", "apt-get install", "socat"),
)

lacking = pytest.mark.parametrize(
    ("program", "remedy", "package"), LACKING, ids=[one[0] for one in LACKING]
)


def outcome_of_start(house: House) -> tuple[int, str]:
    """Exit code and standard error of a proxy that must not start."""
    agent = house.launch()
    code = agent.process.wait(DEADLINE)
    return code, agent.errors.read_text()


@pytest.mark.requirement("C-14")
@lacking
def test_enforce_does_not_start_and_names_what_is_missing_and_how_to_get_it(
    house: House, program: str, remedy: str, package: str
) -> None:
    add_hostile(house, "hostile")
    house.variables["SANDBOX_POLICY"] = "enforce"
    path_without(house, program)
    code, said = outcome_of_start(house)
    assert code != 0
    assert package in said
    assert remedy in said
    assert marked(house.mark) == set()
    assert "Traceback" not in said


@pytest.mark.requirement("C-14")
def test_enforce_does_not_start_where_a_sandbox_is_installed_and_cannot_run(house: House) -> None:
    """What a kernel without user namespaces does to it."""
    add_hostile(house, "hostile")
    house.variables["SANDBOX_POLICY"] = "enforce"
    fake = path_without(house, "bwrap") / "bwrap"
    fake.write_text("#!/bin/sh\necho bwrap: No permissions to create a new namespace >&2\nexit 1\n")
    fake.chmod(0o755)
    code, said = outcome_of_start(house)
    assert code != 0
    assert "namespace" in said
    assert "Traceback" not in said


@pytest.mark.requirement("C-11", "C-14")
def test_enforce_starts_without_a_sandbox_where_no_server_needs_one(house: House) -> None:
    add_hostile(house, "hostile", sandbox=False)
    house.variables["SANDBOX_POLICY"] = "enforce"
    path_without(house, "srt", "bwrap")
    done(house.start().call("pids"))


@pytest.mark.requirement("C-15")
@lacking
def test_warn_runs_without_a_sandbox_says_so_and_records_no_confinement(
    house: House, program: str, remedy: str, package: str
) -> None:
    add_hostile(house, "hostile")
    house.variables["SANDBOX_POLICY"] = "warn"
    path_without(house, program)
    agent = house.start()
    outside = house.root / "outside.txt"
    done(agent.call("write", {"path": str(outside), "text": "x"}))
    assert outside.exists()
    assert {record["sandboxed"] for record in house.records()} == {False}
    said = agent.errors.read_text()
    assert "warning" in said
    assert "hostile" in said
    assert package in said
    assert remedy in said


@pytest.mark.requirement("C-15")
def test_warn_is_silent_where_every_server_is_confined(house: House) -> None:
    add_hostile(house, "hostile")
    agent = house.start()
    done(agent.call("pids"))
    assert house.outcomes()[-1]["sandboxed"] is True
    assert "warning" not in agent.errors.read_text()


@pytest.mark.requirement("C-13")
@pytest.mark.parametrize(
    "sandbox",
    [
        {"network": {"allowedDomain": ["example.com"]}},
        {"filesystem": {"allowWrites": ["/srv"]}},
        {"networks": {}},
    ],
    ids=["a misspelt domain list", "a misspelt file list", "a misspelt section"],
)
def test_a_misspelt_sandbox_stops_the_start(house: House, sandbox: Message) -> None:
    add_hostile(house, "hostile", sandbox=sandbox)
    code, said = outcome_of_start(house)
    assert code != 0
    assert "sandbox" in said
    assert "Traceback" not in said


@pytest.mark.requirement("C-13")
@pytest.mark.parametrize("domain", ["*", "*.com", "https://example.com/"])
def test_a_domain_that_is_none_stops_the_start(house: House, domain: str) -> None:
    add_hostile(house, "hostile", sandbox={"network": {"allowedDomains": [domain]}})
    code, said = outcome_of_start(house)
    assert code == 2
    assert f'server "hostile": sandbox.network: "{domain}" is no host' in said
    assert "Traceback" not in said
    assert marked(house.mark) == set()


# --- endings


def hang_up(agent: RawClient) -> None:
    agent.hang_up()


def terminate(agent: RawClient) -> None:
    agent.process.terminate()


def kill(agent: RawClient) -> None:
    agent.process.kill()


ENDS: Final = (hang_up, terminate, kill)


@pytest.mark.parametrize("end", ENDS, ids=[end.__name__ for end in ENDS])
def test_nothing_of_a_sandbox_outlives_the_proxy(
    single: House, end: Callable[[RawClient], None]
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
    agent.process.wait(DEADLINE)
    assert watch.survivors() == set()
    assert marked(single.mark) == set()
    assert not directory.exists()
    assert settings_files(single) == []


# --- real servers


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """The public file and git servers, confined, in one workspace with a repository."""
    house = House(tmp_path_factory.mktemp("real"))
    for name in ("filesystem", "git"):
        house.add_server(name, COMMANDS[name](house))
        use_default_sandbox(house, name)
    house.rules.append(rule("all", server=["filesystem", "git"]))
    house.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    repository = house.workspace / "repo"
    git = shutil.which("git") or pytest.skip("no git")
    subprocess.run([git, "init", "--quiet", str(repository)], check=True)
    for setting in ("user.name", "user.email"):
        subprocess.run([git, "-C", str(repository), "config", setting, "x@y"], check=True)
    yield house, house.start()
    house.end()


def test_the_public_file_server_reads_and_writes_in_the_workspace(real: Cell) -> None:
    house, agent = real
    file = house.workspace / "plain.txt"
    given: Message = {"path": str(file), "content": "plain"}
    done(agent.call("filesystem__write_file", given))
    assert file.read_text() == "plain"
    assert done(agent.call("filesystem__read_text_file", {"path": str(file)})) == "plain"
    moved: Message = {"source": str(file), "destination": str(house.workspace / "moved.txt")}
    done(agent.call("filesystem__move_file", moved))
    assert not file.exists()
    assert house.outcomes()[-1]["sandboxed"] is True


def test_the_public_git_server_commits_in_the_workspace(real: Cell) -> None:
    house, agent = real
    repository = house.workspace / "repo"
    (repository / "file.txt").write_text("content\n")
    where: Message = {"repo_path": str(repository)}
    done(agent.call("git__git_add", {**where, "files": ["file.txt"]}))
    done(agent.call("git__git_commit", {**where, "message": "confined"}))
    assert "confined" in done(agent.call("git__git_log", where))
    assert at(house.outcomes()[-1], "sandboxed") is True
