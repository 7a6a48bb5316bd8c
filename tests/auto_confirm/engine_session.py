"""A session with the engine on duty: a real store, a manager that decides when the test says so."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import anyio
import sqlalchemy as sa
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.evaluation import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction, Knowledge
from ironcurtain_proxy.auto_confirm.engine.settings import (
    AutoConfirmSettings,
    NightMode,
    SafetyRule,
)
from ironcurtain_proxy.auto_confirm.engine_knowledge import LazyStore
from ironcurtain_proxy.auto_confirm.engine_memory import StoreLedger
from ironcurtain_proxy.auto_confirm.reviewer import AutoConfirm, Findings, Ledger, SessionSituation
from ironcurtain_proxy.auto_confirm.reviewer_chain import ReviewerChain, Seat
from ironcurtain_proxy.auto_confirm.session_files import Windows
from ironcurtain_proxy.auto_confirm.store.interactions import OPEN
from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from ironcurtain_proxy.auto_confirm.store.tables import INTERACTIONS
from ironcurtain_proxy.model.decision import TIMEOUT, Program, in_record
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, EscalationId, Ruling
from ironcurtain_proxy.review.terminal import FirstReviewer
from tests.auto_confirm.engine import calls
from tests.auto_confirm.store.direct import Recorded, recorded
from tests.fakes import FakeClock
from tests.questions import a_question

SETTINGS = AutoConfirmSettings(enabled=True, night_mode=NightMode(enabled=False))
PLAIN_EDIT = replace(
    SETTINGS, safety_rules=(SafetyRule(pattern="file_edit_in_project", action="conditional"),)
)
"""Edits in the project are looked at, not waved through."""

LENIENT = replace(SETTINGS, on_timeout={"edit": "approve"})

READ, EDIT, DELETE = (calls.read("/srv/project/a"), calls.edit("/srv/project/a"), calls.delete())
ELSEWHERE = calls.edit("/srv/other/a")
BY_MANAGER = Approved(by=Program("architect_manager", "named"))
DENIED = Declined(by=Program("architect_manager", "named"), kind="denied")
EXPIRED = Declined(by=TIMEOUT, kind="expired")


@dataclass
class Manager:
    """A reviewer that decides when the test says so."""

    asked: list[str] = field(default_factory=list)
    answers: dict[str, Ruling] = field(default_factory=dict)
    at_once: Ruling | None = None
    """What it answers to everything; None: it thinks."""
    happened: list[str] = field(default_factory=list)
    meanwhile: Callable[[Escalation], object] = lambda _: None
    """What happens elsewhere while it is asked."""
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def ask(self, question: Escalation, briefing: EngineDecision) -> Ruling:
        self.happened.append("asked")
        self.asked.append(question.id)
        await anyio.lowlevel.checkpoint()
        self.meanwhile(question)
        while question.id not in self.answers:
            if self.at_once is not None:
                return self.at_once
            await self._news.wait()
        return self.answers[question.id]

    def decides(self, identifier: str, ruling: Ruling = BY_MANAGER) -> None:
        self.answers[identifier] = ruling
        self._news.set()
        self._news = anyio.Event()

    def decides_all(self, ruling: Ruling) -> None:
        for identifier in self.asked:
            self.answers.setdefault(identifier, ruling)
        self.decides("")


@dataclass
class Traced:
    """A ledger that says what is asked of it."""

    ledger: Ledger
    happened: list[str]

    async def knowledge(self, session: str) -> Knowledge:
        self.happened.append("knowledge")
        return await self.ledger.knowledge(session)

    async def opened(
        self, escalation: Escalation, decision: EngineDecision, found: Findings
    ) -> None:
        self.happened.append("opened")
        await self.ledger.opened(escalation, decision, found)

    def missed(self, escalation: Escalation, decision: EngineDecision, found: Findings) -> None:
        self.happened.append("missed")
        self.ledger.missed(escalation, decision, found)

    async def passed_on(
        self, escalation: Escalation, source: str, target: str, reason: str
    ) -> None:
        self.happened.append("passed on")
        await self.ledger.passed_on(escalation, source, target, reason)

    async def settled(self, escalation: Escalation, ruling: Ruling) -> bool:
        self.happened.append("settled")
        return await self.ledger.settled(escalation, ruling)

    async def ended(self, identifier: EscalationId, *, succeeded: bool | None) -> None:
        self.happened.append("ended")
        await self.ledger.ended(identifier, succeeded=succeeded)


@dataclass
class EngineSession:
    """A session with an engine, a store and one manager."""

    store: Store
    engine: AutoConfirm
    ledger: StoreLedger
    chain: ReviewerChain
    manager: Manager
    clock: FakeClock
    approved: list[EngineDecision]
    rulings: dict[str, Ruling] = field(default_factory=dict)
    count: int = 0

    def question(self, interaction: Interaction) -> Escalation:
        self.count += 1
        # What is known is looked up anew.
        self.clock.seconds += 6
        found = a_question(seconds=10_000, identifier=str(UUID(int=self.count, version=4)))
        return replace(
            found,
            request=interaction.request,
            arguments=interaction.arguments,
            session="worker-1",
            branch=interaction.branch,
        )

    async def ask(self, interaction: Interaction | Escalation) -> Ruling:
        asked = interaction if isinstance(interaction, Escalation) else self.question(interaction)
        self.rulings[asked.id] = ruling = await self.engine.ask(asked)
        return ruling

    async def carry_out(self, interaction: Interaction, *, succeeds: bool = True) -> Ruling:
        """Ask, and do what is approved."""
        question = self.question(interaction)
        ruling = await self.ask(question)
        if isinstance(ruling, Approved):
            await self.engine.ended(question.id, succeeded=succeeds)
        return ruling

    def status(self) -> str:
        return self.store.session_state("worker-1", self.clock.now()).health

    def found(self, question: Escalation) -> Recorded:
        """What the store says of it."""
        (number,) = self._numbers(INTERACTIONS.c.request_id == question.id)
        found = recorded(self.store, number)
        assert found is not None
        return found

    def open(self) -> list[int]:
        """What waits, by the store."""
        return self._numbers(INTERACTIONS.c.status.in_(OPEN))

    def _numbers(self, where: "sa.ColumnElement[bool]") -> list[int]:
        wanted = sa.select(INTERACTIONS.c.id).where(where)
        return self.store.read(lambda connection: [*connection.execute(wanted).scalars()])


@asynccontextmanager
async def engine_session(
    tmp_path: Path, settings: AutoConfirmSettings = SETTINGS, url: str | None = None
) -> AsyncIterator[EngineSession]:
    clock, manager, approved = FakeClock(), Manager(), list[EngineDecision]()
    lazy = LazyStore(lambda: open_store(url, tmp_path, clock))
    ledger = StoreLedger(
        store=lazy,
        clock=clock,
        windows=Windows(tmp_path / "windows"),
        timeout_minutes=5,
        state_dir=tmp_path,
    )
    chain = ReviewerChain(
        seats={
            "architect_manager": Seat(ask=manager.ask, session="architect-1"),
            "wrapper_claude": Seat(ask=manager.ask, session="wrapper-1"),
        },
        clock=clock,
        on_seen=ledger.seen,
        on_step=ledger.passed_on,
    )
    engine = AutoConfirm(
        settings=settings,
        situation=SessionSituation(session_type="worker", workspace=calls.WORKSPACE),
        ledger=ledger,
        routes=chain,
        clock=clock,
        on_approved=approved.append,
    )
    try:
        yield EngineSession(lazy.get(), engine, ledger, chain, manager, clock, approved)
    finally:
        lazy.close()


def decider(ruling: Ruling) -> str:
    assert isinstance(ruling, Approved)
    return in_record(ruling.by)


def model(ruling: Ruling) -> FirstReviewer:
    """A model that is asked before reviewers are, and always says the same."""

    class Model:
        async def ask(self, escalation: Escalation) -> Ruling:
            return ruling

        async def note_answer(self, escalation: Escalation, ruling: Ruling) -> None:
            pass

    return Model()
