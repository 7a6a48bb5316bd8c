"""Records as text for people, the choice of some of them, and statistics of calls.

Any part of a record can come from an agent or a server. Characters that move a terminal's cursor
or change the direction of writing are shown as escapes. Statistics need constant memory, however
long the log is.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, Literal, assert_never, get_args

import orjson
from msgspec import Struct

from ironcurtain_proxy.model.decision import (
    ClientDialog,
    Contained,
    DeciderWord,
    Engine,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
    of_record,
)
from ironcurtain_proxy.model.escalation import is_invisible
from ironcurtain_proxy.model.values import object_of, text_of, word_list

_MAIN_ARGUMENTS: Final = word_list(
    """
    path file_path source url uri repo_path command query name
    """
)
"""The argument that tells most about a call, the most telling first."""

COLOURS: Final[Mapping[str, str]] = {
    "allowed": "\x1b[32m",
    "approved": "\x1b[36m",
    "DENIED": "\x1b[31m",
    "REFUSED": "\x1b[33m",
    "HELD": "\x1b[35m",
    "left": "\x1b[33m",
}
PLAIN: Final = "\x1b[0m"


class LogEntry(Struct, frozen=True, kw_only=True):
    """One record, as `audit` shows it."""

    number: str
    """The reference that `audit show` takes: `17`, or `4711:17` in the log of another client."""
    time: str
    """The time of the call's arrival, UTC: `2026-11-21T12:00:00.799Z`."""
    request_id: str
    session: str
    client: str
    is_intent: bool
    decision: str
    """`allowed`, `approved`, `DENIED`, `REFUSED` (nobody approved it), `HELD` (it waits), or
    `left` (to the client's dialog, and the client did not say that the call ran)."""
    by: str
    """The decider: `policy`, `person`, `grant`, `auto-approver`, `engine`, a reviewer, `nobody`."""
    tool: str
    rule: str
    """The rule in the agent's answer, or the rule that allowed the call."""
    argument: str
    outcome: str
    status: str
    """The result's; empty for an intent."""
    calls: int
    """The number of calls; more than one where calls were counted together."""
    duration_ms: int
    """The duration without the reviewer's time."""
    waited_ms: int

    @property
    def reference(self) -> str:
        """Its id, which is found in one pass over the logs; its number if the id looks like one."""
        return self.request_id if "-" in self.request_id else self.number


def entry_of(fields: Mapping[str, object], process: str = "") -> LogEntry:
    """Read a record. Missing fields are empty: the record can be another program's.

    Args:
        fields: the record.
        process: the process of its log, where that is another log than the one asked for.
    """
    decision = object_of(fields.get("policyDecision"))
    result = object_of(fields.get("result"))
    seq, waited = _integer(fields.get("seq")), _integer(fields.get("waitedMs")) or 0
    total = _integer(fields.get("durationMs")) or 0
    refused_by = text_of(fields.get("refusedBy"))
    return LogEntry(
        number=number_of(seq, process),
        time=text_of(fields.get("timestamp")),
        request_id=text_of(fields.get("requestId")),
        session=text_of(fields.get("session")),
        client=text_of(fields.get("client")),
        is_intent=fields.get("phase") == "intent",
        decision=_decision(fields, decision, text_of(result.get("status"))),
        by=_who(text_of(fields.get("decidedBy")), refused_by, text_of(fields.get("refusalRule"))),
        tool=f"{text_of(fields.get('serverName'))}/{text_of(fields.get('toolName'))}",
        rule=text_of(fields.get("refusalRule")) or text_of(decision.get("rule")),
        argument=_argument(object_of(fields.get("arguments"))),
        outcome=_outcome(fields, decision, result, waited),
        status=text_of(result.get("status")),
        calls=(_integer(fields.get("count")) or 1) if fields.get("phase") == "counted" else 1,
        duration_ms=max(0, total - waited),
        waited_ms=waited,
    )


def number_of(seq: int | None, process: str = "") -> str:
    """Return the number of a line: `17`, or `4711:17` in the log of process 4711."""
    if seq is None:
        return ""
    return f"{process}:{seq}" if process else str(seq)


def arrived_at(entry: LogEntry) -> float:
    """Return the time of a call's arrival, in seconds since 1970; 0 if the record does not say."""
    try:
        arrived = datetime.fromisoformat(entry.time)
    except ValueError:
        return 0.0
    return 0.0 if arrived.tzinfo is None else arrived.timestamp()


def ended_at(entry: LogEntry) -> float:
    """Return the time of a call's end, in seconds since 1970; 0 if the record does not say."""
    arrived = arrived_at(entry)
    return arrived + (entry.duration_ms + entry.waited_ms) / 1000 if arrived else 0.0


