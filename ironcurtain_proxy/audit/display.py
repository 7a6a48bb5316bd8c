"""Records as text for people.

Any part of a record can come from an agent or a server. Characters that move a terminal's cursor
or change the direction of writing are shown as escapes.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never, get_args

import orjson

from ironcurtain_proxy.model.decider import (
    Contained,
    DeciderWord,
    Engine,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    of_record,
)
from ironcurtain_proxy.model.question import is_invisible
from ironcurtain_proxy.model.vocabulary import word_list

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
}
PLAIN: Final = "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
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
    """`allowed`, `approved`, `DENIED`, `REFUSED` (nobody approved it), or `HELD` (it waits)."""
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


def entry_of(fields: Mapping[str, object], process: str = "") -> LogEntry:
    """Read a record. Missing fields are empty: the record can be another program's.

    Args:
        fields: the record.
        process: the process of its log, where that is another log than the one asked for.
    """
    decision = _mapping(fields.get("policyDecision"))
    result = _mapping(fields.get("result"))
    seq, waited = _integer(fields.get("seq")), _integer(fields.get("waitedMs")) or 0
    total = _integer(fields.get("durationMs")) or 0
    refused_by = _text(fields.get("refusedBy"))
    return LogEntry(
        number=number_of(seq, process),
        time=_text(fields.get("timestamp")),
        request_id=_text(fields.get("requestId")),
        session=_text(fields.get("session")),
        client=_text(fields.get("client")),
        is_intent=fields.get("phase") == "intent",
        decision=_decision(fields, decision, _text(result.get("status"))),
        by=_who(_text(fields.get("decidedBy")), refused_by, _text(fields.get("refusalRule"))),
        tool=f"{_text(fields.get('serverName'))}/{_text(fields.get('toolName'))}",
        rule=_text(fields.get("refusalRule")) or _text(decision.get("rule")),
        argument=_argument(_mapping(fields.get("arguments"))),
        outcome=_outcome(fields, decision, result, waited),
        status=_text(result.get("status")),
        calls=(_integer(fields.get("count")) or 1) if fields.get("phase") == "counted" else 1,
        duration_ms=max(0, total - waited),
        waited_ms=waited,
    )


def number_of(seq: int | None, process: str = "") -> str:
    """The number of a line: `17`, or `4711:17` in the log of process 4711."""
    if seq is None:
        return ""
    return f"{process}:{seq}" if process else str(seq)


def arrived_at(entry: LogEntry) -> float:
    """The time of a call's arrival, in seconds since 1970; 0 if the record does not say."""
    try:
        arrived = datetime.fromisoformat(entry.time)
    except ValueError:
        return 0.0
    return 0.0 if arrived.tzinfo is None else arrived.timestamp()


def ended_at(entry: LogEntry) -> float:
    """The time of a call's end, in seconds since 1970; 0 if the record does not say."""
    arrived = arrived_at(entry)
    return arrived + (entry.duration_ms + entry.waited_ms) / 1000 if arrived else 0.0


def details(fields: Mapping[str, object]) -> list[str]:
    """A whole record, one field a line."""
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
    """`text` with everything that is not a visible character, or a blank, escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        [char.encode("unicode_escape").decode() if is_invisible(char) else char for char in text]
    )


def columns(text: str) -> int:
    """The columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum([_columns_of(char) for char in text])


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` columns, an ellipsis where it was cut."""
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
    settled, by = _text(fields.get("escalationResult")), _text(fields.get("refusedBy"))
    if status == "denied" and by == "held":
        return "HELD"
    if status == "denied" and by in _BY_THE_KERNEL:
        return "DENIED"
    match _text(decision.get("status")), settled:
        case "escalate", "approved":
            return "approved"
        case "escalate", _:
            return "REFUSED"
        case "allow", _ if status != "denied":
            return "approved" if settled == "approved" else "allowed"
        case _:
            return "REFUSED" if settled == "denied" and by in _BY_REVIEWERS else "DENIED"


def _who(decided_by: str, refused_by: str, refusal_rule: str) -> str:
    if refused_by in {"held", "no-reviewer"}:
        return "nobody"
    if refused_by in _BY_THE_KERNEL and decided_by == "kernel":
        return refusal_rule if refusal_rule in {"sandbox", "breaker"} else shown_decider("kernel")
    return shown_decider(decided_by)


def shown_decider(decided_by: str) -> str:
    """The word of the column BY for a `decidedBy` of a record: `person` for `human`."""
    decider = of_record(decided_by)
    match decider:
        case None:
            return decided_by
        case Program(name=name):
            # A reviewer's name that is the word of another decider is not shown alone.
            return decided_by if name in _OTHER_WORDS or ":" in name else name
        case Person():
            return "person"
        case ProxyItself():
            return "policy"
        case Nobody():
            return "nobody"
        case LlmApprover() | Engine() | Grants() | Contained():
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
    match _text(result.get("status")):
        case "success":
            return f"ok, {ran}{waiting}"
        case "error":
            return f"error, {ran}{waiting}: {_short(_text(result.get('error')))}"
        case "denied":
            return f"{_short(_why(fields, decision, result))}{waiting}"
        case _:
            return "no outcome recorded"


def _why(
    fields: Mapping[str, object], decision: Mapping[str, object], result: Mapping[str, object]
) -> str:
    """The reviewer's words, and the reason in the agent's answer."""
    reason, error = _text(decision.get("reason")), _text(result.get("error"))
    if "refusalRule" in fields:
        reason = error or reason
    note = _text(fields.get("note"))
    return f'"{note}": {reason or error}' if note else reason or error


def shown_time(milliseconds: int) -> str:
    """A duration: `3 ms`, `1.2 s`, `41 s`."""
    if milliseconds < 1000:  # noqa: PLR2004  a second
        return f"{milliseconds} ms"
    return f"{milliseconds / 1000:.3g} s"


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


_SHORT: Final = 120


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
