"""What may stand in the place of a call: its rule, its explanation, the keys."""

from collections.abc import Callable
from typing import TypeAlias

from textual.screen import ModalScreen

from ironcurtain_proxy.cli.review_screen.key_names import KEY_WORDS
from ironcurtain_proxy.cli.review_screen.rule_screen import RuleScreen
from ironcurtain_proxy.cli.review_screen.surroundings import Surroundings
from ironcurtain_proxy.cli.review_screen.text_screen import TextScreen, plain_lines
from ironcurtain_proxy.mailbox.display import summary
from ironcurtain_proxy.mailbox.requests import PendingRequest

Aside: TypeAlias = Callable[[Surroundings, PendingRequest], ModalScreen[str] | None]
"""Makes a screen about a call; None: there is nothing to show. Blocks, and may raise
`ConfigurationError`."""


def rule_screen(around: Surroundings, one: PendingRequest) -> ModalScreen[str] | None:
    """The rule that would allow such calls."""
    rule = around.rule(one)
    return None if rule is None else RuleScreen(rule)


def explanation_screen(around: Surroundings, one: PendingRequest) -> ModalScreen[str] | None:
    """Why it is asked about, step by step."""
    return TextScreen(f"Why {summary(one)}", plain_lines(around.explain(one)))


def keys_screen() -> ModalScreen[str]:
    """All keys."""
    return TextScreen("Keys", plain_lines([f"{key:<10}{words}" for key, words in KEY_WORDS]))
