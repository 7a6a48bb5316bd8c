"""What a process that reviews is spoken to in: questions out, answers in. Pure.

A dialect belongs to one life of one process. It knows how things are said, and which answers are
well-formed; it does not know whose answer counts, who waits for it, or how bytes come and go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from ironcurtain_proxy.auto_confirm.briefing import Briefing, View
from ironcurtain_proxy.jsonrpc.pipes import Oversize
from ironcurtain_proxy.model.escalation import Escalation

MAX_ANSWER: Final = 64 * 1024
"""Bytes of one line with an answer."""

NOTHING_OPEN: Final = "it answers nothing that is open"
TOO_LONG: Final = "it is too long"

ReviewerWord: TypeAlias = Literal["approve", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAnswer:
    """A well-formed answer of the process that was started, to some question."""

    id: str
    decision: ReviewerWord
    arguments_hash: str
    reviewer: str
    note: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """What answers nothing."""

    reason: str
    """Holds nothing of what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What one line of the process comes to."""

    answer: ProcessAnswer | NoAnswer | None = None
    """None: it is part of the conversation, and no answer."""
    over: str = ""
    """The question, by id, that can be answered no more after this line, whatever it says."""
    reply: bytes = b""
    """What is to be said to it, in lines."""
    failed: str = ""
    """Why it cannot be asked anything, ever. Holds nothing of what was said."""


class Dialect(Protocol):
    """One conversation with one process."""

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        ...

    @property
    def max_line(self) -> int:
        """Bytes; what is longer is not kept."""
        ...

    def hello(self) -> bytes:
        """What is said first, in lines; empty: nothing."""
        ...

    def question(self, escalation: Escalation, briefing: Briefing, view: View) -> bytes:
        """A question as a line. The deadline in it is the escalation's."""
        ...

    def release(self, identifier: str) -> bytes:
        """Forget a question. What says that it needs no answer any more, if it had none."""
        ...

    def hear(self, line: bytes | Oversize) -> Heard:
        """Take in one line of the process."""
        ...


MakeDialect: TypeAlias = Callable[[str], Dialect]
"""Begins a conversation with a process that was handed this token."""
