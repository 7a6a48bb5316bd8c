"""How many bytes of large answers may be on their way to the agent at once."""

import gc

from ironcurtain_proxy.downstream.room import SMALL, AnswerCapacity
from ironcurtain_proxy.model.server import ToolResult

LARGE = 10 * SMALL


def test_large_answers_have_room_up_to_their_sum_and_again_when_one_is_gone() -> None:
    room = AnswerCapacity()
    room.limit = 2 * LARGE
    one, two = (room.note(ToolResult(result={}), LARGE) for _ in range(2))
    assert not room.fits(LARGE)
    assert room.fits(SMALL)
    del one
    gc.collect()
    assert room.fits(LARGE)
    del two


def test_what_the_agent_has_not_read_takes_room_too_but_one_answer_always_fits() -> None:
    room = AnswerCapacity()
    room.limit = LARGE
    assert room.fits(100 * LARGE)
    room.unread = lambda: 1
    assert not room.fits(LARGE)
