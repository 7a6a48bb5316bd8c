"""The list of calls that wait, and the search in it."""

from collections.abc import Mapping
from typing import Final

from rich.text import Text
from textual.widgets import DataTable

from ironcurtain_proxy.mailbox.display import Field, arguments_of, reasons_of, summary, visible
from ironcurtain_proxy.mailbox.requests import PendingRequest
from ironcurtain_proxy.sessions.asker import asker_of

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

    def on_mount(self) -> None:
        """Name the columns."""
        for name in _COLUMNS:
            self.add_column(name, key=name)

    def fill(self, waiting: Mapping[str, PendingRequest], left: Mapping[str, str]) -> None:
        """Show these calls, each with the time left; lines that stay are not moved."""
        present = {str(key.value) for key in self.rows}
        for key in present - left.keys():
            self.remove_row(key)
        for key, one in waiting.items():
            if key not in present:
                call = summary(one)
                self.add_row(
                    Text(left[key]),
                    Text(visible(one.session)[:_SESSION_WIDTH]),
                    Text(call if len(call) <= _CALL_WIDTH else f"{call[:_CALL_WIDTH]}…"),
                    key=key,
                )
            elif left[key] != self._left.get(key):
                style = "bold red" if left[key].startswith("0:") else ""
                self.update_cell(key, "left", Text(left[key], style=style))
        self._left = dict(left)

    def put_cursor(self, key: str) -> None:
        """Highlight a call."""
        row = self.get_row_index(key)
        if self.cursor_row != row:
            self.move_cursor(row=row)

    def chosen(self) -> str | None:
        """The highlighted call; None: the list is empty."""
        if not self.row_count:
            return None
        return str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)


def title_of(shown: int, all_of_them: int, words: str) -> str:
    """The first line of the screen: how many calls wait, and how many of them the search leaves."""
    if not words:
        return f"ironcurtain-proxy review   {shown} waiting   (listening)"
    return f'ironcurtain-proxy review   {shown} of {all_of_them} waiting, with "{visible(words)}"'


class Search:
    """A search for calls that hold all words. Results are kept by request."""

    def __init__(self) -> None:
        self.words = ""
        self._known: dict[tuple[str, str, str], bool] = {}

    def chosen(self, waiting: Mapping[str, PendingRequest]) -> dict[str, PendingRequest]:
        """The requests that hold all words."""
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
    """Whether each word occurs in the call, its reasons, or the description of its asker."""
    fields = (*arguments_of(one), *reasons_of(one), Field("rule", (visible(one.request.rule),)))
    parts = [summary(one), visible(one.session), asker_of(one).told()]
    parts += [line for field in fields for line in (field.name, *field.lines)]
    text = "\n".join(parts).casefold()
    return all(word in text for word in words.casefold().split())
