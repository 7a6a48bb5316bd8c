"""The list of calls that wait, the search in it, one call in full, and texts that scroll.

Lines can be shown in place of a call, such as the names of keys. No key here answers a call.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static
from textual.widgets._footer import FooterKey

from ironcurtain_proxy.mailbox.answering import ShownChange, file_change
from ironcurtain_proxy.mailbox.display import (
    Field,
    also_of,
    arguments_of,
    called,
    margin,
    metadata_of,
    reasons_of,
    remembered,
    rows,
    summary,
    visible,
)
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest
from ironcurtain_proxy.model.escalation import fold
from ironcurtain_proxy.sessions import asker_of

_COLUMNS: Final = ("left", "session", "call")
_SESSION_WIDTH: Final = 12
_CALL_WIDTH: Final = 160
LOW: Final = 20
"""Lines of a terminal below which the names of columns are left out."""


class WaitingList(DataTable[Text]):
    """A table with one line for each call. Keys are handled by the screen."""

    # Keys are the screen's alone: what is highlighted and what is shown must never differ.
    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="list", cursor_type="row", show_header=True)
        self._left: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def on_mount(self) -> None:
        """Name the columns."""
        for name in _COLUMNS:
            self.add_column(name, key=name)

    def fill(
        self,
        waiting: Mapping[str, PendingRequest],
        left: Mapping[str, str],
        counts: Mapping[str, int],
    ) -> None:
        """Show these calls, each with the time left and the number of equal calls.

        Lines that stay are not moved.
        """
        present = {str(key.value) for key in self.rows}
        for key in present - left.keys():
            self.remove_row(key)
        for key, one in waiting.items():
            if key not in present:
                session = Text(visible(one.session)[:_SESSION_WIDTH])
                self.add_row(Text(left[key]), session, _call_of(one, counts[key]), key=key)
            elif counts[key] != self._counts.get(key):
                self.update_cell(key, "call", _call_of(one, counts[key]))
            elif left[key] != self._left.get(key):
                style = "bold red" if left[key].startswith("0:") else ""
                self.update_cell(key, "left", Text(left[key], style=style))
        self._left, self._counts = dict(left), dict(counts)

    def put_cursor(self, key: str) -> None:
        """Highlight a call."""
        row = self.get_row_index(key)
        if self.cursor_row != row:
            self.move_cursor(row=row)

    def chosen(self) -> str | None:
        """Return the highlighted call, or None if the list is empty."""
        if not self.row_count:
            return None
        return str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)


def _call_of(one: PendingRequest, count: int) -> Text:
    call = (f"{count} x " if count > 1 else "") + summary(one)
    return Text(call if len(call) <= _CALL_WIDTH else f"{call[:_CALL_WIDTH]}…")


def title_of(shown: int, all_of_them: int, words: str) -> str:
    """Return the first line of the screen: how many calls wait and match the search."""
    if not words:
        return f"ironcurtain-proxy review   {shown} waiting   (listening)"
    return f'ironcurtain-proxy review   {shown} of {all_of_them} waiting, with "{visible(words)}"'


class Search:
    """A search for calls that hold all words. Results are kept by request."""

    def __init__(self) -> None:
        self.words = ""
        self._known: dict[tuple[str, str, str], bool] = {}

    def chosen(self, waiting: Mapping[str, PendingRequest]) -> dict[str, PendingRequest]:
        """Return the requests that hold all words."""
        words = self.words.casefold()
        if not words.strip():
            return dict(waiting)
        keys = {(one.id, one.request.digest, words): one for one in waiting.values()}
        self._known = {
            key: self._known[key] if key in self._known else holds(one, words)
            for key, one in keys.items()
        }
        return {one.id: one for key, one in keys.items() if self._known[key]}


def holds(one: PendingRequest, words: str) -> bool:
    """Return whether each word occurs in the call, its reasons, or the description of its asker."""
    rule = Field("rule", (visible(one.request.rule),))
    fields = (*arguments_of(one), *reasons_of(one), *also_of(one), rule)
    parts = [summary(one), visible(one.session), asker_of(one).told()]
    parts += [line for field in fields for line in (field.name, *field.lines)]
    text = "\n".join(parts).casefold()
    return all(word in text for word in words.casefold().split())


# --- one question in full -------------------------------------------------------------------------
# One request as styled lines for the live screen.
#
# The words come from `display`, which has made everything visible; here they only get colours.


_ESCAPE: Final = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[rt])")
_CHANGES: Final = (("+", "green"), ("-", "red"), ("@", "cyan"), ("(", "bold yellow"))


class Detail(NamedTuple):
    """A request for a reviewer."""

    lines: list[Text]
    needed: int
    """The number of lines that must have been on the screen before the request is approved."""
    remembering: int
    """The same, before it can be remembered. Those after them are for the record."""


def detail_of(
    one: PendingRequest,
    change: ShownChange,
    width: int,
    asker: str = "",
    equal: Sequence[PendingRequest] = (),
) -> Detail:
    """Return all details of a request, in lines of at most `width` columns.

    The worst reason of the question comes first, then what would be done, the other reasons, and
    what can be remembered. The names for the record come last.

    Args:
        one: the question.
        change: the diff. Arguments that it shows in full are not shown again.
        width: the columns of the screen.
        asker: who asks, in words; empty where it is not known.
        equal: the calls that are answered with it, each in full.
    """
    heading = fold(summary(one), width)
    # All of its arguments stand below, and its name nowhere else.
    kept = 1 + len(fold(called(one), width))
    if heading[kept:]:
        heading[kept - 1 :] = [f"{heading[kept - 1][:-1]}…"]
    lines = [Text(part, style="bold") for part in heading]
    if asker:
        lines += [Text(part, style="dim") for part in fold(asker, width)]
    for field in reasons_of(one):
        lines += _field(field, width, "bold" if field.name == "why" else "")
    lines += _call(one, change, width)
    for number, other in enumerate(equal, 2):
        title = f"And {number} of {len(equal) + 1}: {summary(other)}"
        lines += [Text(part, style="bold") for part in fold(title, width)]
        for reason in [each for each in reasons_of(other) if each not in reasons_of(one)]:
            lines += _field(reason, width, "")
        other_change = file_change(other.request.tool, other.request.arguments)
        lines += _call(other, other_change, width)
    needed = len(lines)
    for field in also_of(one):
        lines += _field(field, width, "")
    first, *others = remembered(one).lines
    named = f"r: {first}" if one.request.candidates else first
    lines += _field(Field("remember", (named, *others), is_prose=True), width, "")
    remembering = len(lines)
    lines += [Text(), Text("For the record", style="bold underline")]
    for field in metadata_of(one):
        lines += _field(field, width, "dim")
    return Detail(lines, needed, remembering)


def _call(one: PendingRequest, change: ShownChange, width: int) -> list[Text]:
    """Return the arguments of a call, and what it changes."""
    lines: list[Text] = []
    arguments = arguments_of(one, without=change.shows)
    for field in arguments:
        lines += _field(field, width, "")
    if not arguments and not change.shows:
        lines.append(Text("    no arguments", style="dim"))
    if change.lines:
        lines.append(Text("What it changes", style="bold underline"))
        lines += [part for line in change.lines for part in _change(line, width)]
    return lines


def _field(field: Field, width: int, style: str) -> list[Text]:
    before = margin(width)
    return [
        Text().append(row[:before], "dim").append(_marked(row[before:], style))
        for row in rows(field, width)
    ]


def _change(line: str, width: int) -> list[Text]:
    style = next((style for sign, style in _CHANGES if line.startswith(sign)), "")
    first, *rest = fold(line, width - 4)
    wrapped = [Text("  : ", "dim").append(_marked(part, style)) for part in rest]
    return [Text("  ").append(_marked(first, style)), *wrapped]


def _marked(words: str, style: str) -> Text:
    """Return the text with every escape highlighted."""
    text = Text(words, style=style)
    text.highlight_regex(_ESCAPE, "bold reverse red")
    return text


# --- names of keys --------------------------------------------------------------------------------
# The keys of the live screen, their names, and the line that shows them.


_KEYS: Final = tomllib.loads(Path(__file__).with_name("keys.toml").read_text("utf-8"))
KEYS: Final[list[BindingType]] = [
    *[Binding(**one) for one in _KEYS["shown"]],
    *[Binding(str(n), f"remember({n - 1})", show=False) for n in range(2, 10)],
    *[Binding(**one, show=False) for one in _KEYS["hidden"]],
]

KEY_WORDS: Final[Mapping[str, str]] = _KEYS["words"]

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
        Binding("space,pagedown", "scroll(1)", "scroll"),
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
