"""The live screen: the list of open requests, one request in full, and keys to answer.

Knows what is shown and which key does what; reading and answering are the mailboxes'. The request
that a key answers is always the one whose details are on the screen.
"""

import os
import time
from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec.structs import replace
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Input, RichLog, Static

from ironcurtain_proxy.cli.review_screen.history_screen import (
    CallScreen,
    HistoryScreen,
    explanation_screen,
    keys_screen,
    rule_screen,
)
from ironcurtain_proxy.cli.review_screen.plain_review import ScreenSources
from ironcurtain_proxy.cli.review_screen.waiting_list import (
    KEYS,
    LOW,
    KeyLine,
    OneLine,
    Search,
    WaitingList,
    detail_of,
    title_of,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import (
    Proof,
    ReviewerAnswer,
    changes_in,
    file_change,
    objection,
    sent_to_all,
)
from ironcurtain_proxy.mailbox.display import summary, time_left, visible, why_alone
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, PendingRequest, grouped, utc_now
from ironcurtain_proxy.model.escalation import as_json
from ironcurtain_proxy.sessions import asker_of

GUARD_SECONDS: Final = 0.3
"""Seconds for which keys do not answer a request that appeared by itself: the key was meant for the
request before it."""
_POLL_SECONDS: Final = 0.1
_LISTEN_SECONDS: Final = 1.0
_EMPTY: Final = "Nothing is waiting. A call that needs you will appear here."
_NONE_FOUND: Final = "No call that waits holds these words; escape shows all of them."


class ReviewScreen(App[None]):
    """The screen that shows and answers the open requests of some mailboxes."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    # The only thing to focus is the input for a word, and only while it is asked for.
    AUTO_FOCUS: ClassVar[str | None] = None
    CSS: ClassVar[str] = """
    #title { height: 1; background: $primary; color: $text; padding: 0 1; }
    #list { height: auto; max-height: 25%; overflow-x: hidden; }
    #detail { height: 1fr; border-top: solid $primary; padding: 0 1; }
    #note, #words, #change { display: none; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = KEYS

    def __init__(
        self,
        mailboxes: Mailboxes,
        credential: Proof | None = None,
        sources: ScreenSources | None = None,
    ) -> None:
        super().__init__()
        self._sources = sources or ScreenSources()
        self._mailboxes = mailboxes
        self._credential = credential
        self._all: dict[str, PendingRequest] = {}
        self._waiting: dict[str, PendingRequest] = {}
        """The first request of each card."""
        self._search = Search()
        self._found: dict[str, PendingRequest] = {}
        """The open requests that the search leaves. Those of one card stand in one row."""
        self._drawn: tuple[PendingRequest, ...] = ()
        """The requests on the card that is shown: a key answers these. None joins it meanwhile."""
        self._answered: set[str] = set()
        self._shown: PendingRequest | None = None
        self._seen: PendingRequest | None = None
        """The request of which lines have been on the screen."""
        self._reached = 0
        """The last line of it that has been on the screen."""
        self._needed = 0
        """The number of lines of the shown request that an approval wants on the screen."""
        self._remembering = 0
        """The same, of an approval that is remembered."""
        self._ready_at = self._listen_at = 0.0
        self._title = ""
        self._cards: dict[str, tuple[PendingRequest, ...]] = {}
        self._note: PendingRequest | None = None
        """The request for which a note or arguments are being typed, or None."""
        self._together: tuple[str, ...] = ()
        """The requests that the key "together" approves when it is pressed again."""

    def compose(self) -> ComposeResult:
        """Return the list above, one request below."""
        yield Static(id="title")
        yield WaitingList()
        detail = RichLog(id="detail", wrap=True, auto_scroll=False, min_width=20)
        detail.can_focus = False
        detail.border_title = "in full; space and page up scroll"
        yield detail
        yield OneLine("words", "words of a call; enter keeps, escape shows all")
        yield OneLine("note", "a note to the agent; enter denies, escape goes back")
        yield OneLine("change", "the arguments; enter approves the changed call, escape goes back")
        yield Static(id="status")
        yield KeyLine()

    def on_mount(self) -> None:
        """Start to read the mailboxes."""
        self._look()
        self.set_interval(_POLL_SECONDS, self._look)

    def _table(self) -> WaitingList:
        return self._base.query_one("#list", WaitingList)

    @property
    def _base(self) -> Screen[object]:
        """The screen with the questions, below any other screen."""
        return self.screen_stack[0]

    def _look(self) -> None:
        if time.monotonic() >= self._listen_at:
            self._listen_at = time.monotonic() + _LISTEN_SECONDS
            if not self.is_headless and not os.isatty(0):
                # The terminal is gone, and nothing ended us with it: calls must not wait for us.
                self.exit()
            try:
                self._mailboxes.listen()
            except ConfigurationError as error:
                self._say(f"not listening: {error}")
        if not self.screen_stack or not self._base.query("#list"):
            # The screen is being closed.
            return
        now = utc_now()
        found = {one.id: one for one in self._mailboxes.pending(now)}
        self._answered &= found.keys()
        waiting = {key: one for key, one in found.items() if key not in self._answered}
        came, self._all = waiting.keys() - self._all.keys(), waiting
        self._found = self._search.chosen(waiting)
        cards = grouped([*self._found.values()], {one.id for one in self._drawn})
        self._cards = {card[0].id: card for card in cards}
        self._waiting = {key: card[0] for key, card in self._cards.items()}
        left = {key: time_left(one, now) for key, one in self._waiting.items()}
        counts = {key: len(card) for key, card in self._cards.items()}
        self._table().fill(self._waiting, left, counts)
        self._follow()
        if came:
            self.bell()
            if len(self.screen_stack) > 1:
                self.notify("a call waits: escape goes back to it", markup=False)
        title = title_of(len(self._found), len(self._all), self._search.words)
        if title != self._title:
            self._title = title
            self._base.query_one("#title", Static).update(Text(title))

    def _follow(self) -> None:
        """Keep the shown request; if it has ended, show the oldest and ignore keys for a moment."""
        if self._shown is not None:
            current = self._waiting.get(self._shown.id)
            if current == self._shown:
                self._table().put_cursor(self._shown.id)
                return
            if current is not None:
                # The file of this id has other content: somebody changed it.
                self._show(current, by_itself=True)
                return
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None or self._shown is not None or not self._ready_at:
            self._show(oldest, by_itself=True)

    def _show(self, one: PendingRequest | None, *, by_itself: bool) -> None:
        self._shown = one
        self._drawn = () if one is None else self._cards.get(one.id, (one,))
        if by_itself:
            self._ready_at = time.monotonic() + GUARD_SECONDS
        if one is not None:
            self._table().put_cursor(one.id)
        self._draw()
        self._detail().scroll_home(animate=False)

    def _detail(self) -> RichLog:
        return self._base.query_one("#detail", RichLog)

    def _draw(self) -> None:
        detail = self._detail()
        detail.clear()
        if self._shown is None:
            detail.write(Text(_NONE_FOUND if self._all else _EMPTY, style="dim"))
            return
        request = self._shown.request
        change = file_change(request.tool, request.arguments)
        width = detail.scrollable_content_region.width or 80
        asker = asker_of(self._shown).told()
        lines, self._needed, self._remembering = detail_of(
            self._shown, change, width, asker, self._drawn[1:]
        )
        self._reached = 0
        # Written as one text: ten thousand lines one by one take seconds. Without a width the
        # library would wrap by the terminal's first one, below the names of fields.
        detail.write(Text("\n").join(lines), width=width)

    def on_resize(self, event: Resize) -> None:
        """Write the lines again: they are wrapped when they are written."""
        self._table().show_header = event.size.height >= LOW
        self.call_after_refresh(self._draw)

    def on_data_table_row_highlighted(self, _event: DataTable.RowHighlighted) -> None:
        """Show the request in a row that the mouse chose."""
        key = self._table().chosen()
        chosen = None if key is None else self._waiting.get(key)
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
        detail = self._detail()
        if pages > 0:
            detail.scroll_page_down(animate=False)
            self.call_after_refresh(self._note_seen)
        else:
            detail.scroll_page_up(animate=False)

    def _note_seen(self) -> None:
        # Before the first layout there are no lines.
        detail = self._detail()
        last = detail.scroll_offset.y + detail.scrollable_content_region.height
        before = self._reached if self._seen == self._shown else 0
        self._seen, self._reached = self._shown, max(before, min(last, len(detail.lines)))

    def action_answer(self, word: str) -> None:
        """Answer the shown request."""
        one = self._meant()
        if one is None:
            return
        if word != "deny" and not self._was_seen(is_remembered=word == "remember"):
            return
        if word == "remember" and not one.request.candidates:
            self._say("nothing of this call can be remembered: a approves it once")
            return
        remember = 0 if word == "remember" else None
        self._answer_card(one, ReviewerAnswer(approved=word != "deny", remember=remember))

    def action_remember(self, place: int) -> None:
        """Approve the shown request, and remember another candidate than the first."""
        one = self._meant()
        if one is None or not self._was_seen(is_remembered=True):
            return
        if place >= len(one.request.candidates):
            self._say(f"there is no {place + 1} among what can be remembered")
            return
        self._answer_card(one, ReviewerAnswer(approved=True, remember=place))

    def action_together(self) -> None:
        """Approve the requests that may be approved together, if they were listed before."""
        if self._meant() is None:
            return
        several = {
            key: one
            for key, one in self._found.items()
            if not one.request.alone and not objection(one.request, self._credential)
        }
        if not several:
            left = "; ".join(dict.fromkeys(map(why_alone, self._found.values())))
            self._say(f"approve these one by one: {left}")
            return
        if self._together != tuple(several):
            # A second press approves exactly these. If others have come meanwhile, they are named
            # first.
            self._together = tuple(several)
            names = ", ".join([summary(one) for one in several.values()])
            said = f"A again approves {len(several)} of {len(self._found)} together: {names}"
            others = [one for key, one in self._found.items() if key not in several]
            apart = [f"{summary(one)} ({why_alone(one)})" for one in others if one.request.alone]
            self._say(f"{said}. Left out: {', '.join(apart)}" if apart else said)
            return
        self._together = ()
        self._answer([*several.values()], ReviewerAnswer(approved=True), is_card=False)

    def _meant(self) -> PendingRequest | None:
        """Return the request that a key answers, or None if it appeared too recently."""
        if self._shown is None or self._note is not None or len(self.screen_stack) > 1:
            return None
        if time.monotonic() < self._ready_at:
            # A key that is held down must not answer once the guard has passed.
            self._ready_at = time.monotonic() + GUARD_SECONDS
            self._say("that key came too soon: another request had just come up")
            return None
        return self._shown

    def _was_seen(self, *, is_remembered: bool = False) -> bool:
        """Return whether all of it that the answer is about was on the screen."""
        self._note_seen()
        if self._reached and self._reached >= (
            self._remembering if is_remembered else self._needed
        ):
            return True
        word = "remembered" if is_remembered else "approved"
        self._say(f"there is more below: space scrolls; then it can be {word}")
        return False

    def action_note(self) -> None:
        """Ask for a note to the agent."""
        one = self._meant()
        if one is None:
            return
        self._note = one
        self._open("#note", "")
        self._say(f"denying {summary(one)}")

    def action_change(self) -> None:
        """Ask for other arguments."""
        one = self._meant()
        if one is None or not self._was_seen():
            return
        if not one.request.may_edit:
            self._say("the arguments of this call cannot be changed")
            return
        self._note = one
        self._open("#change", as_json(dict(one.request.arguments)))
        self._say(f"changing {summary(one)}: the policy judges the changed call")

    def action_rule(self) -> None:
        """Show the rule that would allow such calls."""
        self._ask_about("rule", rule_screen)

    def action_explain(self) -> None:
        """Show step by step why the call is asked about."""
        self._ask_about("explanation", explanation_screen)

    def _ask_about(self, what: str, find: CallScreen) -> None:
        one = self._meant()
        if one is not None:
            self._say(f"looking for the {what} …")
            self._find(what, find, one)

    @work(thread=True, exclusive=True)
    def _find(self, what: str, find: CallScreen, one: PendingRequest) -> None:
        try:
            screen = find(self._sources, one)
        except ConfigurationError as error:
            self.call_from_thread(self._say, f"no {what}: {visible(str(error))}")
            return
        self.call_from_thread(self._put_before, screen, one)

    def _put_before(self, screen: ModalScreen[str] | None, one: PendingRequest) -> None:
        """Show a screen about a request, if the request is still the shown one."""
        if screen is None:
            self._say("calls of this kind are asked about each time: there is no rule to offer")
        elif one == self._shown:
            _ = self.push_screen(screen, self._came_back)

    def _came_back(self, said: str | None) -> None:
        # What was shown meanwhile may be another call: a key on its way was not meant for it.
        self._ready_at = time.monotonic() + GUARD_SECONDS
        self._say(said or "")

    def action_history(self) -> None:
        """Show past calls."""
        _ = self.push_screen(HistoryScreen(self._sources.history), self._came_back)

    def action_keys(self) -> None:
        """Show all keys."""
        _ = self.push_screen(keys_screen(), self._came_back)

    def action_search(self) -> None:
        """Ask for words that a call must hold."""
        if self._note is None:
            self._open("#words", self._search.words)

    def _open(self, which: str, text: str) -> None:
        line = self._base.query_one(which, Input)
        line.display, line.value = True, text
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the words are typed."""
        if event.input.id == "words" and event.input.display:
            self._search.words = event.value
            self._look()

    def action_close_note(self) -> None:
        """Go back without an answer, or show all calls again."""
        if self._note is None:
            self._search.words = ""
            self._look()
        self._close("")

    def _close(self, said: str) -> None:
        self._note = None
        for line in self._base.query(Input):
            line.display = False
        self.set_focus(None)
        self._say(said)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the search, or deny with the submitted words."""
        noted = self._note
        if noted is not None and event.input.id == "change":
            try:
                changed = changes_in(event.value, noted.request)
            except ConfigurationError as error:
                self._say(str(error))
                return
            self._close("")
            self._answer([noted], ReviewerAnswer(approved=True, changed=changed))
            return
        self._close("")
        if noted is not None:
            self._answer_card(noted, ReviewerAnswer(approved=False, note=event.value))

    def _answer_card(self, one: PendingRequest, given: ReviewerAnswer) -> None:
        """Answer every call on the card; what is remembered of the first covers the others."""
        others = self._drawn[1:] if self._drawn[:1] == (one,) else ()
        there = [each for each in others if self._found.get(each.id) == each]
        self._answer([one, *there], given)

    def _answer(
        self, calls: Sequence[PendingRequest], given: ReviewerAnswer, *, is_card: bool = True
    ) -> None:
        problem = objection(calls[0].request, self._credential)
        if problem:
            self._say(problem)
            return
        self._answered |= {one.id for one in calls}
        self._send(calls, replace(given, credential=self._credential), is_card=is_card)
        self._look()

    @work
    async def _send(
        self, calls: Sequence[PendingRequest], given: ReviewerAnswer, *, is_card: bool
    ) -> None:
        done, waiting = await sent_to_all(self._mailboxes, calls, given, is_card=is_card)
        self._answered -= {one.id for one in waiting}
        self._say(done.told)

    def _say(self, words: str) -> None:
        for status in self._base.query("#status").results(Static):
            status.update(Text(words, no_wrap=True, overflow="ellipsis"))
