"""The review line by line, as in the original, for scripts and plain terminals.

It prints a banner for every request and takes `/approve N`, `/approve+ N`, `/deny N words`, with
`all` for a number, `/approve= N` for all that wait on one card, and `/edit N {"argument": value}`.
It knows nothing of files or terminals: it is handed what is pending and what was typed.
`ScreenSources` says where every screen finds rules, explanations and past calls.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer, changes_in, changes_of
from ironcurtain_proxy.mailbox.display import banner
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, grouped

HELP: Final = (
    "/approve N|all   /approve+ N (and remember; /approve+2 N the second kind)   "
    "/deny N|all [words to the agent]   /approve= N, /deny= N (with all equal calls)   "
    '/edit N {"argument": value} (approve the changed call)   /pending   /quit'
)


class ReviewCommand(Struct, frozen=True):
    """A command that a person typed."""

    answer: ReviewerAnswer
    chosen: tuple[PendingRequest, ...]


class PlainReview(Struct, kw_only=True):
    """Numbers requests as they arrive, and reads typed lines. Each number is used once."""

    say: Callable[[str], None]
    all_of: Callable[[Sequence[PendingRequest], bool], list[PendingRequest]]
    """Gives the open requests that `all` stands for, when approving (True) or denying."""
    width: int | None = None
    """The columns of the terminal, or None if there is no terminal."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _open: dict[int, PendingRequest] = field(default_factory=dict)

    def show(self, waiting: Sequence[PendingRequest], now: datetime) -> None:
        """Print new requests, and requests that have ended."""
        present = {one.id: one for one in waiting}
        for number, one in list(self._open.items()):
            if one.id not in present:
                del self._open[number]
                self.say(f"[{number}] is over: answered, expired or withdrawn")
        for one in waiting:
            if one.id not in self._numbers:
                number = self._numbers[one.id] = len(self._numbers) + 1
                self._open[number] = one
                self._print(one, now)
                card = [self._numbers[other.id] for other in self._card(number)]
                if len(card) > 1:
                    named = " ".join(f"[{other}]" for other in card)
                    self.say(f"    equal: {named}: /approve= {number} or /deny= {number} for all")

    def _card(self, number: int) -> tuple[PendingRequest, ...]:
        """Return the open requests that one answer may settle with this one, each printed."""
        one = self._open[number]
        return next(card for card in grouped([*self._open.values()]) if one in card)

    def _print(self, one: PendingRequest, now: datetime) -> None:
        number = self._numbers[one.id]
        diff = changes_of(one.request.tool, one.request.arguments)
        for line in banner(one, number, now, diff, self.width):
            self.say(line)
        self.say(f"    /approve {number}   /approve+ {number}   /deny {number} [words]")

    def read(self, line: str, now: datetime) -> ReviewCommand | None:
        """Return the command in a line, or print why it answers nothing and return None."""
        word, _, rest = line.strip().partition(" ")
        reference, _, note = rest.strip().partition(" ")
        match word:
            case "":
                return None
            case "/edit":
                return self._changed(reference, note)
            case "/approve" | "/deny" | "/approve=" | "/deny=":
                return self._command(word, reference, note.strip())
            case str() if re.fullmatch(r"/approve\+[1-9]?", word, re.ASCII):
                return self._command(word, reference, note.strip())
            case "/pending":
                self._list(now)
                return None
            case _:
                self.say(HELP)
                return None

    def _list(self, now: datetime) -> None:
        if not self._open:
            self.say("nothing is pending")
        for one in self._open.values():
            self._print(one, now)

    def _command(self, word: str, reference: str, note: str) -> ReviewCommand | None:
        approved = word.startswith("/approve")
        remember = int(word[9:] or "1") - 1 if word.startswith("/approve+") else None
        given = ReviewerAnswer(approved=approved, remember=remember, note=note)
        if reference == "all" and not word.endswith("="):
            return ReviewCommand(given, tuple(self.all_of(list(self._open.values()), approved)))
        number = self._number(reference)
        if number is None:
            return None
        return ReviewCommand(
            given, self._card(number) if word.endswith("=") else (self._open[number],)
        )

    def _changed(self, reference: str, text: str) -> ReviewCommand | None:
        number = self._number(reference)
        if number is None:
            return None
        try:
            changed = changes_in(text, self._open[number].request)
        except ConfigurationError as error:
            self.say(f"[{number}] {error}")
            return None
        return ReviewCommand(ReviewerAnswer(approved=True, changed=changed), (self._open[number],))

    def _number(self, reference: str) -> int | None:
        number = int(reference) if reference.isascii() and reference.isdigit() else 0
        if number in self._open:
            return number
        self.say(f"no pending escalation with number {reference!a}")
        return None

    def answered(self, one: PendingRequest) -> None:
        """Note an answered request, so that its end is not printed."""
        self._open.pop(self._numbers[one.id], None)


# --- screen sources


class OfferedRule(Struct, frozen=True):
    """A rule for the operator's layer."""

    command: str
    """The command that adds it."""
    change: Sequence[str]
    """The lines of the diff of `policy.yaml`, and the effects of the rule."""
    write: Callable[[], None]
    """Writes the rule. Raises `ConfigurationError`: it cannot be written, or the file has changed.
    """


RuleOffer: TypeAlias = Callable[[PendingRequest], OfferedRule | None]
"""Returns the rule for a call, or None. Blocks, and may raise `ConfigurationError`."""


def _no_rule(_one: PendingRequest) -> OfferedRule | None:
    return None


def _no_explanation(_one: PendingRequest) -> list[str]:
    return []


class ScreenSources(Struct, frozen=True, kw_only=True):
    """The sources that the command gives its screen."""

    rule: RuleOffer = _no_rule
    explain: Callable[[PendingRequest], list[str]] = _no_explanation
    """Explains in lines why a call is asked about. Blocks, and may raise `ConfigurationError`."""
    history: CallHistory = field(default_factory=lambda: CallHistory(tuple, str))
