"""The live screen: what waits, one of it in full, and keys to answer.

Knows what is shown and which key does what; reading and answering are the mailboxes'. The request
that a key answers is always the one whose details are on the screen.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from ironcurtain_proxy.cli.review_screen.review_detail import detail_of
from ironcurtain_proxy.cli.review_screen.rule_screen import RuleScreen
from ironcurtain_proxy.cli.review_screen.rules import OfferedRule, RuleOffer, no_rule
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import (
    NOT_COUNTED,
    ReviewerAnswer,
    answer_async,
    objection,
    still_waits,
)
from ironcurtain_proxy.mailbox.changes import changes_of
from ironcurtain_proxy.mailbox.credential import Credential
from ironcurtain_proxy.mailbox.display import summary, time_left, visible
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.mailbox.requests import PendingRequest, utc_now
from ironcurtain_proxy.sessions.asker import asker_of

GUARD_SECONDS: Final = 0.3
"""For so long after another request came up by itself no key answers it: the key was meant for what
stood there before."""
_POLL_SECONDS: Final = 0.1
_LISTEN_SECONDS: Final = 1.0
_EMPTY: Final = "Nothing is waiting. A call that needs you will appear here."
_COLUMNS: Final = ("left", "session", "call")
_SESSION_WIDTH: Final = 12
_CALL_WIDTH: Final = 160


class ReviewScreen(App[None]):
    """Shows and answers what waits in some mailboxes."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    # The only thing to focus is the input for a word, and only while it is asked for.
    AUTO_FOCUS: ClassVar[str | None] = None
    CSS: ClassVar[str] = """
    #title { height: 1; background: $primary; color: $text; padding: 0 1; }
    #list { height: auto; max-height: 35%; }
    #detail { height: 1fr; border-top: solid $primary; padding: 0 1; }
    #note { display: none; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer('approve')", "approve"),
        Binding("r", "answer('remember')", "approve and remember"),
        *[Binding(str(n), f"remember({n - 1})", show=False) for n in range(2, 10)],
        Binding("A", "together", "approve together"),
        Binding("d", "answer('deny')", "deny"),
        Binding("n", "note", "deny with a word"),
        Binding("p", "rule", "a rule"),
        Binding("up,k", "move(-1)", "previous", show=False),
        Binding("down,j", "move(1)", "next", show=False),
        Binding("pageup", "scroll(-1)", "page up", show=False),
        Binding("pagedown,space", "scroll(1)", "page down", show=False),
        Binding("escape", "close_note", "back", show=False),
        Binding("q,ctrl+c", "quit", "quit"),
    ]

    def __init__(
        self,
        mailboxes: Mailboxes,
        credential: Credential | None = None,
        offer: RuleOffer = no_rule,
    ) -> None:
        super().__init__()
        self._offer = offer
        self._mailboxes = mailboxes
        self._credential = credential
        self._waiting: dict[str, PendingRequest] = {}
        self._answered: set[str] = set()
        self._shown: PendingRequest | None = None
        self._seen: PendingRequest | None = None
        """The request whose end was on the screen."""
        self._ready_at = 0.0
        self._listen_at = 0.0
        self._title = ""
        self._left: dict[str, str] = {}
        self._note: PendingRequest | None = None
        """What a word is being typed about."""
        self._together: tuple[str, ...] = ()
        """What the key for "together" would approve if it is pressed again."""

    def compose(self) -> ComposeResult:
        """The list above, one request below."""
        yield Static(id="title")
        table: DataTable[Text] = DataTable(id="list", cursor_type="row", show_header=True)
        # Keys are ours alone: what is highlighted and what is shown must never differ.
        table.can_focus = False
        yield table
        detail = RichLog(id="detail", wrap=True, auto_scroll=False, min_width=20)
        detail.can_focus = False
        detail.border_title = "in full; space and page up scroll"
        yield detail
        yield Input(id="note", placeholder="a word to the agent; enter denies, escape goes back")
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        table = self._table()
        for name in _COLUMNS:
            table.add_column(name, key=name)
        self._look()
        self.set_interval(_POLL_SECONDS, self._look)

    def _table(self) -> "DataTable[Text]":
        return self.query_one("#list", DataTable)

    def _look(self) -> None:
        if time.monotonic() >= self._listen_at:
            self._listen_at = time.monotonic() + _LISTEN_SECONDS
            try:
                self._mailboxes.listen()
            except ConfigurationError as error:
                self._say(f"not listening: {error}")
        if not self.query("#list"):
            # A rule is on the screen, or this is the last tick of one that is being closed.
            return
        now = utc_now()
        found = {one.id: one for one in self._mailboxes.pending(now)}
        self._answered &= found.keys()
        waiting = {key: one for key, one in found.items() if key not in self._answered}
        came = waiting.keys() - self._waiting.keys()
        self._waiting = waiting
        self._fill({key: time_left(one, now) for key, one in waiting.items()})
        self._follow()
        if came:
            self.bell()
        title = f"ironcurtain-proxy review   {len(waiting)} waiting   (listening)"
        if title != self._title:
            self._title = title
            self.query_one("#title", Static).update(Text(title))

    def _fill(self, left: Mapping[str, str]) -> None:
        table = self._table()
        present = {str(key.value) for key in table.rows}
        for key in present - left.keys():
            table.remove_row(key)
        for key, one in self._waiting.items():
            if key not in present:
                call = summary(one)
                table.add_row(
                    Text(left[key]),
                    Text(visible(one.session)[:_SESSION_WIDTH]),
                    Text(call if len(call) <= _CALL_WIDTH else f"{call[:_CALL_WIDTH]}…"),
                    key=key,
                )
            elif left[key] != self._left.get(key):
                style = "bold red" if left[key].startswith("0:") else ""
                table.update_cell(key, "left", Text(left[key], style=style))
        self._left = dict(left)

    def _follow(self) -> None:
        """Keep showing what was shown; if that is over, show the oldest, and hold the keys."""
        if self._shown is not None:
            current = self._waiting.get(self._shown.id)
            if current == self._shown:
                self._put_cursor(self._shown.id)
                return
            if current is not None:
                # The same id with other bytes: somebody changed the file.
                self._show(current, by_itself=True)
                return
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None or self._shown is not None or not self._ready_at:
            self._show(oldest, by_itself=True)

    def _show(self, one: PendingRequest | None, *, by_itself: bool) -> None:
        self._shown = one
        if by_itself:
            self._ready_at = time.monotonic() + GUARD_SECONDS
        if one is not None:
            self._put_cursor(one.id)
        self._draw()
        self.query_one("#detail", RichLog).scroll_home(animate=False)

    def _put_cursor(self, key: str) -> None:
        table = self._table()
        row = table.get_row_index(key)
        if table.cursor_row != row:
            table.move_cursor(row=row)

    def _draw(self) -> None:
        detail = self.query_one("#detail", RichLog)
        detail.clear()
        if self._shown is None:
            detail.write(Text(_EMPTY, style="dim"))
            return
        request = self._shown.request
        changes = changes_of(request.tool, request.arguments)
        width = detail.scrollable_content_region.width or 80
        lines = detail_of(self._shown, changes, width, asker_of(self._shown.directory).told())
        # As one: ten thousand lines one by one take seconds.
        detail.write(Text("\n").join(lines))

    def on_resize(self, _event: Resize) -> None:
        """Lines are wrapped when they are written: write them again."""
        self.call_after_refresh(self._draw)

    def on_data_table_row_highlighted(self, _event: DataTable.RowHighlighted) -> None:
        """The mouse may choose a row: then it is shown."""
        table = self._table()
        if not table.row_count:
            return
        key = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)
        chosen = self._waiting.get(key)
        if chosen is not None and (self._shown is None or self._shown.id != key):
            self._show(chosen, by_itself=True)

    def action_move(self, step: int) -> None:
        """Show the next or the previous request."""
        keys = list(self._waiting)
        if self._shown is None or self._shown.id not in keys:
            return
        place = min(max(keys.index(self._shown.id) + step, 0), len(keys) - 1)
        if keys[place] != self._shown.id:
            self._show(self._waiting[keys[place]], by_itself=False)

    def action_scroll(self, pages: int) -> None:
        """Scroll the details."""
        detail = self.query_one("#detail", RichLog)
        if pages > 0:
            detail.scroll_page_down(animate=False)
            self.call_after_refresh(self._note_seen)
        else:
            detail.scroll_page_up(animate=False)

    def _note_seen(self) -> None:
        detail = self.query_one("#detail", RichLog)
        if detail.scroll_offset.y >= detail.max_scroll_y:
            self._seen = self._shown

    def action_answer(self, word: str) -> None:
        """Answer what is shown."""
        one = self._meant()
        if one is None or (word != "deny" and not self._was_seen()):
            return
        if word == "remember" and not one.request.candidates:
            self._say("nothing of this call can be remembered: a approves it once")
            return
        remember = 0 if word == "remember" else None
        self._answer(one, ReviewerAnswer(approved=word != "deny", remember=remember))

    def action_remember(self, place: int) -> None:
        """Approve what is shown, and remember another kind of call than the first."""
        one = self._meant()
        if one is None or not self._was_seen():
            return
        if place >= len(one.request.candidates):
            self._say(f"there is no {place + 1} among what can be remembered")
            return
        self._answer(one, ReviewerAnswer(approved=True, remember=place))

    def action_together(self) -> None:
        """Approve what may go together, once it has been said what that is."""
        if self._meant() is None:
            return
        several = {
            key: one
            for key, one in self._waiting.items()
            if one.request.may_be_answered_together and not objection(one.request, self._credential)
        }
        if not several:
            self._say("deletes, history, egress and risky calls are approved one by one")
            return
        if self._together != tuple(several):
            # Pressed again, it approves exactly these; what came meanwhile is said first, too.
            self._together = tuple(several)
            names = ", ".join([summary(one) for one in several.values()])
            self._say(f"A again approves {len(several)} of {len(self._waiting)} together: {names}")
            return
        self._together = ()
        for one in several.values():
            self._answer(one, ReviewerAnswer(approved=True), look=False)
        self._look()

    def _meant(self) -> PendingRequest | None:
        """What a key is about; None: nothing, or it came up too recently to have been meant."""
        if self._shown is None or self._note is not None:
            return None
        if time.monotonic() < self._ready_at:
            # A key that is held down must not come through in the end.
            self._ready_at = time.monotonic() + GUARD_SECONDS
            self._say("that key came too soon: another request had just come up")
            return None
        return self._shown

    def _was_seen(self) -> bool:
        """Whether the end of the request was on the screen: only then it can be approved."""
        detail = self.query_one("#detail", RichLog)
        if self._seen != self._shown:
            self._seen = self._shown if detail.scroll_offset.y >= detail.max_scroll_y else None
        if self._seen is None:
            self._say("there is more below: space scrolls; then it can be approved")
        return self._seen is not None

    def action_note(self) -> None:
        """Ask for a word to the agent."""
        one = self._meant()
        if one is None:
            return
        self._note = one
        note = self.query_one("#note", Input)
        note.value = ""
        note.display = True
        note.focus()
        self._say(f"denying {summary(one)}")

    def action_rule(self) -> None:
        """Show the rule that would allow such calls."""
        one = self._meant()
        if one is not None:
            self._say("looking for a rule…")
            self._find_rule(one)

    @work(thread=True, exclusive=True)
    def _find_rule(self, one: PendingRequest) -> None:
        try:
            found = self._offer(one)
        except ConfigurationError as error:
            self.call_from_thread(self._say, f"no rule: {visible(str(error))}")
            return
        self.call_from_thread(self._show_rule, one, found)

    def _show_rule(self, one: PendingRequest, found: OfferedRule | None) -> None:
        if found is None:
            self._say("calls of this kind are asked about each time: there is no rule to offer")
        elif one == self._shown:
            _ = self.push_screen(RuleScreen(found), lambda said: self._say(said or ""))

    def action_close_note(self) -> None:
        """Go back without an answer."""
        self._note = None
        note = self.query_one("#note", Input)
        note.display = False
        self.set_focus(None)
        self._say("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The word is complete: deny with it."""
        noted = self._note
        self.action_close_note()
        if noted is not None:
            self._answer(noted, ReviewerAnswer(approved=False, note=event.value))

    def _answer(self, one: PendingRequest, verdict: ReviewerAnswer, *, look: bool = True) -> None:
        problem = objection(one.request, self._credential)
        if problem:
            self._say(problem)
            return
        self._answered.add(one.id)
        self._send(one, replace(verdict, credential=self._credential))
        if look:
            self._look()

    @work
    async def _send(self, one: PendingRequest, verdict: ReviewerAnswer) -> None:
        told = summary(one)
        place = self._mailboxes.place_of(one)
        try:
            taken = place is not None and await answer_async(place, one.request, verdict)
        except OSError as error:
            self._answered.discard(one.id)
            self._say(f"not answered: {error.strerror}: {told}")
            return
        if not taken:
            waits = place is not None and still_waits(place, one.request)
            if waits:
                self._answered.discard(one.id)
            self._say(f"{NOT_COUNTED if waits else 'too late, no longer pending'}: {told}")
            return
        word = "approved" if verdict.approved else "denied"
        self._say(f"{word}{' and remembered' if verdict.remember is not None else ''}: {told}")

    def _say(self, words: str) -> None:
        for status in self.query("#status").results(Static):
            status.update(Text(words, no_wrap=True, overflow="ellipsis"))
