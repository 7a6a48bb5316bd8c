"""Screens about one call, shown in its place: its rule, its explanation, the keys."""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from ironcurtain_proxy.cli.review_screen.key_names import KEY_WORDS
from ironcurtain_proxy.cli.review_screen.surroundings import OfferedRule, Surroundings
from ironcurtain_proxy.cli.review_screen.text_screen import TextScreen, plain_lines
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import summary, visible
from ironcurtain_proxy.mailbox.requests import PendingRequest

_STYLES: Final = (("+", "green"), ("-", "red"), ("@", "cyan"))
_TITLE: Final = "A rule that allows such calls"


class RuleScreen(TextScreen):
    """The screen of one rule with its diff. Its result is the outcome in words."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "write", "write this rule"),
        Binding("escape,p,q", "back", "back to the call"),
    ]

    def __init__(self, rule: OfferedRule) -> None:
        super().__init__(_TITLE, lines_of(rule))
        self._rule = rule

    def action_write(self) -> None:
        """Write the rule, if its end has been on the screen."""
        if not self.was_read:
            title = self.query_one("#text-title", Static)
            title.update(Text("there is more below: space scrolls; then y writes the rule"))
            return
        try:
            self._rule.write()
        except ConfigurationError as error:
            _ = self.dismiss(f"no rule: {visible(str(error))}")
            return
        _ = self.dismiss("the rule is written; running sessions take it within two seconds")

    def action_back(self) -> None:
        """Go back without writing."""
        _ = self.dismiss("no rule was written")


def lines_of(rule: OfferedRule) -> list[Text]:
    """The lines of a rule, with every character visible: parts of it are the agent's words."""
    lines = [Text(f"  {visible(rule.command)}"), Text(), Text("What it changes", style="bold")]
    for line in rule.change:
        style = next((style for sign, style in _STYLES if line.startswith(sign)), "")
        lines.append(Text(f"  {visible(line)}", style=style))
    return lines


Aside: TypeAlias = Callable[[Surroundings, PendingRequest], ModalScreen[str] | None]
"""Makes a screen about a call; None: there is nothing to show. Blocks, and may raise
`ConfigurationError`."""


def rule_screen(around: Surroundings, one: PendingRequest) -> ModalScreen[str] | None:
    """The rule that would allow such calls."""
    rule = around.rule(one)
    return None if rule is None else RuleScreen(rule)


def explanation_screen(around: Surroundings, one: PendingRequest) -> ModalScreen[str] | None:
    """The explanation of a question, step by step."""
    return TextScreen(f"Why {summary(one)}", plain_lines(around.explain(one)))


def keys_screen() -> ModalScreen[str]:
    """All keys."""
    return TextScreen("Keys", plain_lines([f"{key:<10}{words}" for key, words in KEY_WORDS]))
