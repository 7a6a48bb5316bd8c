"""What a push publishes beside what the user asked for, with real repositories."""

import os
import subprocess
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_approver.evaluation import AROUND
from ironcurtain_proxy.auto_approver.reviewer import AutoApprover, AutoApproverConfig
from ironcurtain_proxy.auto_approver.target_check import veto
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.pushes import NamedCommits
from ironcurtain_proxy.llm.litellm_model import Completion
from ironcurtain_proxy.mailbox.session_state import UserMessage
from ironcurtain_proxy.model.decision import HUMAN, Engine
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling
from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.shell.statements import parse_command
from ironcurtain_proxy.wiring.reviewers import _auto_approver
from tests.auto_approver.test_reviewer import PUSH, ScriptedAnswers
from tests.fakes import FakeClock
from tests.tables import table

pytestmark = pytest.mark.anyio

COMMIT = "git add a.py && git commit -m 'mend it'"


class Work:
    """A repository, an agent that works in it, and a user who says something."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run("git init -q -b topic && git config user.name u && git config user.email u@x.org")
        self.run("echo 1 > a.py && git add a.py && git commit -qm first")
        self.said = ""
        self.turn = 0
        self.begin()

    def begin(self) -> None:
        """Begin a session."""
        workspace = RealPath.from_text(str(self.root))
        self.history = NamedCommits(GitRemotes({"PATH": "/usr/bin:/bin"}), workspace)
        self.around = replace(AROUND, workspace=workspace)
        self.approver = AutoApprover(
            model=ScriptedAnswers(),
            config=AutoApproverConfig(enabled=True),
            message=lambda: UserMessage(self.said, str(self.turn)),
            around=self.around,
            history=self.history,
            clock=FakeClock(),
        )

    def run(self, command: str) -> str:
        """Run a command as the agent does that is asked about nothing."""
        done = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def call(self, command: str) -> Escalation:
        place = CommandPlace(
            workspace=str(self.root),
            directory=str(self.root),
            home="/home/u",
            branch="topic",
            push_to=("origin", "topic"),
            has_repository=True,
        )
        return replace(
            PUSH.escalation,
            server="shell",
            tool="run_command",
            arguments={"command": command},
            command=parse_command(command),
            place=place,
            held=True,
            fingerprint=command,
            context=(("Commit", self.run("git rev-parse HEAD || true")),),
        )

    def says(self, text: str) -> None:
        self.said, self.turn = text, self.turn + 1

    async def asks(self, command: str) -> Ruling:
        return await self.approver.ask(self.call(command))

    async def passes(self, command: str) -> bool:
        return isinstance(await self.asks(command), Approved)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def change(name: str = "a.py", text: str = "2") -> str:
    return f"echo {text} > {name}"


async def test_what_was_there_at_the_start_may_be_pushed(work: Work) -> None:
    work.says("push it")
    assert await work.passes("git push")


async def test_a_commit_that_nobody_asked_for_is_not_pushed(work: Work) -> None:
    work.run(f"{change()} && git commit -qam 'words of the agent'")
    work.says("push it")
    assert not await work.passes("git push")


async def test_a_commit_without_a_question_is_pushed_where_the_message_asks_for_both(
    work: Work,
) -> None:
    work.says("commit and push")
    work.run(f"{change()} && {COMMIT}")
    assert await work.passes("git push")


@pytest.mark.parametrize(
    "message", ["commit and push", "commit this and push it to origin", "commit a.py and push"]
)
async def test_commit_and_push_in_one_command_passes_again_and_again(
    work: Work, message: str
) -> None:
    for number in range(3):
        work.says(message)
        work.run(change(text=str(number + 10)))
        assert await work.passes(f"{COMMIT} && git push")
        work.run(COMMIT)


async def test_one_request_for_a_commit_does_not_publish_two(work: Work) -> None:
    work.says("commit and push")
    work.run(f"{change()} && {COMMIT} && {change(text='3')} && git commit -qam more")
    assert not await work.passes("git push")
    assert not await work.passes(f"{COMMIT} && git push")


async def test_a_commit_asked_for_in_an_earlier_call_is_no_second_one(work: Work) -> None:
    work.says("commit a.py, then push")
    work.run(change())
    assert await work.passes(COMMIT)
    work.run(COMMIT)
    assert await work.passes("git push")


async def test_a_commit_in_the_place_of_the_approved_one_has_no_other_files(work: Work) -> None:
    work.says("commit a.py, then push")
    assert await work.passes(COMMIT)
    work.run(f"{change('b.py')} && git add b.py && git commit -qm 'mend it'")
    assert not await work.passes("git push")


async def test_what_was_staged_before_is_part_of_the_commit(work: Work) -> None:
    work.run(f"{change()} && {change('b.py')} && git add b.py")
    work.says("commit a.py and push")
    assert not await work.passes(f"{COMMIT} && git push")
    work.says("commit a.py and b.py")
    assert await work.passes(COMMIT)


@pytest.mark.parametrize("name", [".env", "id_rsa", ".git-credentials", "keys/server.pem"])
async def test_a_secret_that_was_staged_or_committed_unasked_is_not_published(
    work: Work, name: str
) -> None:
    work.says("commit and push")
    work.run(f"mkdir -p keys && echo s > {name} && git add -f {name}")
    assert not await work.passes("git commit -m x")
    work.run("git commit -qm x")
    assert not await work.passes("git push")


async def test_a_merge_or_a_long_history_of_the_agents_is_asked_about(work: Work) -> None:
    work.says("commit and push")
    work.run(
        "git checkout -qb side && echo 3 > b.py && git add b.py && git commit -qm side"
        " && git checkout -q topic && git merge -q --no-ff -m merged side"
    )
    assert not await work.passes("git push")
    assert await work.passes("git fetch") is False


@pytest.mark.parametrize(
    "hide", table("auto_approver/published.references_that_the_agent_writes_hide", list[str])
)
async def test_references_that_the_agent_writes_hide_no_commit(work: Work, hide: str) -> None:
    work.run(f"{change()} && git commit -qam 'words of the agent' && {hide}")
    work.says("push it")
    assert not await work.passes("git push")


async def test_a_commit_made_while_the_model_is_asked_is_not_pushed(work: Work) -> None:
    class Slow(ScriptedAnswers):
        async def complete(self, system: str, prompt: str) -> Completion:
            work.run(f"{change()} && git commit -qam 'words of the agent'")
            return await super().complete(system, prompt)

    work.approver.model = Slow()
    work.says("push it")
    assert not await work.passes("git push")


async def test_after_a_person_let_a_push_through_only_newer_commits_are_asked_about(
    work: Work,
) -> None:
    work.run(f"{change()} && git commit -qam 'words of the agent'")
    work.says("push it")
    await work.approver.note_answer(work.call("git push"), Approved(by=Engine(check="risk")))
    assert not await work.passes("git push"), "no person answered"
    await work.approver.note_answer(work.call("npm install"), Approved(by=HUMAN))
    assert not await work.passes("git push"), "it was not about a push"
    await work.approver.note_answer(work.call("git push"), Approved(by=HUMAN))
    assert await work.passes("git push")
    work.run(f"{change(text='5')} && git commit -qam more")
    work.says("push again")
    assert not await work.passes("git push")


async def test_what_comes_while_a_person_thinks_is_not_let_through_by_the_answer(
    work: Work,
) -> None:
    work.run(f"{change()} && git commit -qam 'words of the agent'")
    work.says("push it")
    seen = work.call("git push")
    assert not isinstance(await work.approver.ask(seen), Approved)
    work.run(f"{change(text='5')} && git commit -qam 'more words'")
    await work.approver.note_answer(seen, Approved(by=HUMAN))
    assert not await work.passes("git push")


async def test_a_request_for_a_commit_publishes_no_second_one_on_the_same(work: Work) -> None:
    work.says("commit a.py, then push")
    work.run(change())
    assert await work.passes(COMMIT)
    work.run(COMMIT)
    assert await work.passes("git push")
    work.run(f"git checkout -qB topic HEAD^ && {change(text='7')} && git commit -qam words")
    work.says("push it")
    assert not await work.passes("git push")


@pytest.mark.parametrize("where", ["HEAD", "HEAD^"])
@pytest.mark.parametrize("value", ["true", "yes", "1"])
async def test_a_tag_that_a_push_takes_along_is_asked_about(
    work: Work, where: str, value: str
) -> None:
    work.run(f"{change()} && git commit -qam second && git tag -a old -m old && git tag light")
    work.begin()
    work.says("push it")
    made = f"git tag -a v1 -m 'words of the agent' {where}"
    work.run(made)
    assert await work.passes("git push"), "it stays here"
    work.run(f"git config push.followTags '{value}' && git tag -d v1")
    work.says("push it now")
    assert await work.passes("git push"), "all tags were there"
    work.run(made)
    work.says("push it again")
    assert not await work.passes("git push")


async def test_more_tags_than_can_be_read_are_asked_about(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ironcurtain_proxy.facts.git_process._MAX_OUTPUT", 4000)
    work.run("for n in $(seq 99); do git tag -a tag$n -m x; done")
    work.run("git config push.followTags true")
    work.begin()
    work.says("push it")
    assert not await work.passes("git push")
    work.run("git config push.followTags false")
    work.says("push it now")
    assert await work.passes("git push")


async def test_a_pull_request_publishes_no_commit_either(work: Work) -> None:
    command = "gh pr create --fill"
    work.says("create a PR")
    assert await work.passes(command)
    work.run(f"{change()} && git commit -qam 'words of the agent'")
    work.says("create a PR")
    assert not await work.passes(command)


async def test_where_the_repository_cannot_be_read_a_person_is_asked(work: Work) -> None:
    unknown = replace(work.around, unpublished=None)
    assert veto("push it", work.call("git push"), unknown) is not None
    known = replace(work.around, unpublished=work.history.look())
    assert veto("push it", work.call("git push"), known) is None
    work.run("mv .git/HEAD .git/gone")
    work.says("push it")
    assert not await work.passes("git push")


async def test_a_session_looks_at_its_workspace_before_anything_is_called(
    work: Work, tmp_path: Path
) -> None:
    """By the parts that `serve` joins, with a program on the `PATH` that the agent wrote."""
    evil = work.root / "bin/git"
    evil.parent.mkdir()
    evil.write_text("#!/bin/sh\necho 0\n")
    evil.chmod(0o755)
    home = tmp_path.parent / f"{tmp_path.name}-home"
    home.mkdir()
    file = home / "config.json"
    file.write_bytes(
        orjson.dumps({"autoApprove": {"enabled": True}, "allowedDirectory": str(work.root)})
    )
    environ = {
        "HOME": str(home),
        "PATH": f"{evil.parent}:{os.environ['PATH']}",
        "AUTO_APPROVE_API_KEY": "key-123",
    }
    made = _auto_approver(load_settings(environ, file), lambda: None, FakeClock(), environ)
    assert made is not None
    seen = made.history.look()
    assert seen is not None
    assert (seen.commits, seen.head) == ((), work.run("git rev-parse HEAD"))
    work.run(f"{change()} && git commit -qam 'words of the agent'")
    seen = made.history.look()
    assert seen is not None
    assert seen.commits is not None
    assert [one.text for one in seen.commits] == ["words of the agent"]


async def test_a_message_publishes_once_whichever_tool_pushes(work: Work) -> None:
    work.says("commit and push")
    work.run(f"{change()} && {COMMIT}")
    assert await work.passes("git push")
    work.run(f"{change(text='7')} && git commit -qam 'words of the agent'")
    tool = replace(work.call("git push"), server="terminal", tool="execute")
    assert not isinstance(await work.approver.ask(tool), Approved)
