"""What `sandbox learn` finds, offers and writes, run as a command with a real sandbox."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.model.reply import ResultSummary
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.audit.specimens import NOON, record
from tests.config.presets.test_presets import SERVER
from tests.e2e.confined_installation import PATH, known_sandbox, require_sandbox
from tests.program import PROXY

ATTEMPTS = r"""
import os, pathlib, sys, urllib.request
home = os.environ["HOME"]
def refused(path):
    sys.stderr.write("OSError: [Errno 30] Read-only file system: '" + path + "'\n")
try:
    urllib.request.urlopen("http://api.started.com/", timeout=20)
except OSError:
    pass
try:
    pathlib.Path(home, ".tool-of-test").mkdir()
except OSError as error:
    sys.stderr.write("mkdir()\nOSError: " + str(error) + "\n")
for name in (".ssh/known", ".config/gh/hosts.yml", ".ironcurtain/policy.yaml", ".netrc", "notes"):
    refused(home + "/" + name)
refused(home + "/.evil\x1b[2Jname/x")
refused(home + "/.evil\u202ename/x")
refused("/etc/cron.d/x")
for host in ("metadata.internal", "169.254.169.254", "127.0.0.1.nip.io", "localhost", "*",
             "*.example.com", "printer", "closed.example.net", "\x1b[31mred.example.com"):
    sys.stderr.write("connection to " + host + " blocked: resolved to 10.0.0.1\n")
sys.stderr.flush()
"""


class Machine:
    """A home with one server, and a log in which calls of it were kept from a host."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "home"
        self.workspace = self.home / "project"
        self.state = self.home / ".ironcurtain"
        self.workspace.mkdir(parents=True)
        self.state.mkdir(mode=0o700)
        (root / "server.py").write_text(ATTEMPTS + SERVER)
        self.file = self.state / "mcp-servers.json"
        if (known := known_sandbox()) is not None:
            (self.state / "sandbox.json").write_bytes(known)

    def configure(self, entry: str = "", name: str = "notes") -> bytes:
        words = orjson.dumps([str(self.root / "server.py"), "files"]).decode()
        command = orjson.dumps(sys.executable).decode()
        body = f'"{name}": {{ "command":{command},\n      "args": {words}{entry} }}'
        self.file.write_text(f'{{\n\t{body},\n  "other": {{"command": "true"}}\n}}')
        return self.file.read_bytes()

    def record(self, *hosts: str, error: str = "") -> None:
        log = AuditLog.open(self.state / "audit.jsonl", LogSettings())

        async def write() -> None:
            for number, host in enumerate(hosts):
                moment = {"server": "notes", "timestamp": NOON + timedelta(minutes=number)}
                context = (("blocked", f"host {host}"),)
                await log.record(record(number + 1, {**moment, "context": context}))
            other = {"server": "other", "context": (("blocked", "host api.other.com"),)}
            await log.record(record(90, other))
            failed = ResultSummary(status="error", error=error or "no")
            await log.record(record(91, {"server": "notes", "result": failed}))

        anyio.run(write)
        log.close()

    def learn(self, *words: str, given: bytes = b"") -> tuple[int, str, str]:
        environ = {**os.environ, "HOME": str(self.home), "PATH": PATH}
        argv = [*PROXY, "sandbox", "learn", *words]
        done = program.run(argv, environ, self.workspace, given=given)
        return done.returncode, done.stdout, done.stderr

    def found(self, *words: str) -> dict[str, Json]:
        code, said, faults = self.learn("--json", *words)
        assert code == 0, faults
        answer: dict[str, Json] = orjson.loads(said)
        return answer


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    require_sandbox()
    return Machine(tmp_path)


def test_one_start_in_the_sandbox_offers_what_is_needed_and_nothing_a_server_could_abuse(
    machine: Machine,
) -> None:
    closed = ', "sandbox": {"network": {"deniedDomains": ["closed.example.net"]}}'
    before = machine.configure(closed)
    answer = machine.found("notes")
    assert answer["entry"] == {
        "sandbox": {
            "filesystem": {"private": ["~/.tool-of-test"]},
            "network": {"allowedDomains": ["api.started.com"]},
        }
    }
    rows = answer["refused"]
    assert isinstance(rows, list)
    refused = {one["name"]: one["why"] for one in rows if isinstance(one, dict)}
    assert {"metadata.internal", "169.254.169.254", "closed.example.net"} <= refused.keys()
    assert refused["closed.example.net"] == "closed by its entry"
    assert all("\x1b" not in str(name) and "\u202e" not in str(name) for name in refused)
    assert machine.file.read_bytes() == before
    assert not (machine.home / ".tool-of-test").exists()
    assert not [*(machine.state / "sessions").glob("*")]


