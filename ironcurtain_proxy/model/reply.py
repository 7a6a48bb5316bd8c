"""What became of a call, before it is put into words."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ironcurtain_proxy.model.audit import PutBack
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import HUMAN, Decider
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
"""Who said no.

`unknown-tool` and `arguments`: the call could not be read. `policy`: the kernel denied it.
`no-reviewer`: it needed a reviewer and none can be reached. `declined`: a reviewer said no, or
what came back was no answer. `expired`: no answer came in time. `lapsed`: something that was
approved before ended while the call waited. `held`: it waits for its answer and may be made again.
`limit`: nobody was asked, too much of the session is open. `breaker`: the same call again and
again. `busy`: other calls on its repository did not end. `audit`: it could not be recorded.
`kernel`: a defect of ours.
"""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What let a call go to its server, in the words of the record."""

    rule: str
    """The policy's rule that allowed the call, or that asked for a reviewer."""
    by: str
    """`kernel`: the policy alone. Else who approved: `human`, `reviewer:ID`, `grant:ID`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The server was asked and answered, well or not."""

    result: ToolResult
    recorded: bool = True
    """False: it was carried out, but the outcome could not be written down."""
    put_back: tuple[PutBack, ...] = ()
    """What was put back after it."""
    allowed: Allowed | None = field(default=None, compare=False)
    """None: a tool of the proxy's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call was not forwarded."""

    by: RefusedBy
    ground: Ground
    note: str = ""
    """A word of the reviewer to the agent, or the number of the question of a held call."""
    decider: Decider = HUMAN
    """Of a call that was `declined`: whose word it was. `model:NAME` is a reviewer that is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The call was forwarded, or was about to be, and no answer came."""

    message: str
    """One line for the agent, without internals."""
    perhaps_done: bool = False
    """Whether the server had the call: it may have been carried out."""
    recorded: bool = True
    put_back: tuple[PutBack, ...] = ()
    """As of `Answered`."""
    allowed: Allowed | None = field(default=None, compare=False)
    """None: a defect of ours, after which that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """The call was carried out, or begun, and its answer may not pass: it asks for something."""

    ground: Ground
    recorded: bool = True
    put_back: tuple[PutBack, ...] = ()
    """As of `Answered`."""


Reply: TypeAlias = Answered | Refused | Failed | Withheld
"""What becomes of a call."""
