"""The interface of a reviewer process's protocol: questions out, answers in.

A dialect belongs to one run of one process. It encodes questions, and checks the form of answers.
`process` decides which answers count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from ironcurtain_proxy.auto_confirm.briefing import View
from ironcurtain_proxy.auto_confirm.engine.decision import EngineDecision
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
    """A line that answers no question."""

    reason: str
    """Holds nothing of what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedOutput:
    """The result of one line of the process."""

    answer: ProcessAnswer | NoAnswer | None = None
    """The answer in the line; None: the line is part of the protocol, and no answer."""
    over: str = ""
    """The question, by id, that can no longer be answered after this line."""
    reply: bytes = b""
    """Lines to send to the process."""
    failed: str = ""
    """The reason why the process can never be asked, without words of the process."""


class Dialect(Protocol):
    """One conversation with one process."""

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""

    @property
    def max_line(self) -> int:
        """Bytes; longer lines are dropped."""

    def hello(self) -> bytes:
        """The first lines to send; empty: none."""

    def question(self, escalation: Escalation, decision: EngineDecision, view: View) -> bytes:
        """A question as a line. The deadline in it is the escalation's."""

    def release(self, identifier: str) -> bytes:
        """Forget a question. Returns the lines that cancel it, if it has no answer."""

    def hear(self, line: bytes | Oversize) -> ParsedOutput:
        """Read one line of the process."""


MakeDialect: TypeAlias = Callable[[str], Dialect]
"""Begins a conversation with a process that was handed this token."""
