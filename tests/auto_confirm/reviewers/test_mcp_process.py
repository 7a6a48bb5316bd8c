"""A process that reviews and is an MCP server, for real: one of the library's, and hostile ones."""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.briefing import PassedOn
from ironcurtain_proxy.auto_confirm.engine.evaluation import UNDECIDED
from ironcurtain_proxy.auto_confirm.reviewers.json_lines import (
    NOTHING_OPEN,
    CallDialect,
)
from ironcurtain_proxy.auto_confirm.reviewers.process import (
    MAX_WARNINGS,
    ProcessReviewer,
    ProcessSpec,
)
from ironcurtain_proxy.model.decision import TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Ruling
from tests.auto_confirm.reviewers.managers.attacking_by_calls import NOISE, SPOILT
from tests.auto_confirm.reviewers.reviewer_processes import Launcher, manager, reviewing
from tests.mailbox.mailbox_fixture import escalation
from tests.program import until
from tests.tables import table

pytestmark = pytest.mark.anyio

BY = Program("architect_manager", "process")
NOT_STARTED = PassedOn("its process could not be started", asked=False)


def server(program: str, *arguments: object, tool: str = "review") -> ProcessSpec:
    spec = manager(program, *arguments)
    return replace(spec, dialect=partial(CallDialect, tool=tool))


