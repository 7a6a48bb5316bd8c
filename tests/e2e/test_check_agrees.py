"""`check` and `serve`, held against each other: errors are what `serve` refuses to start with."""

import os
import random
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

import orjson
import pytest

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import shared_with
from tests import program
from tests.e2e.installation import Installation

Slip: TypeAlias = Callable[["OpenQuestions"], object]
"""Something an operator may write or leave behind."""


class OpenQuestions:
    """An operator's files, right until a slip changes them."""

    def __init__(self, root: Path) -> None:
        self.installation = Installation(root)
        self.installation.add_scripted()
        self.config: dict[str, Json] = {
            "mcpServers": self.installation.servers,
            "allowedDirectory": str(self.installation.workspace),
        }
        self.variables: dict[str, str] = {}

    @property
    def server(self) -> dict[str, Json]:
        entry = self.installation.servers["scripted"]
        assert isinstance(entry, dict)
        return entry

    def named(self, name: str) -> str:
        return str(self.installation.root / name)

    def environment(self) -> dict[str, str]:
        return {
            # Without srt: no server can be confined, wherever this runs.
            "PATH": os.defpath,
            "HOME": str(self.installation.home),
            "TMPDIR": self.named("tmp"),
            **self.variables,
        }

    def write(self) -> str:
        """The file of the configuration."""
        file = self.installation.root / "config.json"
        file.write_bytes(orjson.dumps(self.config))
        return str(file)

    def serve(self) -> subprocess.CompletedProcess[str]:
        """The proxy; it reads from a client that has gone."""
        command = [*self.installation.command, "serve", "--config", self.write()]
        return program.run(command, self.environment())

    def check(self) -> tuple[int, str]:
        """Exit status and output of `check`, which is run in the process of the tests."""
        with (
            patch.dict(os.environ, self.environment(), clear=True),
            redirect_stdout(StringIO()) as out,
            redirect_stderr(out),
        ):
            return main(("check", "--config", self.write())), out.getvalue()


def engine(desk: OpenQuestions, **section: Json) -> OpenQuestions:
    desk.config["auto_confirm"] = {"enabled": True, **section}
    return desk


def token(desk: OpenQuestions, mode: int) -> Json:
    file = Path(desk.named("token"))
    file.write_text("t" * 40)
    file.chmod(mode)
    return {
        "name": "desk",
        "kind": "session",
        "session_type": "architect",
        "mailbox": desk.named("mail"),
        "token_file": str(file),
    }


def made(path: str, mode: int = 0o700) -> str:
    Path(path).mkdir()
    Path(path).chmod(mode)
    return path


def linked(path: str) -> str:
    Path(path).symlink_to(made(f"{path}-target"))
    return path


def written(path: str) -> str:
    Path(path).write_text("x")
    return path


SLIPS: dict[str, Slip] = {
    "no servers": lambda desk: desk.installation.servers.clear(),
    "no servers anywhere": lambda desk: desk.config.update(mcpServers={}),
    "http alone": lambda desk: desk.config.update(mcpServers={"web": {"url": "https://a.example"}}),
    "disabled": lambda desk: desk.server.update(disabled=True),
    "filtered": lambda desk: desk.config.update(serverFilter=[]),
    "filtered wrongly": lambda desk: desk.config.update(serverFilter=["other"]),
    "enforced": lambda desk: desk.config.update(sandboxPolicy="enforce"),
    "enforced, to be confined": lambda desk: (
        desk.config.update(sandboxPolicy="enforce"),
        desk.server.update(sandbox={}),
    ),
    "enforced launcher": lambda desk: (
        desk.config.update(sandboxPolicy="enforce"),
        desk.server.update(command="npx", args=["-y", "x@1"]),
        desk.server.pop("sandbox"),
    ),
    "to be confined": lambda desk: desk.server.update(sandbox={}),
    "no workspace": lambda desk: desk.config.update(allowedDirectory=None),
    "workspace left out": lambda desk: desk.config.pop("allowedDirectory"),
    "no such workspace": lambda desk: desk.config.update(allowedDirectory=desk.named("gone")),
    "workspace is the root": lambda desk: desk.config.update(allowedDirectory="/"),
    "workspace by variable": lambda desk: desk.variables.update(ALLOWED_DIRECTORY="/nowhere"),
    "no such policy": lambda desk: desk.variables.update(GENERATED_DIR="/nowhere"),
    "no such annotations": lambda desk: desk.config.update(toolAnnotationsDir="/nowhere"),
    "log is a device": lambda desk: desk.config.update(auditLogPath="/dev/null"),
    "log is a directory": lambda desk: desk.config.update(auditLogPath=made(desk.named("log"))),
    "log is a link": lambda desk: desk.config.update(auditLogPath=linked(desk.named("log"))),
    "log below a file": lambda desk: desk.config.update(
        auditLogPath=written(desk.named("file")) + "/audit.jsonl"
    ),
    "log in a new place": lambda desk: desk.config.update(auditLogPath=desk.named("a/b/c.jsonl")),
    "log where nothing is": lambda desk: desk.config.update(auditLogPath="/proc/no/audit.jsonl"),
    "log's lock is a directory": lambda desk: desk.config.update(
        auditLogPath=made(desk.named("x.jsonl.lock")).removesuffix(".lock")
    ),
    "mailbox is a file": lambda desk: desk.config.update(escalationDir=written(desk.named("box"))),
    "mailbox is a link": lambda desk: desk.config.update(escalationDir=linked(desk.named("box"))),
    "mailbox of all": lambda desk: desk.config.update(escalationDir=made(desk.named("box"), 0o777)),
    "mailbox in a new place": lambda desk: desk.config.update(escalationDir=desk.named("m/box")),
    "state is a file": lambda desk: written(str(desk.installation.home / ".ironcurtain")),
    "state of all": lambda desk: made(str(desk.installation.home / ".ironcurtain"), 0o777),
    "no model": lambda desk: desk.config.update(autoApprove={"enabled": True, "modelId": "x"}),
    "engine": engine,
    "engine with low risk": lambda desk: engine(desk, escalation_targets={"low_risk": "desk"}),
    "engine with a token": lambda desk: engine(desk, reviewers=[token(desk, 0o600)]),
    "engine with a token of all": lambda desk: engine(desk, reviewers=[token(desk, 0o644)]),
    "engine with a file for a mailbox": lambda desk: (
        engine(desk, reviewers=[token(desk, 0o600)]),
        written(desk.named("mail")),
    ),
    "unknown key": lambda desk: desk.config.update(sandboxPolice="warn"),
    "no domain": lambda desk: desk.server.update(sandbox={"network": {"allowedDomains": ["x/y"]}}),
    "variable that is not set": lambda desk: desk.server.update(
        command="docker", args=["run", "-e", "TOKEN", "image"]
    ),
}