def test_recorded_calls_are_counted_and_written_only_after_a_yes(machine: Machine) -> None:
    before = machine.configure()
    host, tool = "api.recorded.com", f"{machine.home}/.tool-of-log/db"
    machine.record(host, "10.0.0.1", host, error=f"open {tool}: permission denied")
    code, said, faults = machine.learn("notes", "--no-start", given=b"no\n")
    assert code == 0, faults
    (line,) = [one for one in said.splitlines() if one.startswith("host ") and host in one]
    assert line.split()[2] == "2"
    assert "12:01" not in line
    assert line.endswith("yes")
    assert "10.0.0.1" in said
    assert "api.other.com" not in said
    assert "no call of\n  this server is contained" in said
    assert machine.file.read_bytes() == before
    code, said, faults = machine.learn("notes", "--no-start", "--only", host, given=b"yes\n")
    assert code == 0, faults
    after = machine.file.read_bytes()
    opened = b'"sandbox": {"network": {"allowedDomains": ["api.recorded.com"]}}, '
    assert after == before.replace(b'"command":', opened + b'"command":', 1)
    (copy,) = machine.state.glob("mcp-servers.json.bak-*")
    assert copy.read_bytes() == before
    # The rest goes beside it, and nothing is offered twice.
    code, said, faults = machine.learn("notes", "--no-start", "--write")
    assert code == 0, faults
    entry = orjson.loads(machine.file.read_bytes())["notes"]
    assert entry["sandbox"] == {
        "network": {"allowedDomains": [host]},
        "filesystem": {"private": ["~/.tool-of-log"]},
    }
    assert machine.found("notes", "--no-start")["entry"] is None


def test_calls_before_the_given_time_do_not_count(machine: Machine) -> None:
    machine.configure()
    machine.record("api.recorded.com")
    assert machine.found("notes", "--no-start", "--since", "2999-01-01")["refused"] == []
    code, said, _ = machine.learn("notes", "--no-start", "--since", "2999-01-01")
    assert (code, said) == (0, "nothing is known that the sandbox of notes kept it from\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("notse",), 'did you mean "notes"'),
        (("notes", "--no-start", "--only", "10.0.0.1"), "is not offered: not a public name"),
        (("notes", "--no-start", "--only", "api.never.com"), "was not kept from this"),
        (("trusted",), 'has "sandbox": false'),
        (("remote",), "is reached over HTTP"),
        (("notes", "--no-start", "--log", "/no/such.jsonl"), "there is no such log"),
    ],
)
def test_what_cannot_be_learnt_is_refused_in_one_line(
    machine: Machine, words: tuple[str, ...], why: str
) -> None:
    servers = orjson.loads(machine.configure())
    servers |= {
        "trusted": {"command": "true", "sandbox": False},
        "remote": {"url": "https://mcp.example.com/mcp"},
    }
    machine.file.write_bytes(orjson.dumps(servers))
    machine.record("10.0.0.1")
    code, said, faults = machine.learn(*words)
    assert (code, said) == (2, ""), faults
    assert why in faults
    assert faults.count("\n") == 1


def test_a_file_that_cannot_be_changed_stays_as_it_is(machine: Machine) -> None:
    machine.record("api.recorded.com")
    config: dict[str, Json] = {"mcpServers": orjson.loads(machine.configure())}
    machine.file.unlink()
    (machine.state / "config.json").write_bytes(orjson.dumps(config))
    code, said, faults = machine.learn("notes", "--no-start", "--write")
    assert code == 1, said
    assert "nothing was written: the servers stand in the configuration" in faults
    code, said, _ = machine.learn("notes", "--no-start", "--write", "--json")
    assert code == 1
    assert orjson.loads(said)["written"] is False
    assert orjson.loads((machine.state / "config.json").read_bytes()) == config
