"""`grants try` shows both sides of an approval of a call of any tool."""

import os
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.cli.explain_overlay import NamedCall, rehearsed, step_of
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.mailbox.mailboxes import utc_now
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.rehearsal.memory import Memory
from ironcurtain_proxy.wiring.reviewers import persisted_grants
from tests import program
from tests.cli.test_decide import ANNOTATIONS, POLICY
from tests.program import PROXY


class Machine:
    """A home with a configuration, whose servers are not started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        state = home / ".ironcurtain"
        (home / "work").mkdir(parents=True)
        (home / "docs").mkdir()
        generated = state / "generated"
        generated.mkdir(parents=True)
        servers = {"filesystem": {"command": "/bin/true"}, "shell": {"command": "/bin/true"}}
        for file, content in (
            (generated / "compiled-policy.json", POLICY),
            (generated / "tool-annotations.json", ANNOTATIONS),
            (state / "mcp-servers.json", {"mcpServers": servers}),
            (state / "config.json", {"allowedDirectory": str(home / "work"),
                                     "sandboxPolicy": "warn"}),
        ):  # fmt: skip
            file.write_bytes(orjson.dumps(content))
        state.chmod(0o700)

    def tries(self, approved: str, then: str) -> tuple[int, str]:
        done = program.run(
            [*PROXY, "grants", "try", approved, then],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            cwd=self.home / "work",
        )
        return done.returncode, done.stdout + done.stderr

    def keep(self, path: str) -> str:
        """Keep the grant that an approval of a call offers first, as a session would."""
        said = {"HOME": str(self.home), "IRONCURTAIN_CONFIG": str(self.config)}
        settings = load_settings(said)
        loaded = load_policy(settings)
        asked = NamedCall("filesystem", "write_file", settings)
        arguments = {"path": path}
        found = rehearsed(asked, arguments, loaded, said).certain
        step = step_of(found, asked, arguments, loaded)
        assert step is not None
        memory = Memory()
        assert memory.approve(step)
        # The approval of a write also covers the other tools that write there.
        found_grants = memory.approvals.grants.list()
        keeper, _ = persisted_grants(settings, loaded, SystemClock())
        assert keeper is not None
        now = utc_now()
        fresh = [replace(one, grant=replace(one.grant, created=now)) for one in found_grants]
        anyio.run(partial(keeper.keep, tuple(fresh)))
        (identifier,) = [
            one.grant.id for one in fresh if "Let write_file " in one.grant.pattern.description
        ]
        return str(identifier)

    @property
    def config(self) -> Path:
        return self.home / ".ironcurtain/config.json"

    def explains(self, path: str, *more: str) -> str:
        done = program.run(
            [*PROXY, "explain", "filesystem/write_file", "--args",
             orjson.dumps({"path": path}).decode(), *more],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            cwd=self.home / "work",
        )  # fmt: skip
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


def call(tool: str, path: Path | str) -> str:
    return f"filesystem/{tool} {orjson.dumps({'path': str(path)}).decode()}"


def test_an_approval_of_a_call_covers_the_directory_and_nothing_beside_it(machine: Machine) -> None:
    approved = call("write_file", "/srv/out/a.txt")
    status, said = machine.tries(approved, call("write_file", "/srv/out/b.txt"))
    assert (status, said.startswith("covered: an approval covers Let write_file")) == (0, True), (
        said
    )
    for path in ("/srv/other/b.txt", "/srv/out/../other/b.txt", "/srv/out/.env"):
        assert machine.tries(approved, call("write_file", path))[0] == 1, path


def test_what_needs_no_approval_and_what_gets_none_say_so(machine: Machine) -> None:
    free, closed = machine.home / "docs/a.txt", machine.home / ".ssh/id_rsa"
    asked = call("write_file", "/srv/out/a.txt")
    assert "the first call is allowed anyway" in machine.tries(call("read_file", free), asked)[1]
    assert "the first call is denied anyway" in machine.tries(call("read_file", closed), asked)[1]
    assert machine.tries(asked, call("read_file", free))[0] == 0
    assert machine.tries(asked, call("read_file", closed))[0] == 1


def test_a_command_and_a_call_of_a_tool_have_nothing_in_common(machine: Machine) -> None:
    status, said = machine.tries("go test ./...", call("read_file", "/srv/a"))
    assert (status, "one is a shell command" in said) == (1, True)
    assert "there is no server" in machine.tries('x/y {"a": 1}', 'x/y {"a": 1}')[1]
    assert machine.tries("go test ./a", "go test ./b")[0] == 0


def test_explain_counts_the_kept_approvals_that_a_session_would_use(machine: Machine) -> None:
    before = machine.explains("/srv/out/b.txt")
    assert "kept approval" not in before
    config = orjson.loads(machine.config.read_bytes())
    config["grants"] = {"persist": {"enabled": True, "scope": "project"}}
    machine.config.write_bytes(orjson.dumps(config))
    identifier = machine.keep("/srv/out/a.txt")
    covered = machine.explains("/srv/out/b.txt")
    assert covered.splitlines()[0] == f"{before.splitlines()[0]}; a kept approval covers the call"
    assert f"{identifier} covers it, so that nobody is asked: Let write_file" in covered
    assert "to allow such calls" not in covered
    assert orjson.loads(machine.explains("/srv/out/b.txt", "--json"))["overlay"]["kept"] == [
        identifier
    ]
    assert machine.explains("/srv/other/b.txt").count("kept approval") == 0
    # Where nothing is kept any more, a session does not read the file either.
    machine.config.write_bytes(orjson.dumps({**config, "grants": {}}))
    assert machine.explains("/srv/out/b.txt") == before
