"""A small language of regular expressions for paths, matched in linear time. Pure.

What an operator writes here is matched against what an agent names, so
it must not be possible to name a path on which matching takes for ever. Python's own engine goes
back and tries again; this one keeps every possibility at once, as bits of a number.

Understood: letters and signs, `.`, classes (`[^/]`), `* + ? {n,m}` after one of these, and
groups with alternatives (`(src|tests)`), never repeated. Everything else is refused.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ironcurtain_proxy.errors import ConfigurationError

MAX_SUBJECT: Final = 1024
"""Characters of a path or an address; a longer one matches nothing."""
_MAX_PATTERN: Final = 512
_MAX_ITEMS: Final = 512
_MAX_ALTERNATIVES: Final = 64
_MAX_COUNT: Final = 64

_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_COUNT: Final = re.compile(r"\{(\d{1,3})(?:,(\d{0,3}))?\}")
_ESCAPED: Final = re.compile(r"\\(?:[dwsDWS]|[^A-Za-z0-9])")
_AMBIGUOUS_IN_CLASS: Final = ("[", "--", "&&", "||", "~~")


@dataclass(frozen=True, slots=True)
class _Item:
    """One character of the subject: which, and whether it may be left out or come again."""

    atom: str
    optional: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[_Item, ...]

    def fullmatch(self, subject: str) -> bool:
        optional = sum(1 << i for i, item in enumerate(self.items) if item.optional)
        repeats = sum(1 << i for i, item in enumerate(self.items) if item.repeats)
        # Bit i: everything before item i is satisfied.
        state = _skip(1, optional)
        # A path is long and its steps are few: each is worked out once.
        steps: dict[tuple[int, str], int] = {}
        for character in subject:
            step = (state, character)
            if step not in steps:
                taken = state & self._accepting(character)
                steps[step] = _skip((taken << 1) | (taken & repeats), optional)
            state = steps[step]
            if not state:
                return False
        return bool(state >> len(self.items) & 1)

    def _accepting(self, character: str) -> int:
        return sum(1 << i for i, item in enumerate(self.items) if _accepts(item.atom, character))


@lru_cache(maxsize=4096)
def _accepts(atom: str, character: str) -> bool:
    return re.fullmatch(atom, character, re.ASCII) is not None


def _skip(state: int, optional: int) -> int:
    while (further := state | ((state & optional) << 1)) != state:
        state = further
    return state


@dataclass(frozen=True, slots=True)
class PathRegex:
    """A compiled pattern."""

    text: str
    _alternatives: tuple[_Sequence, ...]

    def fullmatch(self, subject: str) -> bool:
        """Whether it matches all of a path."""
        if len(subject) > MAX_SUBJECT:
            return False
        return any(sequence.fullmatch(subject) for sequence in self._alternatives)


def compile_path_regex(text: str) -> PathRegex:
    """Read a pattern.

    Raises:
        ConfigurationError: it is too long, or has something in it that is not understood.
    """
    if not text or len(text) > _MAX_PATTERN:
        raise ConfigurationError(f"a path pattern has 1 to {_MAX_PATTERN} characters")
    reader = _Reader(text)
    sequences = reader.alternatives(depth=0)
    return PathRegex(text, tuple([_Sequence(tuple(items)) for items in sequences]))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith("\\$"):
            self._text = self._text[:-1]
        self._at = 0

    def alternatives(self, depth: int) -> list[list[_Item]]:
        """Every way through what stands here, up to the end or a closing bracket."""
        finished: list[list[_Item]] = []
        current: list[list[_Item]] = [[]]
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._take("|"):
                finished += current
                current = [[]]
            elif self._take("("):
                current = _joined(current, self._group(depth + 1))
            else:
                current = _joined(current, [self._repeated()])
        if depth == 0 and self._at < len(self._text):
            raise self._error("a bracket closes that was not opened")
        return finished + current

    def _group(self, depth: int) -> list[list[_Item]]:
        self._take("?:")
        inner = self.alternatives(depth)
        if not self._take(")"):
            raise self._error("a bracket is not closed")
        if self._text[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise self._error("a group cannot be repeated")
        return inner

    def _repeated(self) -> list[_Item]:
        atom = self._atom()
        counted = _COUNT.match(self._text, self._at)
        if counted is not None:
            self._at = counted.end()
            items = self._counted(atom, counted)
        elif self._take("*"):
            items = [_Item(atom, optional=True, repeats=True)]
        elif self._take("+"):
            items = [_Item(atom, repeats=True)]
        else:
            items = [_Item(atom, optional=self._take("?"))]
        if counted is not None or items[0] != _Item(atom):
            self._not_again()
        return items

    def _not_again(self) -> None:
        # `a*+` and `a*?` mean something else again elsewhere.
        if self._text[self._at : self._at + 1] in ("*", "+", "?", "{"):
            raise self._error("a repetition cannot be repeated")

    def _counted(self, atom: str, counted: re.Match[str]) -> list[_Item]:
        least = int(counted[1])
        open_ended = counted[2] == ""
        most = int(counted[2]) if counted[2] else least
        if max(least, most) > _MAX_COUNT or most < least:
            raise self._error(f"a count is from 0 to {_MAX_COUNT}, the smaller first")
        items = [_Item(atom)] * least
        if open_ended:
            return [*items, _Item(atom, optional=True, repeats=True)]
        return items + [_Item(atom, optional=True)] * (most - least)

    def _atom(self) -> str:
        here = self._text[self._at]
        if here == "[":
            return self._class()
        if here == "\\":
            return self._matched(_ESCAPED, "this escape is not understood")
        if here in "*+?{}]^$":
            raise self._error(f"{here} must not stand here")
        self._at += 1
        return here if here == "." else re.escape(here)

    def _class(self) -> str:
        found = self._matched(_CLASS, "a class is not closed")
        if any(sign in found[1:] for sign in _AMBIGUOUS_IN_CLASS):
            raise self._error("a class must not have [, --, &&, || or ~~ in it")
        try:
            re.compile(found, re.ASCII)
        except re.error:
            raise self._error("a class that is not understood") from None
        return found

    def _matched(self, expression: re.Pattern[str], otherwise: str) -> str:
        found = expression.match(self._text, self._at)
        if found is None:
            raise self._error(otherwise)
        self._at = found.end()
        return found[0]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _error(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"path pattern, character {self._at + 1}: {what}")


def _joined(heads: list[list[_Item]], tails: list[list[_Item]]) -> list[list[_Item]]:
    if len(heads) * len(tails) > _MAX_ALTERNATIVES:
        raise ConfigurationError(f"a path pattern has at most {_MAX_ALTERNATIVES} alternatives")
    joined = [head + tail for head in heads for tail in tails]
    if any(len(items) > _MAX_ITEMS for items in joined):
        raise ConfigurationError(
            f"a path pattern matches at most {_MAX_ITEMS} characters one by one"
        )
    return joined
