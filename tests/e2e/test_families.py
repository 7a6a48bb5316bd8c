"""Families of shell commands through the running proxy and its mailbox."""

import subprocess
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, texts
from tests.program import wait_until

TEXT: Json = {"type": "string"}
ORIGIN = "https://example.org/me/app.git"


class Shell:
    """A shell tool about which the policy asks, in a workspace that is a repository."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.person = Person(installation)
        self.workspace = installation.workspace
        definition = tool("run", command=TEXT, cwd=TEXT)
        schema = at(definition, "inputSchema")
        assert isinstance(schema, dict)
        definition["inputSchema"] = {**schema, "required": ["command"]}
        installation.add_scripted(
            "box", {"run": {"command": ["command"], "cwd": ["read-path"]}}, tools=[definition]
        )
        installation.rules = [rule("ask", "escalate", "a person must agree", tool=["run"])]
        state = installation.home / ".ironcurtain"
        state.mkdir(mode=0o700)
        (state / "config.json").write_bytes(orjson.dumps(CONFIGURATION))
        self.make_project(self.workspace)
        self.agent = self.started()

    def make_project(self, place: Path) -> None:
        place.mkdir(exist_ok=True)
        git(place, "init", "-q", "-b", "feature-x")
        git(place, "remote", "add", "origin", ORIGIN)
        (place / "package.json").write_text('{"scripts": {"test": "jest", "other": "x"}}')

    def started(self, workspace: Path | None = None) -> RawClient:
        variables = {"ESCALATION_DIR": str(self.person.directory)}
        if workspace is not None:
            variables["ALLOWED_DIRECTORY"] = str(workspace)
        self.cwd = workspace or self.workspace
        return self.installation.start(**variables)

    def begin(self, command: str) -> int:
        return self.agent.start_call("run", {"command": command, "cwd": str(self.cwd)})

    def ask(self, command: str) -> tuple[int, Message]:
        call = self.begin(command)
        (request,) = self.person.until_asked()
        return call, request

    def approve(self, command: str, *how: str) -> Message:
        call, request = self.ask(command)
        done = self.person.command("approve", "1", *(how or ("--remember",)))
        assert done.returncode == 0, done.stderr
        self.agent.result(call)
        return request

    def goes_unasked(self, command: str) -> bool:
        done = len(self.installation.outcomes())
        call = self.begin(command)
        wait_until(lambda: len(self.installation.outcomes()) > done or self.person.requests())
        if asked := bool(self.person.requests()):
            self.person.answer({"decision": "denied"})
        self.agent.result(call)
        by = str(self.installation.outcomes()[-1]["decidedBy"])
        assert asked or by.startswith("grant:")
        return not asked

    def listed(self) -> list[Message]:
        found = orjson.loads(self.person.run("grants", "list", "--json").stdout)
        assert isinstance(found, list)
        return found


CONFIGURATION: Json = {
    "capabilities": {"tools": {"box/run": {"commandArgument": "command"}}},
    "grants": {"persist": {"enabled": True, "scope": "project"}},
}


def git(place: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=place, check=True)


@pytest.fixture
def shell(installation: Installation) -> Shell:
    return Shell(installation)


def offered(request: Message) -> list[str]:
    found = request["whitelistCandidates"]
    assert isinstance(found, list)
    return [
        str(at(one, "description")).replace(" for 30 days in this project", "") for one in found
    ]


def test_an_approved_family_covers_its_kind_and_is_listed_in_words(shell: Shell) -> None:
    test = "`go test` in ~/workspace and other worktrees of its repository"
    push = (
        "`git push` to origin/feature-x in ~/workspace and other clones of its remote "
        "(reaches example.org)"
    )
    request = shell.approve("go test ./... && git push origin HEAD")
    assert offered(request)[:3] == [f"{test} and {push}", test, push]
    assert offered(request)[-1].startswith("exactly this call again")
    assert shell.goes_unasked("go test -v ./internal/... 2>&1 | tail -3")
    assert shell.goes_unasked("git push -u origin feature-x")
    assert not shell.goes_unasked("go test -exec ./evil ./...")
    assert not shell.goes_unasked("git push origin main")
    found = {str(one["description"]): one for one in shell.listed()}
    assert found[test]["uses"] == 1
    said = shell.person.run("grants", "list").stdout
    assert f"{push}  (used once" in said
    identifier = str(found[test]["id"])
    assert shell.person.run("grants", "revoke", identifier).returncode == 0
    assert not shell.goes_unasked("go test ./...")
    assert shell.goes_unasked("git push origin feature-x")


def test_another_of_the_kinds_that_were_offered_can_be_chosen(shell: Shell) -> None:
    shell.approve("go test ./... && go vet ./...", "--kind", "3")
    assert shell.goes_unasked("go vet ./x")
    assert not shell.goes_unasked("go test ./x")
    assert shell.person.command("approve", "1", "--kind", "0").returncode == 2


def test_a_task_and_a_remote_are_covered_while_they_are_as_they_were(shell: Shell) -> None:
    shell.approve("npm run test")
    shell.approve("git push origin feature-x")
    package = shell.workspace / "package.json"
    package.write_text('{"scripts": {"test": "jest", "other": "y"}}')
    assert shell.goes_unasked("npm run test")
    package.write_text('{"scripts": {"test": "jest", "pretest": "evil"}}')
    assert not shell.goes_unasked("npm run test")
    assert shell.goes_unasked("git push origin feature-x")
    git(shell.workspace, "remote", "set-url", "origin", "https://evil.example/x")
    assert not shell.goes_unasked("git push origin feature-x")


@pytest.mark.parametrize("command", ["npm run test", "git push origin feature-x"])
def test_what_was_approved_must_mean_the_same_when_the_answer_comes(
    shell: Shell, command: str
) -> None:
    call, _ = shell.ask(command)
    (shell.workspace / "package.json").write_text('{"scripts": {"test": "evil"}}')
    git(shell.workspace, "remote", "set-url", "origin", "https://evil.example/x")
    assert shell.person.command("approve", "1", "--remember").returncode == 0
    assert "changed" in texts(shell.agent.result(call))[0]
    assert shell.installation.received("box") == []
    assert not shell.goes_unasked(command)


def test_families_are_kept_for_their_project_and_the_identical_call_is_not(shell: Shell) -> None:
    shell.approve("go test ./...")
    shell.approve("rm -rf build")
    assert shell.goes_unasked("rm -rf build")
    shell.agent.close()
    shell.agent = shell.started()
    assert shell.goes_unasked("go test ./x")
    assert not shell.goes_unasked("rm -rf build")
    shell.agent.close()
    other = shell.installation.home / "other"
    shell.make_project(other)
    shell.agent = shell.started(other)
    assert not shell.goes_unasked("go test ./x")


@pytest.mark.parametrize("harm", ["torn", "changed"])
def test_a_kept_family_that_was_changed_or_torn_is_void_and_said(shell: Shell, harm: str) -> None:
    shell.approve("go test ./...")
    shell.agent.close()
    file = shell.installation.home / ".ironcurtain" / "grants.json"
    raw = file.read_bytes()
    file.write_bytes(raw[: len(raw) // 2] if harm == "torn" else raw.replace(b'"test"', b'"run"'))
    shell.agent = shell.started()
    assert not shell.goes_unasked("go run ./x")
    assert not shell.goes_unasked("go test ./x")
    said = (shell.installation.root / "stderr-1.txt").read_text()
    assert "remembered approvals" in said
