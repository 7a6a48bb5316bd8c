"""Requests that wait: answered, failed, late, cancelled."""

from collections.abc import Awaitable

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.jsonrpc.sending import Answers

pytestmark = pytest.mark.anyio


async def test_each_answer_reaches_who_asked() -> None:
    answers = Answers[str]()
    (first, to_first), (second, to_second) = answers.expect(5), answers.expect(5)
    got: dict[int, str] = {}

    async def wait(request_id: int, answer: Awaitable[str]) -> None:
        got[request_id] = await answer

    async with anyio.create_task_group() as group:
        group.start_soon(wait, first, to_first)
        group.start_soon(wait, second, to_second)
        assert answers.resolve(second, "second")
        assert answers.resolve(first, "first")
        assert not answers.resolve(first, "again")
    assert got == {first: "first", second: "second"}
    assert len(answers) == 0


async def test_a_passed_deadline_ends_the_wait_and_a_late_answer_is_nobodys() -> None:
    answers = Answers[str]()
    asked, answer = answers.expect(0)
    with pytest.raises(TimeoutError):
        await answer
    assert not answers.resolve(asked, "late")
    assert asked not in answers


async def test_a_lone_request_is_known() -> None:
    answers = Answers[str]()
    alone = [answers.only]
    for _ in range(2):
        answers.expect(5)
        alone.append(answers.only)
    assert alone == [None, 1, None]


async def test_a_cancelled_wait_is_forgotten() -> None:
    answers = Answers[str]()
    asked, answer = answers.expect(5)
    with anyio.move_on_after(0):
        await answer
    assert not answers.resolve(asked, "late")
    assert len(answers) == 0


async def test_when_all_fail_everybody_is_told() -> None:
    answers = Answers[str]()
    asked = [answers.expect(5) for _ in range(2)]
    answers.fail_all(OSError("gone"))
    for _, answer in asked:
        with pytest.raises(OSError, match="gone"):
            await answer


async def test_each_deadline_passes_by_itself_whatever_was_asked_before_it() -> None:
    answers = Answers[str]()
    late: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        _, answer = answers.expect(seconds)
        with pytest.raises(TimeoutError):
            await answer
        late.append(name)

    async with anyio.create_task_group() as group:
        for name, seconds in {"long": 0.3, "short": 0.05, "middle": 0.15}.items():
            group.start_soon(wait, name, seconds)
            await anyio.lowlevel.checkpoint()
    assert late == ["short", "middle", "long"]
    assert len(answers) == 0