def reasons(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    return Counter(record.getMessage().partition(": ")[2] for record in caplog.records)


async def all_asked(reviewer: ProcessReviewer, questions: list[Escalation]) -> list[Ruling]:
    """What becomes of questions that are open together."""
    rulings: dict[str, Ruling] = {}

    async def ask(question: Escalation) -> None:
        rulings[question.id] = await reviewer.ask(question)

    async with anyio.create_task_group() as tasks:
        for question in questions:
            tasks.start_soon(ask, question)
    return [rulings[question.id] for question in questions]


# --- a server of the library's -------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """A server that is started once: its start costs a second of a core."""

    reviewer: ProcessReviewer
    launcher: Launcher
    begun: Path
    """Made by a question about `patience`."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all, since they share a process."""
    return "asyncio"


@pytest.fixture(scope="module")
async def library(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    begun, launcher = tmp_path_factory.mktemp("library") / "begun", Launcher()
    async with reviewing(server("mcp_server", "object", begun), launcher) as reviewer:
        yield Library(reviewer, launcher, begun)


async def approves_all(reviewer: ProcessReviewer, caplog: pytest.LogCaptureFixture) -> bool:
    rulings = await all_asked(reviewer, [escalation() for _ in range(20)])
    return rulings == [Approved(by=BY, note="seen")] * 20 and "does not count" not in caplog.text


@pytest.mark.requirement("B-165")
async def test_a_server_of_the_library_approves(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    assert await approves_all(library.reviewer, caplog)
    assert len(library.launcher.starts) == 1


@pytest.mark.requirement("B-165")
@pytest.mark.parametrize("way", ["text", "unstructured"])
async def test_an_answer_of_the_library_counts_as_text_too(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reviewing(server("mcp_server", way)) as reviewer:
        assert await approves_all(reviewer, caplog)


async def test_a_denial_is_a_denial(library: Library) -> None:
    ruling = await library.reviewer.ask(escalation(), replace(UNDECIDED, operation="delete"))
    assert ruling == Declined(by=BY, kind="denied", note="seen")


async def test_a_question_that_is_withdrawn_is_cancelled_in_the_library_too(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    withdrawn, note = escalation(tool="patience"), ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(library.reviewer.ask, withdrawn)
        await until(library.begun.exists)
        tasks.cancel_scope.cancel()
    while withdrawn.id not in note:
        ruling = await library.reviewer.ask(escalation(tool="cancelled"))
        assert isinstance(ruling, Approved)
        note = ruling.note
    assert "does not count" not in caplog.text


async def test_a_tool_that_fails_passes_on_at_once_and_its_words_are_not_logged(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    ruling = await library.reviewer.ask(escalation(seconds=300, tool="failure"))
    assert ruling == PassedOn("it says that it has failed")
    assert "secret words" not in caplog.text


@pytest.mark.requirement("B-169")
async def test_a_server_without_the_tool_could_not_be_started(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reviewing(server("not_getting_ready", "other-tool")) as reviewer:
        rulings = await all_asked(reviewer, [escalation(seconds=300) for _ in range(20)])
        assert not reviewer.is_reachable()
    assert set(rulings) <= {NOT_STARTED, PassedOn("its process has ended")}
    said = "reviewer architect_manager could not be started: it offers no tool 'review'"
    assert [record.getMessage() for record in caplog.records] == [said]


# --- others, and hostile ones ---------------------------------------------------------------------


@pytest.mark.requirement("B-172")
async def test_a_question_that_expires_is_cancelled_and_a_late_result_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reviewing(server("tardy_in_calls")) as reviewer:
        # Long enough that the question is sent before, on a busy machine too.
        silent = escalation(tool="patience", seconds=3.0)
        assert isinstance(await reviewer.ask(escalation()), Approved)
        assert await reviewer.ask(silent) == Declined(by=TIMEOUT, kind="expired")
        ruling = await reviewer.ask(escalation())
    # Two requests are the handshake.
    assert ruling == Approved(by=BY, note="call:3 call:4 cancel:4 call:5")
    assert "does not count" not in caplog.text


FAILURES = table("auto_confirm/reviewers/mcp_process.failures", dict[str, str])


@pytest.mark.requirement("B-169")
@pytest.mark.parametrize("way", FAILURES)
async def test_who_does_not_get_ready_is_passed_over_and_ended(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = Launcher()
    seconds = 0.5 if "not ready" in FAILURES[way] else 30.0
    spec = replace(server("not_getting_ready", way), ready_seconds=seconds)
    async with reviewing(spec, launcher) as reviewer:
        assert await reviewer.ask(escalation(seconds=300)) == NOT_STARTED
        assert not reviewer.is_reachable()
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"reviewer architect_manager could not be started: {FAILURES[way]}"]
    assert "secret words" not in caplog.text
    assert [process.exit_status is None for process in launcher.running] == [False]


async def test_getting_ready_does_not_outlast_the_question() -> None:
    async with reviewing(server("not_getting_ready", "silent")) as reviewer:
        ruling = await reviewer.ask(escalation(seconds=0.2))
    assert ruling == Declined(by=TIMEOUT, kind="expired")


@pytest.mark.requirement("X-8")
@pytest.mark.parametrize("attack", SPOILT)
async def test_a_spoilt_result_passes_on_and_what_follows_it_changes_nothing(
    attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = Launcher()
    async with reviewing(manager("deciding", "approve", name="other"), launcher) as other:
        await other.ask(escalation())
        others_token = launcher.starts[0].secrets[0]
        async with reviewing(server("attacking_by_calls", attack, others_token)) as reviewer:
            rulings = [await reviewer.ask(escalation(seconds=300)) for _ in range(2)]
    assert [type(ruling) for ruling in rulings] == [PassedOn, PassedOn]
    logged = reasons(caplog)
    assert isinstance(rulings[0], PassedOn)
    assert logged[rulings[0].reason] == 2
    assert logged[NOTHING_OPEN] >= 1
    assert others_token not in caplog.text


@pytest.mark.requirement("X-8")
@pytest.mark.parametrize("attack", NOISE)
async def test_what_is_no_result_of_an_open_call_changes_nothing_but_the_log(
    attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reviewing(server("attacking_by_calls", attack)) as reviewer:
        rulings = [await reviewer.ask(escalation(seconds=300)) for _ in range(2)]
    assert rulings == [Declined(by=BY, kind="denied", note="properly")] * 2
    warnings = [r for r in caplog.records if "does not count" in r.getMessage()]
    assert 0 < len(warnings) <= MAX_WARNINGS


async def test_replies_that_are_not_read_are_not_kept_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reviewing(server("attacking_by_calls", "not-reading")) as reviewer:
        assert isinstance(await reviewer.ask(escalation(seconds=300)), Declined)
    assert reasons(caplog)["it does not read the replies"] > 0


@pytest.mark.requirement("X-8")
async def test_a_result_about_another_open_question_settles_neither() -> None:
    async with reviewing(server("attacking_by_calls", "swap")) as reviewer:
        rulings = await all_asked(reviewer, [escalation(seconds=300), escalation(seconds=300)])
    assert rulings == [PassedOn("it answers another question than it was asked")] * 2


@pytest.mark.requirement("B-169")
async def test_a_server_that_dies_in_a_call_lets_everybody_go_at_once() -> None:
    async with reviewing(replace(server("dying_in_calls"), at_once=2)) as reviewer:
        rulings = await all_asked(reviewer, [escalation(seconds=300) for _ in range(6)])
    assert rulings == [PassedOn("its process has ended")] * 6
