"""The text of an open question for a person.

Names and arguments come from an agent. Invisible characters and those that change how their
neighbours are displayed (control, bidirectional, zero-width, filler characters, odd spaces) are
shown as escapes. Every argument stands on one line of its own, so that none can imitate the
proxy's words.
"""

from collections.abc import Mapping
from typing import Final
from unicodedata import east_asian_width

from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.json import Json

MAX_TEXT: Final = 20_000
"""The limit of characters for all arguments together."""

MAX_DEPTH: Final = 64
"""The nesting depth that is shown. Python's own limit is a few hundred."""

_NARROWEST: Final = 20
_GOES_ON: Final = "      : "

_BLANK: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x115F, 0x1160),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180F),  # Mongolian variation selectors
        (0x2800, 0x2800),  # Braille blank
        (0x3164, 0x3164),  # Hangul filler
        (0xFE00, 0xFE0F),  # variation selectors
        (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
        (0x13441, 0x13442),  # Egyptian blanks
        (0x16FE4, 0x16FE4),  # Khitan filler
        (0x1D159, 0x1D159),  # musical null notehead
        (0xE0100, 0xE01EF),  # variation selectors, where text can be hidden
    )
    for code in range(first, last + 1)
)
"""Characters that are invisible although their category is letter or mark."""


_PLAIN: Final = frozenset("\n\r\t\N{NO-BREAK SPACE}\N{VARIATION SELECTOR-16}\N{ZERO WIDTH JOINER}")
"""Characters that ordinary texts hold; the last two are parts of emoji."""


def is_hidden(character: str) -> bool:
    """Whether a character of a text of several lines is invisible or misleading."""
    return character not in _PLAIN and is_invisible(character)


def is_invisible(character: str) -> bool:
    """Whether a character is invisible, or changes how its neighbours are displayed."""
    return not character.isprintable() or character in _BLANK


def visible(text: str) -> str:
    """The text with every invisible or misleading character as an escape."""
    if text.isascii() and text.isprintable():
        return text
    # Replace per distinct character: texts are long and use few different characters.
    hidden = [found for found in set(text) if is_invisible(found)]
    return text.translate({ord(found): _escape(found) for found in hidden}) if hidden else text


def fold(line: str, width: int | None) -> list[str]:
    """A line in parts of at most so many columns, at least 20; never empty."""
    if width is None or len(line) * 2 <= width:
        return [line]
    limit = max(width, _NARROWEST)
    parts: list[str] = []
    start = columns = 0
    for place, char in enumerate(line):
        taken = 2 if east_asian_width(char) in "WF" else 1
        if columns + taken > limit:
            parts.append(line[start:place])
            start, columns = place, 0
        columns += taken
    return [*parts, line[start:]]


def folded(line: str, width: int | None) -> list[str]:
    """A line in parts, of which all but the first begin with a mark that no other line begins with.

    Else a terminal begins a line of its own with any words of the agent.
    """
    first, *_ = fold(line, width)
    rest = line[len(first) :]
    parts = fold(rest, None if width is None else width - len(_GOES_ON)) if rest else []
    return [first, *[f"{_GOES_ON}{part}" for part in parts]]


def as_json(value: Json, depth: int = MAX_DEPTH) -> str:
    """A value as JSON on one line with visible characters, down to a maximum depth."""
    if depth == 0:
        return "[NESTED TOO DEEPLY TO BE SHOWN]"
    match value:
        case None | bool():
            return _WORDS[value]
        case str():
            return '"' + visible(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
        case list():
            return f"[{', '.join([as_json(item, depth - 1) for item in value])}]"
        case dict():
            members = [
                f"{as_json(name)}: {as_json(item, depth - 1)}" for name, item in value.items()
            ]
            return "{" + ", ".join(members) + "}"
        case _:
            return repr(value)


def question(escalation: Escalation, *, limit: int = MAX_TEXT) -> tuple[str, ...]:
    """The question, its reasons, the arguments and what would be remembered, one line each.

    Args:
        escalation: the question.
        limit: characters for all arguments together. What is longer is cut in its middle, and the
            line says so.
    """
    ground = escalation.ground
    told = [visible(text) for text in escalation.told]
    by_rule = f"{visible(ground.reason)} (rule {visible(ground.rule)})"
    lines = [
        *told[:1],
        f"May the agent use {visible(escalation.server)}/{visible(escalation.tool)}?",
        *[f"It also does this: {text}" for text in told[1:]],
        f"Why you are asked: {by_rule}",
        *[f"{visible(name)}: {visible(text)}" for name, text in escalation.context],
        *_arguments(escalation.arguments, limit),
        *[
            f'"Remember{place}" means: {visible(found.description)}'
            for place, found in zip(places(escalation), escalation.candidates, strict=True)
        ],
    ]
    return tuple(lines)


def places(escalation: Escalation) -> tuple[str, ...]:
    """The choices of "remember" for each candidate: an empty suffix first, then numbers."""
    count = len(escalation.candidates)
    return tuple(["" if place == 1 else f" {place}" for place in range(1, count + 1)])


def _arguments(arguments: Mapping[str, Json], limit: int) -> list[str]:
    if not arguments:
        return ["Arguments: none"]
    shown = [
        f"  {visible(name)} = "
        + (
            f"[MORE THAN {limit} VALUES, NOT SHOWN]"
            if _is_too_much(value, limit)
            else as_json(value)
        )
        for name, value in arguments.items()
    ]
    if sum(map(len, shown)) > limit:
        each = max(limit // len(shown), 1)
        missing = len(shown) - limit
        shown = [_cut(line, each) for line in shown[:limit]]
        if missing > 0:
            shown.append(f"  [… {missing} ARGUMENTS ARE NOT SHOWN …]")
    return ["Arguments, written by the agent:", *shown]


def _cut(line: str, limit: int) -> str:
    left_out = len(line) - limit
    if left_out <= 0:
        return line
    head = (limit + 1) // 2
    tail = line[len(line) - (limit - head) :] if limit > head else ""
    return f"{line[:head]} [… {left_out} CHARACTERS ARE NOT SHOWN …] {tail}"


def _escape(character: str) -> str:
    code = ord(character)
    plain = f"\\u{code:04x}" if code <= _BASIC_PLANE else f"\\U{code:08x}"
    return _NAMED.get(character, plain)


def _is_too_much(value: Json, limit: int) -> bool:
    """Whether a value holds more elements than a person can read."""
    pending, seen = [value], 0
    while pending and seen <= limit:
        seen += 1
        found = pending.pop()
        if isinstance(found, list):
            pending += found[: limit + 1]
        elif isinstance(found, dict):
            pending += list(found.values())[: limit + 1]
    return seen > limit


_WORDS: Final[Mapping[bool | None, str]] = {None: "null", True: "true", False: "false"}
_NAMED: Final[Mapping[str, str]] = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BASIC_PLANE: Final = 0xFFFF
