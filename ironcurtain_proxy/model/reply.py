"""The outcome of a call, as data for the reply to the agent."""

from typing import Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.audit import PutBack
from ironcurtain_proxy.model.decider import HUMAN, Decider
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.server import ToolResult

RefusedBy: TypeAlias = Literal[
    "unknown-tool",
    "arguments",
    "policy",
    "no-reviewer",
    "declined",
    "expired",
    "lapsed",
    "held",
    "limit",
    "breaker",
    "busy",
    "audit",
    "kernel",
]
"""The part that refused the call.

`unknown-tool` and `arguments`: the call could not be read. `policy`: the kernel denied it.
`no-reviewer`: a reviewer was needed and none can be reached. `declined`: a reviewer refused, or the
answer was invalid. `expired`: no answer came in time. `lapsed`: an earlier approval ended while the
call waited. `held`: its question is still open, and the call may be repeated. `limit`: nobody was
asked, because too many questions of the session are open. `breaker`: the same call was repeated too
often. `busy`: other calls on its repository did not end. `audit`: the call could not be recorded.
`kernel`: a defect of the proxy.
"""


class Allowed(Struct, frozen=True):
    """The reason that allowed a call, as the record has it."""

    rule: str
    """The policy's rule that allowed the call, or that asked for a reviewer."""
    by: Decider
    """The kernel where the policy alone allowed it."""


class Answered(Struct, frozen=True, kw_only=True):
    """The server answered the call with a result or an error."""

    result: ToolResult
    recorded: bool = True
    """Whether the outcome was recorded; False: the call was carried out, and its record failed."""
    put_back: tuple[PutBack, ...] = ()
    """Files that were restored after the call."""
    allowed: Allowed | None = None
    """The ground of the call; None: a tool of the proxy itself answered."""


class Refused(Struct, frozen=True, kw_only=True):
    """The call was not forwarded."""

    by: RefusedBy
    ground: Ground
    note: str = ""
    """The reviewer's message to the agent, or the number of the question of a held call."""
    decider: Decider = HUMAN
    """The decider of a `declined` call. `model:NAME` is a reviewer that is a language model."""


class Failed(Struct, frozen=True, kw_only=True):
    """The call was forwarded, or about to be, and no answer came."""

    message: str
    """One line for the agent, without internals."""
    perhaps_done: bool = False
    """The server received the call, so it may have been carried out."""
    recorded: bool = True
    put_back: tuple[PutBack, ...] = ()
    """See `Answered.put_back`."""
    allowed: Allowed | None = None
    """The ground of the call; None: not known, because of a defect of the proxy."""


class Withheld(Struct, frozen=True, kw_only=True):
    """The call was carried out or begun, and its answer is withheld: it carries a question."""

    ground: Ground
    recorded: bool = True
    put_back: tuple[PutBack, ...] = ()
    """See `Answered.put_back`."""


Reply: TypeAlias = Answered | Refused | Failed | Withheld
"""The outcome of a call."""
