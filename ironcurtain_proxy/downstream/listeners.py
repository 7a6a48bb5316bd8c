"""The listeners of one server's notifications and requests."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.downstream.allowance import NotificationLimits
from ironcurtain_proxy.downstream.answer_capacity import AnswerCapacity
from ironcurtain_proxy.downstream.greeting import ROOTS
from ironcurtain_proxy.downstream.open_questions import QuestionHandler
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.json import Json

PASSED_ON: Final = frozenset(
    {
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
        "notifications/elicitation/complete",
    }
)
"""Notifications that are passed on, besides tools, progress and log messages."""


async def _not_passed_on(_method: str, _params: Mapping[str, Json]) -> None:
    return


async def _roots_only(_caller: Caller | None) -> Mapping[str, Json]:
    return ROOTS


class Listeners(Struct, frozen=True):
    """The listeners of a server's notifications and requests."""

    tools_changed: Callable[[], None]
    logged: Callable[[Mapping[str, Json]], Awaitable[None]]
    """Is handed the raw `params` of `notifications/message`."""
    roots: Callable[[], Sequence[Mapping[str, Json]]]
    """Gives the `roots` to answer `roots/list` with."""
    noticed: Callable[[str, Mapping[str, Json]], Awaitable[None]] = _not_passed_on
    """Is handed the method and the raw `params` of the notifications in `PASSED_ON`."""
    asked: QuestionHandler | None = None
    """Decides on the server's own questions and answers them; None: all are refused."""
    capabilities: Callable[[Caller | None], Awaitable[Mapping[str, Json]]] = _roots_only
    """Gives the client capabilities for the server, of the client of one request."""
    hidden: Callable[[str], None] = lambda _: None
    """Called for each hidden tool, at every listing."""
    capacity: AnswerCapacity = field(default_factory=AnswerCapacity)
    """The capacity that large answers of all servers share."""
    notices: NotificationLimits = field(default_factory=NotificationLimits)
    """The limit on notifications; answers always pass."""
