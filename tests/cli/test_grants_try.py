"""`grants try` shows both sides of an approval of a call of any tool."""

import os
from pathlib import Path

import orjson
import pytest

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
