"""A desk at work, with a person behind it who answers when told to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import anyio

from ironcurtain_proxy.model.decision import HUMAN, Ground
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, EscalationId, Ruling
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import Reviewer
from ironcurtain_proxy.review.open_questions import OpenQuestions
from tests.fakes import FakeClock

YES = Approved(by=HUMAN)


def state_of(desk: OpenQuestions, identifier: EscalationId) -> str | None:
    return next((state for one, state in desk.open() if one.id == identifier), None)


def question(number: int = 1, call: str = "same", policy: str = "p") -> Escalation:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Escalation(
        id=EscalationId(f"00000000-0000-4000-8000-{number:012}"),
        session="s",
        server="files",
        tool="write",
        exposed_name="write",
        arguments={},
        request=AccessRequest(
            server="files", tool="write", annotated=True, has_arguments=False, arguments=()
        ),
        ground=Ground("r", "because"),
        fingerprint=call,
        policy_version=policy,
        created=now,
        deadline=now + timedelta(seconds=300),
    )


@dataclass
class Aftermath:
    """Keeps what it is told, and fails where a test says so."""

    told: list[EscalationId] = field(default_factory=list)
    fails: bool = False

    async def ended(
        self, question: EscalationId, *, succeeded: bool | None
    ) -> tuple[tuple[str, Json], ...]:
        assert succeeded is None
        self.told.append(question)
        if self.fails:
            raise RuntimeError("defect")
        return ()


@dataclass
class Person:
    """Answers when told to; keeps what was asked and what was withdrawn."""

    asked: list[EscalationId] = field(default_factory=list)
    withdrawn: list[EscalationId] = field(default_factory=list)
    answers: dict[EscalationId, Ruling] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def ask(self, escalation: Escalation) -> Ruling:
        self.asked.append(escalation.id)
        self._notify()
        try:
            while escalation.id not in self.answers:
                await self.changed.wait()
        except BaseException:
            self.withdrawn.append(escalation.id)
            self._notify()
            raise
        return self.answers[escalation.id]

    def answer(self, escalation: Escalation, ruling: Ruling) -> None:
        self.answers[escalation.id] = ruling
        self._notify()

    async def note_answer(self, escalation: Escalation, ruling: Ruling) -> None:
        if isinstance(ruling, Declined):
            self.denied.append(escalation.fingerprint)

    async def until_asked(self, count: int) -> None:
        while len(self.asked) < count:
            await self.changed.wait()

    async def until_withdrawn(self, count: int) -> None:
        while len(self.withdrawn) < count:
            await self.changed.wait()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


@asynccontextmanager
async def at_work(
    reviewer: Reviewer, hold_after: float | None = None, aftermath: Aftermath | None = None
) -> AsyncIterator[tuple[OpenQuestions, FakeClock]]:
    clock = FakeClock()
    desk = OpenQuestions(reviewer, clock, hold_after=hold_after, aftermath=aftermath)
    async with anyio.create_task_group() as tasks:
        await tasks.start(desk.run)
        yield desk, clock
        tasks.cancel_scope.cancel()
