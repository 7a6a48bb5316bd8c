"""A rule that the screen offers for a call: what is shown of it, and how it is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ironcurtain_proxy.mailbox.requests import PendingRequest


@dataclass(frozen=True, slots=True)
class OfferedRule:
    """A rule for the operator's layer."""

    command: str
    """The command that adds it."""
    change: Sequence[str]
    """The lines of the diff of `policy.yaml`, and what the rule changes."""
    write: Callable[[], None]
    """Writes it. Raises `ConfigurationError`: it cannot be written, or the file has changed."""


RuleOffer: TypeAlias = Callable[[PendingRequest], OfferedRule | None]
"""The rule for a call; None: there is none to offer. Blocks, and may raise `ConfigurationError`."""


def no_rule(_one: PendingRequest) -> OfferedRule | None:
    """Nothing is offered."""
    return None
