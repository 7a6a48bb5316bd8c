"""No regular expression takes seconds over a text that somebody made for it.

An agent and a server write texts that patterns are held against before anything is decided. A
pattern that can read a part in two ways has as many readings of `n` parts as 2 to the `n`; three
repeats that can share a run of blanks have as many as its length to the third.
"""

import re
import signal
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_parse

from ironcurtain_proxy.model.values import _Pattern as LazyPattern

PACKAGE: Final = Path(__file__).parents[2] / "ironcurtain_proxy"
SECONDS: Final = 0.4
"""Of the processor. A quadratic pattern takes a tenth of it, and a cubic one twice as much."""
MANY: Final = 1000
FEW: Final = 26
"""Parts in a row: with two readings of each, 2 to the 26 steps."""
OTHER: Final = "\0"
METHODS: Final = r"\.(search|match|fullmatch|finditer|findall|subn?|split)\b"
OF_THE_OPERATOR: Final = (
    "cli/arguments.py",
    "config/clients/",
    "config/policy/",
    "model/condition_reading.py",
)
"""Files whose patterns see texts of the operator and of this program alone."""

Pattern = re.Pattern[str] | re.Pattern[bytes]


@cache
def modules() -> dict[str, str]:
    return {
        str(file.relative_to(PACKAGE)): file.read_text("utf-8") for file in PACKAGE.rglob("*.py")
    }


def patterns() -> list[tuple[str, Pattern, frozenset[str]]]:
    """Each pattern that has a name in a module, with the methods that it is used by."""
    found = []
    for file, text in modules().items():
        is_ours = "re.compile" in text or "lazy(" in text
        if not is_ours or file.startswith(OF_THE_OPERATOR):
            continue
        name = f"ironcurtain_proxy.{file.removesuffix('.py').replace('/', '.')}"
        module = __import__(name.removesuffix(".__init__"), fromlist=["x"])
        for key, value in vars(module).items():
            own = re.search(rf"(?m)^{key}\b[^=\n]*= *(?:re\.compile|lazy)\b", text)
            if own is not None and (pattern := compiled(value)) is not None:
                found.append((f"{file}:{key}", pattern, used_by(file, key)))
    return found


def compiled(value: object) -> Pattern | None:
    """The pattern that a name stands for, also where it is compiled at its first use."""
    if isinstance(value, LazyPattern):
        return re.compile(value.pattern, value._flags)
    return value if isinstance(value, re.Pattern) else None


def used_by(file: str, name: str) -> frozenset[str]:
    places = [modules()[file]] if name.startswith("_") else [*modules().values()]
    said = {one for text in places for one in re.findall(rf"\b{name}{METHODS}", text)}
    short = {one if one in {"match", "fullmatch"} else "search" for one in said}
    return frozenset(short or {"fullmatch"})


@dataclass(frozen=True)
class Part:
    """A part of a pattern: characters that it matches, or parts of which one or all match."""

    characters: str = ""
    ways: tuple[tuple["Part", ...], ...] = ()
    least: int = 1
    most: int = 1


def read(node: object) -> tuple[Part, ...]:
    # A `SubPattern` has `__getitem__` alone.
    assert isinstance(node, sre_parse.SubPattern)
    return tuple([_read(str(kind), said) for kind, said in node.data])


def _read(kind: str, said: object) -> Part:
    match kind, said:
        case "LITERAL", int(code):
            return Part(chr(code))
        case ("ANY", _) | ("NOT_LITERAL", _):
            return Part("aZ")
        case "IN", list(members):
            return Part(_characters(members))
        case _:
            return _read_group(kind, said)


def _read_group(kind: str, said: object) -> Part:
    match kind, said:
        case (("MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT"), (int(least), int(most), inside)):
            return Part("", (read(inside),), least, most)
        case "BRANCH", (_, list(ways)):
            return Part("", tuple([read(one) for one in ways]))
        case ("SUBPATTERN", (_, _, _, inside)) | ("ATOMIC_GROUP", inside):
            return Part("", (read(inside),))
        case (("ASSERT" | "ASSERT_NOT"), (_, inside)):
            return Part("", (read(inside),), 0, 0)
        case _:
            return Part()


def _characters(members: Sequence[tuple[object, object]]) -> str:
    found = ""
    for kind, said in members:
        match str(kind), said:
            case "LITERAL", int(code):
                found += chr(code)
            case "RANGE", (int(code), int()):
                found += chr(code)
            case "CATEGORY", _:
                found += " " if "SPACE" in str(said) else "1" if "DIGIT" in str(said) else "a"
            case _:
                pass
    if any(str(kind) == "NEGATE" for kind, _ in members):
        return "".join([one for one in "a1 -/xZ" if one not in found]) or "q"
    return found


def sample(parts: Sequence[Part], pick: int) -> str:
    """A text that parts of a pattern match, mostly."""
    found = ""
    for part in parts:
        times = max(part.least, min(part.most, (1, 0, 2)[pick % 3])) if part.ways else 1
        one = part.characters[pick % len(part.characters)] if part.characters else ""
        found += (sample(part.ways[pick % len(part.ways)], pick) if part.ways else one) * times
    return found


def repeats(parts: Sequence[Part], before: str = "") -> Iterator[tuple[str, str]]:
    """Each part that may be repeated, behind a text that leads to it."""
    for place, part in enumerate(parts):
        lead = before + sample(parts[:place], 0)
        if part.most > MANY:
            for pick in range(24):
                yield lead, sample(part.ways[0], pick)
            yield lead + sample([part], 0), sample(part.ways[0], 0)
        for one in part.ways:
            yield from repeats(one, lead)


def texts_against(pattern: Pattern) -> Iterator[str]:
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin1")
    flags = pattern.flags if isinstance(pattern.pattern, str) else pattern.flags | re.ASCII
    parts = {one for one in repeats(read(sre_parse.parse(text, flags))) if one[1]}
    leads = sorted({lead for lead, _ in parts})[:6]
    letters = sorted({part[:1] for _, part in parts})[:8]
    parts |= set(product(leads, [*letters, " "]))
    for lead, part in sorted(parts):
        for end in ("", OTHER):
            yield lead + part * FEW + end
            yield lead + part * (MANY // len(part)) + end


class TooLongError(Exception):
    """A pattern took longer than it may."""


def end_it(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError


def slow_text(pattern: Pattern, methods: Sequence[str]) -> str | None:
    """The beginning of a text over which a pattern takes too long, or None."""
    for text in texts_against(pattern):
        given = text.encode() if isinstance(pattern.pattern, bytes) else text
        for method in methods:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                getattr(pattern, method)(given)
            except TooLongError:
                return f"{method}: {text[:60]!r} of {len(text)} characters"
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


@pytest.fixture(autouse=True)
def timer() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, end_it)
    yield
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (r"(?:\s|/\*(?s:.)*?\*/)*SELECT", "a comment that may end later"),
        (r'"(?:[^"$]|\$\w+)*"', "a letter of a name, or of the text"),
        (r"SHOW\s+[\w\s]*;?\s*", "three that share the blanks"),
    ],
)
def test_the_search_finds_what_once_stood_here(written: str, why: str) -> None:
    assert slow_text(re.compile(written), ("fullmatch",)), why


def test_no_pattern_takes_seconds_over_a_text_that_was_made_for_it() -> None:
    known = patterns()
    assert len(known) > 250, "the patterns are not found any more"
    slow = {name: found for name, one, how in known if (found := slow_text(one, sorted(how)))}
    assert slow == {}