def details(fields: Mapping[str, object]) -> list[str]:
    """Return a whole record, one field a line."""
    lines: list[str] = []
    for name, value in fields.items():
        if isinstance(value, str | int | float | bool) or value is None:
            shown = value if isinstance(value, str) else orjson.dumps(value).decode()
            lines.append(f"{printable(name):<16}  {printable(shown)}")
        else:
            text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
            first, *rest = [printable(part) for part in text.split("\n")]
            lines.append(f"{printable(name):<16}  {first}")
            lines += [f"{'':<16}  {part}" for part in rest]
    return lines


def printable(text: str) -> str:
    """Escape everything in `text` that is neither a visible character nor a blank."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        [char.encode("unicode_escape").decode() if is_invisible(char) else char for char in text]
    )


def columns(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum([_columns_of(char) for char in text])


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """Fill or cut `text` to exactly `width` columns, with an ellipsis where it was cut."""
    shown = printable(text)
    if columns(shown) > width:
        shown = _cut(shown, width - 1) + "…"
    return shown + " " * (width - columns(shown))


def _cut(text: str, width: int) -> str:
    taken = 0
    for place, char in enumerate(text):
        taken += _columns_of(char)
        if taken > width:
            return text[:place]
    return text


def _decision(fields: Mapping[str, object], decision: Mapping[str, object], status: str) -> str:
    settled, by = text_of(fields.get("escalationResult")), text_of(fields.get("refusedBy"))
    if status == "denied" and (by == "held" or by in _BY_THE_KERNEL):
        return "HELD" if by == "held" else "DENIED"
    if fields.get("decidedBy") == "client" and status == "error":
        # A refusal in the client's dialog has no event of its own with every client.
        error = text_of(object_of(fields.get("result")).get("error"))
        for begin, word in _BY_THE_CLIENT:
            if error.startswith(begin):
                return word
    match text_of(decision.get("status")), settled:
        case "escalate", "approved":
            return "approved"
        case "escalate", _:
            return "REFUSED"
        case "allow", _ if status != "denied":
            return "approved" if settled == "approved" else "allowed"
        case _:
            return "REFUSED" if settled == "denied" and by in _BY_REVIEWERS else "DENIED"


_BY_THE_CLIENT: Final = (("refused in the client", "REFUSED"), ("the client did not say", "left"))


def _who(decided_by: str, refused_by: str, refusal_rule: str) -> str:
    if refused_by in {"held", "no-reviewer"}:
        return "nobody"
    if refused_by in _BY_THE_KERNEL and decided_by == "kernel":
        return refusal_rule if refusal_rule in {"sandbox", "breaker"} else shown_decider("kernel")
    return shown_decider(decided_by)


def shown_decider(decided_by: str) -> str:
    """Return the word of the column BY for a `decidedBy` of a record: `person` for `human`."""
    decider = of_record(decided_by)
    match decider:
        case None:
            return decided_by
        case Program(name=name):
            # A reviewer may be named like another decider: such a name is shown with its kind.
            return decided_by if name in _OTHER_WORDS or ":" in name else name
        case Person():
            return "person"
        case ProxyItself():
            return "policy"
        case Nobody():
            return "nobody"
        case Signers() | LlmApprover() | Engine() | Grants() | Contained() | ClientDialog():
            return decider.word
        case _:
            assert_never(decider)


_OTHER_WORDS: Final = frozenset(
    {*get_args(DeciderWord), "person", "policy", "nobody", "sandbox", "breaker"}
)
_BY_THE_KERNEL: Final = frozenset(
    {"unknown-tool", "arguments", "policy", "breaker", "busy", "audit", "kernel"}
)
_BY_REVIEWERS: Final = frozenset({"declined", "expired", "limit", "lapsed"})
"""The party that refused, by `RefusedBy`."""


def _argument(arguments: Mapping[str, object]) -> str:
    for name in (*_MAIN_ARGUMENTS, *arguments):
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and isinstance(value[0], str):
            return ", ".join([item for item in value if isinstance(item, str)])
    return ""


def _outcome(
    fields: Mapping[str, object],
    decision: Mapping[str, object],
    result: Mapping[str, object],
    waited: int,
) -> str:
    ran = shown_time(max(0, (_integer(fields.get("durationMs")) or 0) - waited))
    waiting = f" (waited {shown_time(waited)})" if waited else ""
    match text_of(result.get("status")):
        case "success":
            return f"ok, {ran}{waiting}"
        case "error":
            return f"error, {ran}{waiting}: {_short(text_of(result.get('error')))}"
        case "denied":
            return f"{_short(_why(fields, decision, result))}{waiting}"
        case _:
            return "no outcome recorded"


def _why(
    fields: Mapping[str, object], decision: Mapping[str, object], result: Mapping[str, object]
) -> str:
    """Return the reviewer's words, and the reason in the agent's answer."""
    reason, error = text_of(decision.get("reason")), text_of(result.get("error"))
    if "refusalRule" in fields:
        reason = error or reason
    note = text_of(fields.get("note"))
    return f'"{note}": {reason or error}' if note else reason or error


def shown_time(milliseconds: int) -> str:
    """Return a duration: `3 ms`, `1.2 s`, `41 s`."""
    if milliseconds < 1000:  # noqa: PLR2004  a second
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.3g} s"


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


_SHORT: Final = 120


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# --- the table of `audit tail` --------------------------------------------------------------------
# One line a call, fitted to the terminal. Columns are left out or made narrower before a line is
# wider than the terminal: a line that wraps hides the left half of the list, where a reader looks
# first.

_GAP: Final = "  "
_LEAST_OUTCOME: Final = 9
_SHORT_TIME: Final = 8


class _Column(Struct, frozen=True):
    title: str
    value: Callable[[LogEntry], str]
    widths: tuple[int, ...]
    """A column, with its widths from the widest; a width of 0 leaves the column out."""
    keep: Literal["beginning", "last part", "end of a path"] = "beginning"
    """The part that is shown of a text that is too wide: servers' names and directories repeat in
    each line, the names of tools and files tell calls apart."""


_COLUMNS: Final = (
    _Column("NO", lambda entry: entry.number, (7, 6, 6, 5, 5)),
    _Column("TIME", lambda entry: entry.time, (19, 19, 8, 8, 8)),
    _Column("DECISION", lambda entry: entry.decision, (8, 8, 8, 8, 8)),
    _Column("BY", lambda entry: entry.by, (13, 13, 9, 6, 0)),
    _Column("SERVER/TOOL", lambda entry: entry.tool, (30, 26, 22, 16, 14), keep="last part"),
    _Column("RULE", lambda entry: entry.rule, (32, 0, 0, 0, 0)),
    _Column("ARGUMENT", lambda entry: entry.argument, (44, 30, 22, 16, 0), keep="end of a path"),
)
_LAYOUTS: Final = 5


class CallTable(Struct, frozen=True):
    """The layout of the lines."""

    width: int | None
    """The columns of the terminal, or None if there is none, and each text stands whole."""
    when: Callable[[str], str]
    """A record's time as it is shown, 19 characters: `2026-11-21 13:00:00`."""
    zone: str = ""
    """The name of the zone of those times."""
    is_colourful: bool = False
    longest_number: int = 0
    """The width of the widest shown number: numbers are never cut."""

    def header(self) -> str:
        """Return the names of the columns."""
        cells: list[str] = []
        for column, width in self._shown():
            has_room = column.title == "TIME" and self.zone and width > _SHORT_TIME
            cells.append(fit(f"TIME ({self.zone})" if has_room else column.title, width))
        return self._bounded(_GAP.join([*cells, "OUTCOME"]))

    def row(self, entry: LogEntry) -> str:
        """Return one line for a call."""
        cells: list[str] = []
        for column, width in self._shown():
            text = column.value(entry)
            if column.title == "TIME":
                text = self.when(text)[-width:]
            cell = fit(_shortened(text, width, column.keep), width)
            if self.width is None:
                # In a pipe nothing is cut: the reader may be a program that looks for a rule.
                cell = max(cell, printable(text), key=columns)
            cells.append(cell)
        line = self._bounded(_GAP.join([*cells, printable(entry.outcome)]))
        return self._coloured(line, entry) if self.is_colourful else line

    def _shown(self) -> list[tuple[_Column, int]]:
        layout = self._layout()
        shown = [(one, one.widths[layout]) for one in _COLUMNS if one.widths[layout]]
        first, width = shown[0]
        return [(first, max(width, self.longest_number)), *shown[1:]]

    def _layout(self) -> int:
        if self.width is None:
            return 0
        for layout in range(_LAYOUTS):
            widths = [one.widths[layout] for one in _COLUMNS if one.widths[layout]]
            if sum(widths) + len(_GAP) * len(widths) + _LEAST_OUTCOME <= self.width:
                return layout
        return _LAYOUTS - 1

    def _bounded(self, line: str) -> str:
        line = line.rstrip()
        if self.width is None or columns(line) <= self.width:
            return line
        return fit(line, self.width).rstrip()

    def _coloured(self, line: str, entry: LogEntry) -> str:
        shades: Mapping[str, str] = COLOURS
        word, shade = f"{_GAP}{entry.decision}", shades.get(entry.decision, "")
        return line.replace(word, f"{_GAP}{shade}{entry.decision}{PLAIN}", 1) if shade else line


