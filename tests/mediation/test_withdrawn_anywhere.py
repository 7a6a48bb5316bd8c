"""A call may be withdrawn at any moment of its life: nothing is left half done.

Each case is run again and again, and withdrawn one turn of the loop later every time, until it ends
by itself.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from ironcurtain_proxy.facts.repositories import Repositories
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.decision import Effect, Engine, Grants
from ironcurtain_proxy.model.escalation import Approved, Escalation, EscalationId, Ruling
from ironcurtain_proxy.model.operation import Operation, RequestId
from ironcurtain_proxy.model.reply import AuditRecord
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.review.open_questions import OpenQuestions
from tests.examples import sample
from tests.fakes import DONE, FakeFacts, FakeRecorder, Harness, no_roles
from tests.mediation.supervised_session import Aftermath, call, plan, supervised

pytestmark = pytest.mark.anyio

_MOST_TURNS = 200
REPOSITORY = RealPath(("repo",))


async def some_turns(count: int) -> None:
    for _ in range(count):
        await checkpoint()


class SlowRecorder(FakeRecorder):
    """Takes a record at once, as the log does, and says so later."""

    async def record(self, record: AuditRecord) -> None:
        await super().record(record)
        await some_turns(2)


@dataclass
class SlowFacts(FakeFacts):
    """Every call works on the same repository."""

    pushes: bool = False
    repositories: Repositories = field(default_factory=Repositories)

    async def gather(self, call: Operation) -> Gathered:
        await some_turns(2)
        found = no_roles(call)
        return replace(found, repository=REPOSITORY, pushes=self.pushes)

    @asynccontextmanager
    async def undisturbed(self, facts: Facts) -> AsyncIterator[bool]:
        assert facts.repository is not None
        async with self.repositories.undisturbed(facts.repository, push=facts.pushes) as waited:
            yield waited


@dataclass
class SlowReviewer:
    """Approves, and has something to do between its approval and saying so."""

    approved: list[EscalationId] = field(default_factory=list)

    async def ask(self, escalation: Escalation) -> Ruling:
        await some_turns(3)
        with anyio.CancelScope(shield=True):
            await some_turns(2)
            self.approved.append(escalation.id)
        return Approved(by=Engine("rule"))


class SlowAftermath(Aftermath):
    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        await some_turns(2)
        return await super().ended(question, succeeded=succeeded)


@dataclass
class Session:
    """One session whose every part takes some turns."""

    policy: Effect
    pushes: bool
    reviewer: SlowReviewer = field(default_factory=SlowReviewer)
    aftermath: SlowAftermath = field(default_factory=SlowAftermath)

    def __post_init__(self) -> None:
        self.made: Harness = supervised(self.policy, recorder=SlowRecorder())
        self.made.servers.act = self._act
        self.facts = SlowFacts(pushes=self.pushes)
        self.questions = OpenQuestions(
            self.reviewer, self.made.clock, hold_after=None, aftermath=self.aftermath
        )
        self.world = replace(
            self.made.world, facts=self.facts, questions=self.questions, aftermath=self.aftermath
        )

    async def prepare(self) -> None:
        """With a plan for one call, if the policy asks nothing."""
        self.budget = None if self.policy == "escalate" else (await plan(self.made, "edit")).budget
        self.made.recorder.records.clear()
        self.made.grants.clear()
        self.made.begin(self.world)

    async def _act(self, _: AuthorizedCall) -> ToolResult:
        await some_turns(3)
        return DONE

    async def run(self, numbers: tuple[int, ...], victim: int, turns: int) -> bool:
        """Make calls side by side and withdraw one of them. Whether it was still under way."""
        scopes = [anyio.CancelScope() for _ in numbers]
        ended: list[int] = []

        async def one(place: int) -> None:
            with scopes[place]:
                await call(self.made, number=numbers[place])
                ended.append(place)

        async with anyio.create_task_group() as calls:
            for place in range(len(numbers)):
                calls.start_soon(one, place)
            await some_turns(turns)
            was_under_way = victim not in ended
            scopes[victim].cancel()
        await some_turns(20)
        return was_under_way

    async def check(self) -> None:
        """Nothing is left open, lost, or done twice."""
        assert self.questions.open() == ()
        async with self.facts.repositories.undisturbed(REPOSITORY, push=True) as waited:
            assert not waited
        assert sorted(told for told, _ in self.aftermath.told) == sorted(self.reviewer.approved)
        sent = [one.request_id for one in self.made.servers.forwarded]
        assert len(sent) == len(set(sent))
        records: dict[RequestId, list[AuditRecord]] = {}
        for record in self.made.recorder.records:
            records.setdefault(record.request_id, []).append(record)
        assert records.keys() >= set(sent)
        for request, (*intents, outcome) in records.items():
            assert outcome.result is not None
            assert (outcome.result.status != "denied") == (request in sent)
            assert [intent.result for intent in intents] in ([], [None])
            assert intents or request not in sent
        self._check_budget()

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        records = self.made.recorder.records
        intents = [record.decided_by for record in records if record.result is None]
        left = self.budget.calls[("files", "edit")]
        assert intents.count(Grants((self.budget.id,))) == 1 - left


@pytest.mark.requirement("X-8", "X-11", "C-36")
@pytest.mark.parametrize("policy", ["allow", "escalate"])
@pytest.mark.parametrize(
    ("pushes", "numbers"),
    # A third call changes something only where one waits for another.
    [*product([False, True], [(0,), (0, 0), (0, 1)]), (True, (0, 0, 0))],
)
async def test_a_call_that_is_withdrawn_at_any_moment_leaves_nothing_half_done(
    policy: Effect, numbers: tuple[int, ...], *, pushes: bool
) -> None:
    for victim in range(len(numbers)):
        for turns in sample(range(_MOST_TURNS), victim):
            session = Session(policy, pushes)
            await session.prepare()
            async with anyio.create_task_group() as tasks:
                await tasks.start(session.questions.run)
                was_under_way = await session.run(numbers, victim, turns)
                await session.check()
                tasks.cancel_scope.cancel()
            if not was_under_way:
                break
        else:
            pytest.fail("a call did not end")
