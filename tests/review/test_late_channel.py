"""A way to a reviewer before and after it opens."""

import pytest

from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Approved, Escalation, Ruling, Unreachable
from ironcurtain_proxy.review.terminal import Channel, LateChannel, Panel
from tests.review.open_questions_fixture import question

pytestmark = pytest.mark.anyio


class Person:
    async def ask(self, escalation: Escalation) -> Ruling:
        return Approved(by=HUMAN)


async def test_a_way_that_has_not_opened_leads_to_nobody() -> None:
    late = LateChannel()
    panel = Panel((Channel(late, late.is_reachable),))
    assert not panel.is_reachable()
    assert await panel.ask(question(1)) == Unreachable()
    assert await late.ask(question(1)) == Unreachable()


async def test_a_way_leads_to_its_reviewer_once_it_has_opened() -> None:
    late = LateChannel()
    panel = Panel((Channel(late, late.is_reachable),))
    late.open(Person(), lambda: True)
    assert panel.is_reachable()
    assert await panel.ask(question(1)) == Approved(by=HUMAN)


async def test_an_open_way_may_still_lead_to_nobody() -> None:
    late = LateChannel()
    late.open(Person(), lambda: False)
    assert not late.is_reachable()
