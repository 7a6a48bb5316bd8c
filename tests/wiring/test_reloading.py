"""What a running session makes of changed files of policy."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.facts.live_catalogue import LiveCatalogue
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.grants.session_grants import SessionGrants
from ironcurtain_proxy.model.escalation import Superseded
from ironcurtain_proxy.model.grant import ExactValue, Grant, GrantId, GrantPattern
from ironcurtain_proxy.model.reply import AuditRecord
from ironcurtain_proxy.model.server import ToolDefinition
from ironcurtain_proxy.review.open_questions import OpenQuestions
from ironcurtain_proxy.wiring.reloading import Reloading
from tests.fakes import Harness
from tests.review.open_questions_fixture import Person, at_work, question

pytestmark = pytest.mark.anyio


class NoTools:
    def tools_now(self) -> dict[str, tuple[ToolDefinition, ...]]:
        return {}

    async def until_settled(self, server: str) -> None:
        return

    async def until_started(self, server: str) -> str:
        return ""

    async def list_again(self, server: str) -> None:
        return


class Place:
    def __init__(self, home: Path) -> None:
        self.state = home / ".ironcurtain"
        self.work = home / "work"
        self.state.mkdir()
        self.work.mkdir()
        self.file = self.state / "policy.yaml"
        servers = '{"time": {"command": "x"}, "memory": {"command": "x"}}'
        (self.state / "mcp-servers.json").write_text(servers)
        self.variables = {"HOME": str(home), "ALLOWED_DIRECTORY": str(self.work)}
        self.told: list[tuple[str, str]] = []
        self.person = Person()

    def settings(self) -> Settings:
        return load_settings(dict(self.variables))

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Reloading]:
        settings = self.settings()
        loaded = load_policy(settings)
        self.harness = Harness(loaded.policy)
        self.book = GrantBook()
        async with at_work(self.person) as (desk, _):
            self.questions: OpenQuestions = desk
            yield Reloading(
                settings=settings,
                loaded=loaded,
                in_force=self.harness.in_force,
                catalogue=LiveCatalogue(settings.servers, loaded.annotations, NoTools()),
                journal=self.harness.journal,
                questions=desk,
                grants=SessionGrants(Approvals(self.book, BudgetBook())),
                tell=lambda version, problem: self.told.append((version, problem)),
            )

    @property
    def records(self) -> list[AuditRecord]:
        return self.harness.recorder.records


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


async def looks(reloading: Reloading, count: int = 2) -> None:
    for _ in range(count):
        await reloading.look()


def first(reloading: Reloading) -> str:
    return reloading.in_force.policy.rules[0].name


async def test_a_changed_file_takes_effect_and_is_recorded(place: Place) -> None:
    async with place.session() as reloading:
        await looks(reloading)
        assert place.records == []
        place.file.write_text("deny time: '*'\n")
        await looks(reloading)
        assert first(reloading) == "deny-time"
        (record,) = place.records
        assert (record.server, record.tool, record.rule) == (
            "ironcurtain",
            "policy_change",
            "policy-change",
        )
        assert record.arguments["added"] == ["deny-time"]
        assert record.arguments["after"] == reloading.in_force.policy.version
        assert place.told == [(reloading.in_force.policy.version, "")]
        await looks(reloading)
        assert len(place.records) == 1


async def test_a_file_that_is_still_being_written_is_not_read(place: Place) -> None:
    place.file.write_text("deny time: '*'\ndeny memory: '*'\n")
    async with place.session() as reloading:
        for text in ("deny time: '*'\n", "deny time: '*'\ndeny mem", "deny memory: '*'\n"):
            place.file.write_text(text)
            await reloading.look()
            assert len(reloading.in_force.policy.floors) == 0
            assert first(reloading) == "deny-time"
        await reloading.look()
        assert first(reloading) == "deny-memory"


@pytest.mark.parametrize("text", ["nonsense: 1\n", "", "deny time: [a\n", "deny x: {tools: no}\n"])
async def test_a_file_that_cannot_be_used_keeps_the_policy_and_says_so_once(
    place: Place, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.file.write_text("deny time: '*'\n")
    async with place.session() as reloading:
        before = reloading.in_force.policy
        place.file.write_text(text)
        await looks(reloading, 5)
        assert reloading.in_force.policy is before
        assert str(place.file) in reloading.problem
        assert place.told == [(before.version, reloading.problem)]
        assert capsys.readouterr().err.count("the policy stays as it was") == 1
        place.file.write_text("deny memory: '*'\n")
        await looks(reloading)
        assert first(reloading) == "deny-memory"
        assert reloading.problem == ""


async def test_a_file_that_is_gone_takes_no_rule_away(place: Place) -> None:
    place.file.write_text("deny time: '*'\n")
    async with place.session() as reloading:
        before = reloading.in_force.policy
        place.file.unlink()
        await looks(reloading, 3)
        assert reloading.in_force.policy is before
        assert "policy.yaml is gone" in reloading.problem
        place.file.mkdir()
        await looks(reloading, 3)
        assert reloading.in_force.policy is before
        place.file.rmdir()
        other = place.state / "other.yaml"
        other.write_text("deny memory: '*'\n")
        place.file.symlink_to(other)
        await looks(reloading)
        assert first(reloading) == "deny-memory"
        third = place.state / "third.yaml"
        third.write_text("ask time: '*'\n")
        swap = place.state / "swap"
        swap.symlink_to(third)
        swap.replace(place.file)
        await looks(reloading)
        assert first(reloading) == "ask-time"
        third.write_text("ask memory: '*'\n")
        await looks(reloading)
        assert first(reloading) == "ask-memory"


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
async def test_a_file_that_may_not_be_read_any_more_keeps_the_policy(place: Place) -> None:
    place.file.write_text("deny time: '*'\n")
    async with place.session() as reloading:
        before = reloading.in_force.policy
        place.file.chmod(0)
        await looks(reloading, 3)
        assert reloading.in_force.policy is before
        assert "permission denied" in reloading.problem


async def test_a_project_that_comes_to_narrow_narrows(place: Place) -> None:
    async with place.session() as reloading:
        directory = place.work / ".ironcurtain"
        directory.mkdir()
        (directory / "policy.yaml").write_text("deny time: '*'\n")
        await looks(reloading)
        assert len(reloading.in_force.policy.floors) == 1


async def test_a_change_that_cannot_be_recorded_does_not_take_effect(place: Place) -> None:
    async with place.session() as reloading:
        before = reloading.in_force.policy
        place.harness.recorder.failing_from = 0
        place.file.write_text("allow fetch: fetch\n")
        await looks(reloading)
        assert reloading.in_force.policy is before
        assert "cannot be recorded" in reloading.problem
        place.harness.recorder.failing_from = None
        await looks(reloading)
        assert first(reloading) == "allow-fetch-fetch"


def grant(server: str, tool: str) -> Grant:
    pattern = GrantPattern(
        description="x",
        server=server,
        tool=tool,
        definition="d",
        constraints=(ExactValue("github-owner", "a"),),
    )
    now = question().created
    return Grant(
        id=GrantId(f"{server}/{tool}"),
        pattern=pattern,
        created=now,
        source="q",
        reason="so",
        expires=now + timedelta(days=9),
    )


async def test_questions_and_the_grants_whose_rules_changed_end(place: Place) -> None:
    async with place.session() as reloading:
        for server, tool in (("time", "convert_time"), ("memory", "read_graph")):
            place.book.add(grant(server, tool))
        asked: list[object] = []

        async def ask() -> None:
            old = question(1, policy=reloading.in_force.policy.version)
            asked.append(await place.questions.ask(old))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await place.person.until_asked(1)
            place.file.write_text("ask time: '*'\n")
            await looks(reloading)
        assert asked == [Superseded()]
        assert [one.grant.id for one in place.book.list()] == ["memory/read_graph"]
