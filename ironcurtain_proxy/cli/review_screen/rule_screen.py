"""A rule that is offered, in the place of the call: a key writes it, another goes back."""

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from ironcurtain_proxy.cli.review_screen.rules import OfferedRule
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import visible

_STYLES: Final = (("+", "green"), ("-", "red"), ("@", "cyan"))


class RuleScreen(ModalScreen[str]):
    """Shows a rule with its diff. Its result is what became of it, in words.

    The keys of the call are not known here: nothing is approved by a key for the rule.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "write", "write this rule"),
        Binding("escape,p,q", "back", "back to the call"),
    ]

    def __init__(self, rule: OfferedRule) -> None:
        super().__init__()
        self._rule = rule

    def compose(self) -> ComposeResult:
        """The command, and what it changes."""
        with VerticalScroll():
            yield Static(Text("\n").join(lines_of(self._rule)), id="rule")
        yield Footer()

    def action_write(self) -> None:
        """Write the rule."""
        try:
            self._rule.write()
        except ConfigurationError as error:
            _ = self.dismiss(f"no rule: {visible(str(error))}")
            return
        _ = self.dismiss("the rule is written; running sessions take it within two seconds")

    def action_back(self) -> None:
        """Write nothing."""
        _ = self.dismiss("no rule was written")


def lines_of(rule: OfferedRule) -> list[Text]:
    """A rule in lines, everything in it visible: parts of it are the agent's words."""
    lines = [Text("A rule that allows such calls", style="bold"), Text()]
    lines += [Text(f"  {visible(rule.command)}"), Text(), Text("What it changes", style="bold")]
    for line in rule.change:
        style = next((style for sign, style in _STYLES if line.startswith(sign)), "")
        lines.append(Text(f"  {visible(line)}", style=style))
    return lines
