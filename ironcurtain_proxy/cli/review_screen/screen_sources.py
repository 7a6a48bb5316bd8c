"""Sources of the screen besides the questions: rules, explanations, past calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ironcurtain_proxy.audit.display import LogEntry
from ironcurtain_proxy.audit.family import Member
from ironcurtain_proxy.audit.finding import find_calls, lines_of
from ironcurtain_proxy.audit.selection import Selection
from ironcurtain_proxy.audit.tailing import last_calls
from ironcurtain_proxy.mailbox.requests import PendingRequest

_MOST_CALLS = 200


@dataclass(frozen=True, slots=True)
class OfferedRule:
    """A rule for the operator's layer."""

    command: str
    """The command that adds it."""
    change: Sequence[str]
    """The lines of the diff of `policy.yaml`, and the effects of the rule."""
    write: Callable[[], None]
    """Writes the rule. Raises `ConfigurationError`: it cannot be written, or the file has changed.
    """


RuleOffer: TypeAlias = Callable[[PendingRequest], OfferedRule | None]
"""The rule for a call; None: there is none to offer. Blocks, and may raise `ConfigurationError`."""


@dataclass(frozen=True, slots=True)
class CallHistory:
    """The calls that were recorded."""

    members: Callable[[], tuple[Member, ...]]
    """Gives the logs that exist now."""
    when: Callable[[str], str]
    """Turns a record's time into local time."""

    def calls(self, chosen: Selection) -> list[LogEntry]:
        """The last chosen calls, newest first.

        Raises:
            OSError: a log cannot be read.
        """
        return last_calls(self.members(), _MOST_CALLS, chosen)[::-1]

    def call(self, number: str) -> list[str]:
        """The record of a call in lines; empty: there is no such call.

        Raises:
            OSError: a log cannot be read.
        """
        calls = find_calls(self.members(), number)
        return lines_of(calls[0]) if len(calls) == 1 else []


def _no_rule(_one: PendingRequest) -> OfferedRule | None:
    return None


def _no_explanation(_one: PendingRequest) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSources:
    """The sources that the command gives its screen."""

    rule: RuleOffer = _no_rule
    explain: Callable[[PendingRequest], list[str]] = _no_explanation
    """Explains in lines why a call is asked about. Blocks, and may raise `ConfigurationError`."""
    history: CallHistory = CallHistory(tuple, str)
