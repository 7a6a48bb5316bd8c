"""Requests that wait: answered, failed, late, cancelled."""

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.jsonrpc.answers import Answers

pytestmark = pytest.mark.anyio


async def test_each_answer_reaches_who_asked() -> None:
    answers = Answers[str]()
    first, second = answers.expect(), answers.expect()
    got: dict[int, str] = {}

    async def wait(request_id: int) -> None:
        got[request_id] = await answers.wait(request_id, 5)

    async with anyio.create_task_group() as group:
        group.start_soon(wait, first)
        group.start_soon(wait, second)
        assert answers.settle(second, "second")
        assert answers.settle(first, "first")
        assert not answers.settle(first, "again")
    assert got == {first: "first", second: "second"}
    assert len(answers) == 0


async def test_a_passed_deadline_ends_the_wait_and_a_late_answer_is_nobodys() -> None:
    answers = Answers[str]()
    asked = answers.expect()
    with pytest.raises(TimeoutError):
        await answers.wait(asked, 0)
    assert not answers.settle(asked, "late")
    assert asked not in answers


async def test_a_lone_request_is_known() -> None:
    answers = Answers[str]()
    assert [answers.only, answers.expect(), answers.only, answers.expect(), answers.only] == [
        None,
        1,
        1,
        2,
        None,
    ]


async def test_a_cancelled_wait_is_forgotten() -> None:
    answers = Answers[str]()
    asked = answers.expect()
    with anyio.move_on_after(0):
        await answers.wait(asked, 5)
    assert len(answers) == 0


async def test_when_all_fail_everybody_is_told() -> None:
    answers = Answers[str]()
    first, second = answers.expect(), answers.expect()
    answers.fail_all(OSError("gone"))
    for asked in (first, second):
        with pytest.raises(OSError, match="gone"):
            await answers.wait(asked, 5)


async def test_each_deadline_passes_by_itself_whatever_was_asked_before_it() -> None:
    answers = Answers[str]()
    late: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        asked = answers.expect()
        with pytest.raises(TimeoutError):
            await answers.wait(asked, seconds)
        late.append(name)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for name, seconds in {"long": 0.3, "short": 0.05, "middle": 0.15}.items():
                group.start_soon(wait, name, seconds)
                await anyio.lowlevel.checkpoint()
    assert late == ["short", "middle", "long"]
    assert len(answers) == 0
