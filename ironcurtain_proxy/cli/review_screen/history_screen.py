"""Recorded calls, shown in place of the questions: a list, a search, one call in full."""

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.audit.display import REFUSALS, CallTable, LogEntry, Selection
from ironcurtain_proxy.cli.review_screen.plain_review import OfferedRule, ScreenSources
from ironcurtain_proxy.cli.review_screen.waiting_list import (
    KEY_WORDS,
    KeyLine,
    OneLine,
    TextScreen,
    plain_lines,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.display import summary, visible
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest

_KINDS: Final = (
    ("answered by a person", Selection(by="person")),
    ("no server got them", Selection(decisions=REFUSALS)),
    ("all calls", Selection()),
)


class HistoryScreen(ModalScreen[str]):
    """Shows past calls, newest first. No key here answers a question."""

    CSS: ClassVar[str] = """
    #past-title, #past-columns { height: 1; padding: 0 1; }
    #past-title { background: $primary; color: $text; }
    #past-columns { color: $text-muted; }
    #past-words { display: none; }
    #past { height: 1fr; padding: 0 1; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "kind", "which calls"),
        Binding("slash", "search", "search", key_display="/"),
        Binding("escape,h,q", "back", "back"),
        Binding("j", "move(1)", "down", show=False),
        Binding("k", "move(-1)", "up", show=False),
    ]

    def __init__(self, history: CallHistory) -> None:
        super().__init__()
        self._history = history
        self._kind = 0
        self._words = ""
        self._entries: list[LogEntry] = []

    def compose(self) -> ComposeResult:
        """Return the title, the search and the list."""
        yield Static(id="past-title")
        yield OneLine("past-words", "words of a call; enter keeps, escape clears")
        yield Static(id="past-columns")
        yield OptionList(id="past", markup=False)
        yield KeyLine()

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#past").focus()
        self._read()

    def _read(self) -> None:
        name, chosen = _KINDS[self._kind]
        self._tell(f"History: {name}, reading …")
        self._find(name, Selection(by=chosen.by, decisions=chosen.decisions, text=self._words))

    @work(thread=True, exclusive=True)
    def _find(self, name: str, chosen: Selection) -> None:
        try:
            found = self._history.calls(chosen)
        except FileNotFoundError:
            self.app.call_from_thread(self._tell, "History: no call was recorded yet")
            return
        except OSError as error:
            self.app.call_from_thread(self._tell, f"History: no log: {error.strerror}")
            return
        self.app.call_from_thread(self._show, name, chosen.text, found)

    def _show(self, name: str, words: str, found: list[LogEntry]) -> None:
        if not self.is_current:
            return
        self._entries = found
        about = f', with "{words}"' if words else ""
        opens = "   enter opens one" if found else ""
        self._tell(f"History: {name}{about}: {len(found) or 'none'}{opens}")
        self._draw()

    def _draw(self) -> None:
        listed = self.query_one("#past", OptionList)
        place = listed.highlighted
        width = listed.scrollable_content_region.width
        longest = max([len(entry.number) for entry in self._entries], default=0)
        table = CallTable(width=width, when=self._history.when, longest_number=longest)
        self.query_one("#past-columns", Static).update(Text(table.header()))
        listed.clear_options()
        listed.add_options([Option(Text(table.row(entry))) for entry in self._entries])
        if self._entries:
            listed.highlighted = min(place or 0, len(self._entries) - 1)

    def _tell(self, words: str) -> None:
        self.query_one("#past-title", Static).update(Text(words, no_wrap=True, overflow="ellipsis"))

    def on_resize(self, _event: Resize) -> None:
        """Write the lines again, because they are fitted to the width."""
        self.call_after_refresh(self._draw)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Show the call in full."""
        self._open(self._entries[event.option_index])

    @work(thread=True, exclusive=True)
    def _open(self, entry: LogEntry) -> None:
        try:
            lines = self._history.call(entry.reference)
        except OSError as error:
            lines = [f"the log cannot be read: {error.strerror}"]
        shown = plain_lines(lines or ["there is no such call any more"])
        screen = TextScreen(f"Call {entry.number}", shown)
        self.app.call_from_thread(self.app.push_screen, screen)

    def action_kind(self) -> None:
        """Show another kind of calls."""
        self._kind = (self._kind + 1) % len(_KINDS)
        self._read()

    def action_move(self, step: int) -> None:
        """Highlight the next or the previous call."""
        listed = self.query_one("#past", OptionList)
        if step > 0:
            listed.action_cursor_down()
        else:
            listed.action_cursor_up()

    def action_search(self) -> None:
        """Ask for words."""
        words = self.query_one("#past-words", Input)
        words.display = True
        words.value = self._words
        words.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search for the submitted words.

        The event stops here, so that the screen below ignores it.
        """
        _ = event.stop()
        self._search_for(event.value.strip())

    def _search_for(self, words: str) -> None:
        self._words = words
        self.query_one("#past-words", Input).display = False
        self.query_one("#past").focus()
        self._read()

    def action_back(self) -> None:
        """Leave the search, or the history."""
        if self.query_one("#past-words", Input).has_focus:
            self._search_for("")
            return
        _ = self.dismiss("")


# --- a recorded call, on a screen -----------------------------------------------------------------
# Screens about one call, shown in its place: its rule, its explanation, the keys.


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
    """Return the lines of a rule, with every character visible: the agent wrote parts of it."""
    lines = [Text(f"  {visible(rule.command)}"), Text(), Text("What it changes", style="bold")]
    for line in rule.change:
        style = next((style for sign, style in _STYLES if line.startswith(sign)), "")
        lines.append(Text(f"  {visible(line)}", style=style))
    return lines


CallScreen: TypeAlias = Callable[[ScreenSources, PendingRequest], ModalScreen[str] | None]
"""Makes a screen about a call, or returns None if there is nothing to show. Blocks, and may raise
`ConfigurationError`."""


def rule_screen(sources: ScreenSources, one: PendingRequest) -> ModalScreen[str] | None:
    """Return the rule that would allow such calls."""
    rule = sources.rule(one)
    return None if rule is None else RuleScreen(rule)


def explanation_screen(sources: ScreenSources, one: PendingRequest) -> ModalScreen[str] | None:
    """Return the explanation of a question, step by step."""
    return TextScreen(f"Why {summary(one)}", plain_lines(sources.explain(one)))


def keys_screen() -> ModalScreen[str]:
    """Return all keys."""
    return TextScreen(
        "Keys", plain_lines([f"{key:<10}{words}" for key, words in KEY_WORDS.items()])
    )
