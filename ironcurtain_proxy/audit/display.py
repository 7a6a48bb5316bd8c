"""Records in words for a person. Pure: no I/O, no clock, no log.

Everything in a record may come from an agent or a server: what could move a terminal's cursor or
turn the direction of writing is shown as an escape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

_MAIN_ARGUMENTS: Final = (
    "path",
    "file_path",
    "source",
    "url",
    "uri",
    "repo_path",
    "command",
    "query",
    "name",
)
"""The argument that tells most about a call, the most telling first."""

COLOURS: Final[Mapping[str, str]] = {
    "allowed": "\x1b[32m",
    "approved": "\x1b[36m",
    "DENIED": "\x1b[31m",
    "REFUSED": "\x1b[33m",
    "ERROR": "\x1b[35m",
}
PLAIN: Final = "\x1b[0m"

_WIDTHS: Final = (19, 9, 28, 26, 44)
HEADER: Final = ("TIME (UTC)", "DECISION", "SERVER/TOOL", "RULE", "ARGUMENT", "OUTCOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log as a person sees it."""

    seq: int | None
    time: str
    request_id: str
    is_intent: bool
    decision: str
    """`allowed`, `approved`, `DENIED` or `REFUSED`."""
    tool: str
    rule: str
    argument: str
    outcome: str
    status: str
    """The result's; empty for an intent."""
    duration_ms: int


def entry_of(fields: Mapping[str, object]) -> Entry:
    """Read a record. What it lacks is shown as empty: it may be another program's."""
    decision = _mapping(fields.get("policyDecision"))
    result = _mapping(fields.get("result"))
    status = _text(result.get("status"))
    seq, duration = fields.get("seq"), fields.get("durationMs")
    return Entry(
        seq=seq if isinstance(seq, int) else None,
        time=_text(fields.get("timestamp"))[:19].replace("T", " "),
        request_id=_text(fields.get("requestId")),
        is_intent=fields.get("phase") == "intent",
        decision=_decision(decision, _text(fields.get("escalationResult")), status),
        tool=f"{_text(fields.get('serverName'))}/{_text(fields.get('toolName'))}",
        rule=_text(decision.get("rule")),
        argument=_argument(_mapping(fields.get("arguments"))),
        outcome=_outcome(fields, decision, result),
        status=status,
        duration_ms=duration if isinstance(duration, int) else 0,
    )


def row(entry: Entry, *, colour: bool = False) -> str:
    """One aligned line a call."""
    cells = (entry.time, entry.decision, entry.tool, entry.rule, entry.argument)
    fitted = [fit(cell, width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    if colour:
        shade = COLOURS.get(entry.decision, PLAIN)
        fitted[1] = f"{shade}{fitted[1]}{PLAIN}"
    return "  ".join([*fitted, printable(entry.outcome)]).rstrip()


def header() -> str:
    """The names of the columns."""
    fitted = [fit(cell, width) for cell, width in zip(HEADER, _WIDTHS, strict=False)]
    return "  ".join([*fitted, HEADER[-1]])


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
    if text.isprintable():
        return text
    return "".join(
        [char if char.isprintable() else char.encode("unicode_escape").decode() for char in text]
    )


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` columns, an ellipsis where it was cut."""
    shown = printable(text)
    return shown.ljust(width) if len(shown) <= width else f"{shown[: width - 1]}…"


def _decision(decision: Mapping[str, object], settled: str, status: str) -> str:
    match _text(decision.get("status")), settled:
        case "escalate", "approved":
            return "approved"
        case "escalate", _:
            return "REFUSED"
        case "allow", _ if status != "denied":
            return "approved" if settled == "approved" else "allowed"
        case _:
            return "DENIED"


def _argument(arguments: Mapping[str, object]) -> str:
    for name in (*_MAIN_ARGUMENTS, *arguments):
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and isinstance(value[0], str):
            return ", ".join([item for item in value if isinstance(item, str)])
    return ""


def _outcome(
    fields: Mapping[str, object], decision: Mapping[str, object], result: Mapping[str, object]
) -> str:
    duration = fields.get("durationMs")
    match _text(result.get("status")):
        case "success":
            return f"ok, {duration} ms"
        case "error":
            return f"error, {duration} ms: {_short(_text(result.get('error')))}"
        case "denied":
            return _short(_text(decision.get("reason")) or _text(result.get("error")))
        case _:
            return "no outcome recorded"


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


_SHORT: Final = 120


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