def agree(desk: OpenQuestions) -> bool:
    """Whether the configuration can be served. The two commands say the same."""
    (status, found), served = desk.check(), desk.serve()
    assert status in {0, 1}, found
    assert served.returncode in {0, 2}, served.stderr
    assert (status == 0) == (served.returncode == 0), f"{found}\n--- serve\n{served.stderr}"
    assert "Traceback" not in found + served.stderr
    return served.returncode == 0


def test_what_is_right_is_served(tmp_path: Path) -> None:
    assert agree(OpenQuestions(tmp_path))


@pytest.mark.parametrize("slip", SLIPS)
def test_check_finds_an_error_exactly_where_serve_refuses_to_start(
    tmp_path: Path, slip: str
) -> None:
    desk = OpenQuestions(tmp_path)
    SLIPS[slip](desk)
    agree(desk)


@pytest.mark.parametrize("seed", range(10))
def test_the_two_agree_on_several_slips_at_once(tmp_path: Path, seed: int) -> None:
    desk = OpenQuestions(tmp_path)
    for slip in random.Random(seed).sample(sorted(SLIPS), 3):  # noqa: S311  not a secret
        try:
            SLIPS[slip](desk)
        except (FileExistsError, KeyError):
            continue  # two slips about one thing
    agree(desk)


def test_what_stops_the_start_is_said_once(tmp_path: Path) -> None:
    desk = OpenQuestions(tmp_path)
    desk.config["mcpServers"] = {}
    served = desk.serve()
    assert served.stderr.count("no server is configured") == 1
    assert len(served.stderr.splitlines()) == 1
    desk.variables["GENERATED_DIR"] = "/nowhere"
    _, found = desk.check()
    (line,) = [line for line in found.splitlines() if line.startswith("error")]
    assert line.split(maxsplit=1)[1] == (
        'GENERATED_DIR: "/nowhere" has no compiled-policy.json: write it there'
    )


def test_the_value_of_a_workspace_that_is_not_there_is_said(tmp_path: Path) -> None:
    desk = OpenQuestions(tmp_path)
    desk.variables["ALLOWED_DIRECTORY"] = "/nowhere/project"
    assert 'ALLOWED_DIRECTORY: "/nowhere/project" is not a directory' in desk.serve().stderr


def test_a_configuration_that_cannot_be_read_lists_no_other_servers(tmp_path: Path) -> None:
    desk = OpenQuestions(tmp_path)
    state = desk.installation.home / ".ironcurtain"
    state.mkdir()
    (state / "mcp-servers.json").write_bytes(orjson.dumps({"usual": {"command": "true"}}))
    checked = program.run(
        [*desk.installation.command, "check", "--config", desk.named("gone.json")],
        {"PATH": os.defpath, "HOME": str(desk.installation.home)},
    )
    assert checked.returncode == 1
    assert "gone.json: cannot be read" in checked.stdout
    assert "usual" not in checked.stdout
    assert "no server is configured" not in checked.stdout


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize(
    ("mode", "group", "user", "said"),
    [
        (0o777, 0, 0, "can be written by other users: look through it, and run `chmod 700`"),
        (0o1777, 0, 0, "can be written by other users"),
        (0o702, 0, 0, "can be written by other users"),
        (0o770, 1, 0, "can be written by other users"),
        (0o700, 0, 1, "belongs to another user"),
        (0o770, 0, 0, ""),
        (0o755, 1, 0, ""),
    ],
)
def test_a_state_directory_that_others_can_change_is_refused_with_the_remedy(
    tmp_path: Path, mode: int, group: int, user: int, said: str, *, is_linked: bool
) -> None:
    """The numbers of group and user are how far they are from ours."""
    state = Path(made(str(tmp_path / "real"), mode))
    if os.geteuid() == 0:  # what belongs to root, everybody trusts
        os.chown(state, 4242, -1)
        state.chmod(mode)
    if is_linked:
        state = tmp_path / "link"
        state.symlink_to(tmp_path / "real")
    ours, group_of_ours = state.stat().st_uid, state.stat().st_gid
    with (
        patch("os.geteuid", lambda: ours + user),
        patch("os.getegid", lambda: group_of_ours + group),
    ):
        assert shared_with(state).startswith(said)
        assert bool(shared_with(state)) == bool(said)


def test_serve_refuses_a_state_directory_that_all_can_write(tmp_path: Path) -> None:
    desk = OpenQuestions(tmp_path)
    made(str(desk.installation.home / ".ironcurtain"), 0o777)
    served = desk.serve()
    assert served.returncode == 2
    assert ".ironcurtain: can be written by other users" in served.stderr
