"""Lines shown in place of a call, and the names of keys. No key here answers a call."""

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static
from textual.widgets._footer import FooterKey

from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.question import fold

# --- names of keys --------------------------------------------------------------------------------
# The keys of the live screen, their names, and the line that shows them.


KEYS: Final[list[BindingType]] = [
    Binding("a", "answer('approve')", "approve"),
    Binding("r", "answer('remember')", "remember"),
    Binding("d", "answer('deny')", "deny"),
    Binding("n", "note", "word"),
    Binding("p", "rule", "rule"),
    Binding("question_mark", "keys", "keys", key_display="?"),
    Binding("e", "explain", "explain"),
    Binding("h", "history", "history"),
    Binding("slash", "search", "search", key_display="/"),
    Binding("A", "together", "together"),
    Binding("q,ctrl+c", "quit", "quit"),
    *[Binding(str(n), f"remember({n - 1})", show=False) for n in range(2, 10)],
    Binding("up,k", "move(-1)", "previous", show=False),
    Binding("down,j", "move(1)", "next", show=False),
    Binding("pageup", "scroll(-1)", "page up", show=False),
    Binding("pagedown,space", "scroll(1)", "page down", show=False),
    Binding("escape", "close_note", "back", show=False),
]

KEY_WORDS: Final = (
    ("a", "approve this call"),
    ("r", "approve it and remember its kind"),
    ("2 to 9", "the same with another kind"),
    ("d", "deny it"),
    ("n", "deny it with a note to the agent"),
    ("p", "a rule that allows such calls; y writes it"),
    ("e", "why it is asked about, step by step"),
    ("/", "search what waits; escape shows all"),
    ("h", "past calls: f chooses, / searches"),
    ("A", "approve several together; press twice"),
    ("j k ↓ ↑", "the next and the previous call"),
    ("space", "scroll down; page up scrolls back"),
    ("q", "quit"),
)

_PADDING: Final = 3
"""Columns around the key and its name."""


class KeyLine(Footer):
    """The keys that fit on one line, each with its whole name; `?` lists all."""

    def compose(self) -> ComposeResult:
        """Return the keys, from the first, as long as they fit."""
        left = self.app.size.width
        for shown in super().compose():
            if isinstance(shown, FooterKey):
                left -= len(shown.key_display) + len(shown.description) + _PADDING
            if left >= 0:
                yield shown

    def on_resize(self, _event: Resize) -> None:
        """Choose again what fits."""
        _ = self.refresh(recompose=True)


_MARK: Final = "  : "


class TextScreen(ModalScreen[str]):
    """Shows lines that scroll. Its result is the outcome in words.

    The keys of the call are not known here: nothing is approved by a key for what is shown.
    """

    CSS: ClassVar[str] = """
    #text-title { height: 1; background: $primary; color: $text; padding: 0 1; }
    #text { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "back"),
        Binding("space,pagedown", "scroll(1)", "page down", show=False),
        Binding("pageup", "scroll(-1)", "page up", show=False),
        Binding("down,j", "line(1)", "down", show=False),
        Binding("up,k", "line(-1)", "up", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[Text]) -> None:
        super().__init__()
        self._heading = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Return the title and the lines."""
        yield Static(Text(self._heading), id="text-title")
        with VerticalScroll(id="text", can_focus=False):
            yield Static(id="lines")
        yield KeyLine()

    def on_resize(self, _event: Resize) -> None:
        """Fold the lines again to the width of the screen."""
        _ = self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        width = self._place().scrollable_content_region.width
        folded = [part for line in self._lines for part in _folded(line, width)]
        self.query_one("#lines", Static).update(Text("\n").join(folded))

    def _place(self) -> VerticalScroll:
        return self.query_one("#text", VerticalScroll)

    @property
    def was_read(self) -> bool:
        """Whether the end is on the screen."""
        place = self._place()
        drawn = self.query_one("#lines", Static).size.height >= len(self._lines)
        return drawn and place.scroll_offset.y >= place.max_scroll_y

    def action_scroll(self, pages: int) -> None:
        """Scroll by pages."""
        if pages > 0:
            self._place().scroll_page_down(animate=False)
        else:
            self._place().scroll_page_up(animate=False)

    def action_line(self, lines: int) -> None:
        """Scroll by lines."""
        self._place().scroll_relative(y=lines, animate=False)

    def action_back(self) -> None:
        """Go back."""
        _ = self.dismiss("")


def _folded(line: Text, width: int) -> list[Text]:
    """Split a line. Each further part is marked: an agent's words must not begin a line."""
    if line.cell_len <= width:
        return [line]
    first, *rest = fold(line.plain, width - len(_MARK))
    marked = [Text(_MARK, style="dim").append(part, line.style) for part in rest]
    return [Text(first, style=line.style), *marked]


class OneLine(Input):
    """An input of one line."""

    def __init__(self, name: str, says: str) -> None:
        super().__init__(id=name, placeholder=says, compact=True)


def plain_lines(lines: Sequence[str]) -> list[Text]:
    """Return lines with every character visible: parts of them are the words of an agent."""
    return [Text(visible(line)) for line in lines]
