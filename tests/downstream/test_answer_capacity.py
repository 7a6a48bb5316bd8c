"""How many bytes of large answers may be on their way to the agent at once."""

import gc

from ironcurtain_proxy.downstream.conversation import SMALL, AnswerCapacity
from ironcurtain_proxy.model.server import ToolResult

LARGE = 10 * SMALL


def test_large_answers_have_room_up_to_their_sum_and_again_when_one_is_gone() -> None:
    capacity = AnswerCapacity()
    capacity.limit = 2 * LARGE
    one, two = (ToolResult(result={}) for _ in range(2))
    capacity.note(one, LARGE)
    capacity.note(two, LARGE)
    assert not capacity.fits(LARGE)
    assert capacity.fits(SMALL)
    del one
    gc.collect()
    assert capacity.fits(LARGE)
    del two


def test_what_the_agent_has_not_read_takes_room_too_but_one_answer_always_fits() -> None:
    capacity = AnswerCapacity()
    capacity.limit = LARGE
    assert capacity.fits(100 * LARGE)
    capacity.unread = lambda: 1
    assert not capacity.fits(LARGE)
