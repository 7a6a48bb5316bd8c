"""The keys of the live screen, their names, and the line that shows them."""

from typing import Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

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
        """The keys, from the first, as long as they fit."""
        left = self.app.size.width
        for shown in super().compose():
            if isinstance(shown, FooterKey):
                left -= len(shown.key_display) + len(shown.description) + _PADDING
            if left >= 0:
                yield shown

    def on_resize(self, _event: Resize) -> None:
        """Choose again what fits."""
        _ = self.refresh(recompose=True)