def _shortened(text: str, width: int, keep: str) -> str:
    """Return the part of a text that fits, if the text is too wide."""
    if keep == "beginning" or columns(printable(text)) <= width:
        return text
    if keep == "last part":
        return text.rpartition("/")[2]
    if not text.startswith(("/", "~/")):
        return text
    kept = text[1 - width :]
    # Cut before a whole name: a part of a name would look like another name.
    return f"…{kept[kept.find('/') :] if '/' in kept else kept}"


# --- selection


REFUSALS: Final = frozenset({"DENIED", "REFUSED", "HELD"})
"""The decisions after which no server got the call."""


class Selection(Struct, frozen=True, kw_only=True):
    """The conditions of a selection; an empty one holds for every call."""

    since: datetime | None = None
    """Aware: the call ended at this time or later."""
    until: datetime | None = None
    """Aware: the call ended before this time."""
    decisions: frozenset[str] = frozenset()
    """Words of the column DECISION: `allowed`, `approved`, `DENIED`, `REFUSED`, `HELD`, `left`."""
    by: str = ""
    """A word of the column BY, such as `person`."""
    tool: str = ""
    """`SERVER/TOOL`, with `*` for any characters; without a slash, a tool of any server."""
    server: str = ""
    client: str = ""
    """The beginning of the client's name."""
    session: str = ""
    """The beginning of the session's id."""
    text: str = ""
    """Stands in the tool, the rule, the main argument or the outcome; capitals do not count."""

    def matches(self, entry: LogEntry) -> bool:
        """Return whether the call of this record is chosen."""
        return (
            self._is_in_time(entry)
            and (not self.decisions or entry.decision in self.decisions)
            and (not self.by or entry.by == self.by)
            and self._is_of(entry)
            and entry.client.startswith(self.client)
            and entry.session.startswith(self.session)
            and (not self.text or self._holds(entry, self.text.casefold()))
        )

    def _is_in_time(self, entry: LogEntry) -> bool:
        if self.since is None and self.until is None:
            return True
        ended = ended_at(entry)
        return (self.since is None or ended >= self.since.timestamp()) and (
            self.until is None or ended < self.until.timestamp()
        )

    def _is_of(self, entry: LogEntry) -> bool:
        if self.server and entry.tool.partition("/")[0] != self.server:
            return False
        if not self.tool:
            return True
        pattern = self.tool if "/" in self.tool else f"*/{self.tool}"
        return fnmatchcase(entry.tool, pattern)

    @staticmethod
    def _holds(entry: LogEntry, text: str) -> bool:
        told = (entry.tool, entry.rule, entry.argument, entry.outcome)
        return any(text in one.casefold() for one in told)


