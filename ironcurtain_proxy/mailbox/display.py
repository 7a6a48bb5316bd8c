"""A request as text for a person.

Everything in a request may come from an agent. Characters that are invisible, move the cursor or
change the direction of writing are shown as escapes, and nothing is cut.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

import orjson
from msgspec import Struct

from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, seconds_left
from ironcurtain_proxy.mailbox.messages import Request
from ironcurtain_proxy.model.annotation import CAPABILITIES
from ironcurtain_proxy.model.escalation import fold, folded, is_invisible
from ironcurtain_proxy.model.values import Json

_ASKING: Final = MappingProxyType(
    {
        "secrets": "secrets",
        "target": "targets",
        "policy": "policy",
        "capability": "profile",
        "tool-policy": "approval mode",
    }
)
"""The sources of reasons, the worst first: a secret that leaves cannot be taken back."""
_FROM_TO: Final = (
    ("source", "destination"),
    ("from", "to"),
    ("old_path", "new_path"),
    ("oldPath", "newPath"),
)
_MAIN: Final = ("command", "path", "paths", "file_path", "url", "uri", "repo_path", "query")
"""The argument that tells most about a call, the most telling first."""
_LONGEST: Final = 1000
"""Characters of an argument in the summary. All of it stands below, once."""
_MINUTE: Final = 60
_MARGIN: Final = 25
_NARROW_MARGIN: Final = 16
_NARROW: Final = 80


class Field(Struct, frozen=True):
    """A named part of a request. `lines` can be printed safely and are never empty."""

    name: str
    lines: tuple[str, ...]
    is_prose: bool = False
    """Whether the lines are sentences of the proxy, which break between words."""


def visible(text: str) -> str:
    r"""Write a text with every invisible character written as an escape such as `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([_escape(char) if is_invisible(char) else char for char in text])


def _escape(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code < 0x100:  # noqa: PLR2004  what two digits can say
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004  four digits


def reasons_of(one: PendingRequest) -> list[Field]:
    """Return a question's worst reason, what an approval opens, and what else was found out."""
    request = one.request
    fields = [Field("why", _why(request)[: _most_read(request)], is_prose=True)]
    if request.asking:
        named = [_named(name) for name in dict.fromkeys(request.asking)]
        fields.append(Field("allows", (visible(f"{', '.join(named)}: for this session"),)))
    return fields + _named_fields(request.context)


def also_of(one: PendingRequest) -> list[Field]:
    """Return the reasons after the worst one, which need not be read before an answer."""
    rest = _why(one.request)[_most_read(one.request) :]
    return [Field("also", rest, is_prose=True)] if rest else []


def _most_read(request: Request) -> int:
    """Return how many reasons are read first: a mode asks about many calls, and says nothing."""
    return len(request.told) + any(one[0] != "tool-policy" for one in request.why) or 1


def metadata_of(one: PendingRequest) -> list[Field]:
    """Return the names under which the call and its question are recorded."""
    request = one.request
    return _named_fields(
        (
            ("rule", request.rule),
            ("origin", ", ".join(request.origins)),
            ("as", request.exposed_name),
            ("session", one.session),
            ("reviewer", request.reviewer),
            ("needs", request.signatures),
            ("risk", request.risk),
            ("machine", request.machine),
            ("id", one.id),
        )
    )


def _named_fields(named: Sequence[tuple[str, str]]) -> list[Field]:
    return [Field(visible(name), (visible(text),), is_prose=True) for name, text in named if text]


def _why(request: Request) -> tuple[str, ...]:
    """Return what the call does, then the reasons, the worst first, each with its origin."""
    if not request.told and len(request.why) < 2:  # noqa: PLR2004  nothing to tell apart
        return (visible(request.reason),)
    order = {name: at for at, name in enumerate(_ASKING)}
    why = sorted(request.why, key=lambda one: order.get(one[0], len(order)))
    reasons = [f"{_ASKING.get(origin, origin)}: {reason}" for origin, reason in why]
    return tuple([visible(text) for text in (*request.told, *reasons)])


def _named(capability: str) -> str:
    known = CAPABILITIES.get(capability)
    return capability if known is None else f"{known} ({capability})"


def arguments_of(
    one: PendingRequest, prefix: str = "", without: Collection[str] = ()
) -> list[Field]:
    """Return every argument in full, but for those that are shown elsewhere (`without`)."""
    return [
        Field(prefix + visible(name), value_lines(value))
        for name, value in one.request.arguments.items()
        if name not in without
    ]


def value_lines(value: Json) -> tuple[str, ...]:
    """Return the lines of a value: of a text its own lines, of any other value JSON."""
    if isinstance(value, str):
        return tuple([visible(line) for line in value.split("\n")])
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return tuple([visible(line) for line in text.split("\n")])


def remembered(one: PendingRequest) -> Field:
    """Return the candidates that "remember" would remember."""
    shown = [visible(text) for text in one.request.candidates]
    others = [f"{place}: {text}" for place, text in enumerate(shown[1:], 2)]
    return Field("remember", (*shown[:1], *others) or ("nothing",), is_prose=True)


def why_alone(one: PendingRequest) -> str:
    """Return why "approve all" leaves a request out, on one line."""
    return visible("; ".join(one.request.alone))


def time_left(one: PendingRequest, now: datetime) -> str:
    """Return the time left, such as `4:59`; empty if the request names no end."""
    left = seconds_left(one.request, now)
    if left is None:
        return ""
    seconds = max(0, round(left))
    return f"{seconds // _MINUTE}:{seconds % _MINUTE:02}"


def summary(one: PendingRequest) -> str:
    """Return the call on one line: the tool, and its main argument.

    `files/move_file a.py → b.py`, `files/read_files paths: 4, /etc/passwd …`,
    `shell/run command=make test`.
    """
    return " ".join([called(one), *_about(one.request)])


def called(one: PendingRequest) -> str:
    """Return server and tool. A server chose the tool's name, so that no screen may cut it."""
    return visible(f"{one.request.server}/{one.request.tool}")


def _about(request: Request) -> list[str]:
    given = request.arguments
    for old, new in _FROM_TO:
        source, target = given.get(old), given.get(new)
        if isinstance(source, str) and isinstance(target, str):
            return [f"{_first_line(source)} → {_first_line(target)}"]
    name = next((name for name in _MAIN if name in given), next(iter(given), None))
    if name is None:
        return []
    value = given[name]
    if isinstance(value, list) and len(value) > 1:
        return [f"{visible(name)}: {len(value)}, {_first_line(value[0])} …"]
    return [f"{visible(name)}={_first_line(value)}"]


def _first_line(value: Json) -> str:
    first, *rest = value_lines(value) if isinstance(value, str) else (_compact(value),)
    return f"{first[:_LONGEST]} …" if rest or len(first) > _LONGEST else first


def _compact(value: Json) -> str:
    return visible(orjson.dumps(value).decode())


def banner(
    one: PendingRequest,
    number: int,
    now: datetime,
    diff: Sequence[str] = (),
    width: int | None = None,
) -> list[str]:
    """Show a request in full, for a terminal that only prints, of `width` columns if known."""
    left = time_left(one, now)
    headline = f"[{number}] {summary(one)}" + (f"  ({left} left)" if left else "")
    fields = [
        *arguments_of(one, "argument "),
        *([Field("changes", tuple(diff))] if diff else []),
        *reasons_of(one),
        *also_of(one),
        remembered(one),
        *metadata_of(one),
    ]
    return folded(headline, width) + [row for field in fields for row in rows(field, width)]


def margin(width: int | None) -> int:
    """Return columns before the text of a field, on a screen of so many columns."""
    return _NARROW_MARGIN if width is not None and width < _NARROW else _MARGIN


def rows(field: Field, width: int | None) -> list[str]:
    """Show a field: `|` begins a further line, `:` the rest of a long line.

    Nothing begins in the first columns but a name: else an argument that is wide enough could
    write a field of its own.
    """
    found: list[str] = []
    before = margin(width)
    room = before - 7
    if len(field.name) > room:
        found = [f"    {part}" for part in fold(field.name, None if width is None else width - 4)]
    for line in field.lines:
        wide = None if width is None else width - before
        for place, part in enumerate(fold(line, wide, at_blanks=field.is_prose)):
            mark = ":" if place else "|" if found else " "
            found.append(f"    {'' if found else field.name:<{room}} {mark} {part}")
    return found
