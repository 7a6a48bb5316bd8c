"""Sources of the screen for all but the questions: rules, explanations, past calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest


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
"""Returns the rule for a call, or None. Blocks, and may raise `ConfigurationError`."""


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
    history: CallHistory = field(default_factory=lambda: CallHistory(tuple, str))