# --- statistics: names are counted up to a limit, durations in classes ----------------------------

_MOST_NAMES: Final = 1000
_OTHERS: Final = "(others)"
_COUNTED: Final = "(counted only)"
_UNKNOWN: Final = "(not known)"
_CLASSES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
"""Upper bounds of the classes of durations, in milliseconds."""


class Statistics:
    """Counts entries one by one."""

    def __init__(self) -> None:
        self.calls = 0
        self.first = ""
        self.last = ""
        self.decisions: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.deciders: Counter[str] = Counter()
        self.clients: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self._open: set[str] = set()
        self._durations: Counter[int] = Counter()

    def add(self, fields: Mapping[str, object]) -> None:
        """Count one record; an intent counts only if no outcome follows."""
        if fields.get("phase") == "intent":
            self._open.add(str(fields.get("requestId")))
        else:
            self._add_outcome(entry_of(fields))

    def _add_outcome(self, entry: LogEntry) -> None:
        self._open.discard(entry.request_id)
        self.calls += entry.calls
        # Several logs are read one after the other.
        self.first = min(self.first or entry.time, entry.time)
        self.last = max(self.last, entry.time)
        self.decisions[entry.decision] += entry.calls
        self.results[entry.status] += entry.calls
        _count(self.deciders, entry.by, entry.calls)
        _count(self.tools, entry.tool if entry.calls == 1 else _COUNTED, entry.calls)
        _count(self.rules, entry.rule, entry.calls)
        _count(self.clients, entry.client or _UNKNOWN, entry.calls)
        if entry.status != "denied":
            self._durations[_class_of(entry.duration_ms)] += 1

    @property
    def unfinished(self) -> int:
        """Intents without outcome."""
        return len(self._open)

    def duration_below(self, share: float) -> int | None:
        """Return an upper bound of this share's durations in milliseconds, or None if longer.

        Args:
            share: 0.5 for the median.
        """
        wanted = share * self._durations.total()
        counted = 0
        for bound in _CLASSES:
            counted += self._durations[bound]
            if counted and counted >= wanted:
                return bound
        return None


def _count(counter: Counter[str], name: str, calls: int) -> None:
    counter[name if name in counter or len(counter) < _MOST_NAMES else _OTHERS] += calls


def _class_of(duration_ms: int) -> int:
    return next((bound for bound in _CLASSES if duration_ms <= bound), 0)
