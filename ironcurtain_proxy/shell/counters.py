"""Arithmetic that runs nothing: of numbers, and of variables that only hold numbers.

A shell evaluates a name in arithmetic as an expression: with `i='a[$(id)]'`, `((i++))` runs `id`.
So a name counts as a number only where its text gives it nothing else: its first mention is
`i=0`, and every other one is such an assignment, or stands in arithmetic of numbers. A text with a
command that can set a variable by a name which is not written here (`read $x`) has no such names.
"""

import re
from typing import Final

_ARITHMETIC: Final = re.compile(rb"\(\(((?:[ \t0-9A-Za-z_+*/%<>=!&|;-]|\$(?=[A-Za-z_]))*)\)\)")
_NAME: Final = re.compile(rb"[A-Za-z_]\w*")
_NUMBER: Final = re.compile(rb"=[0-9]+(?![^\s;&|)])")
_SETS: Final = re.compile(
    rb"(?<![\w./-])(?:read|mapfile|readarray|printf|getopts|declare|typeset|local|export|readonly"
    rb"|let|eval|source|unset|wait|set|exec|trap|coproc|select|\.)(?![\w./-])"
)
"""Programs that set a variable by a name that need not be written."""
_QUOTES: Final = re.compile(rb"\\\n|['\"\\]")
_BEFORE: Final = re.compile(rb"(?:[^'\"\\(){}&|<`]*[;\n])?[ \t]*")
"""Commands in a row, none of which decides whether the next one runs."""
_DECIDES: Final = re.compile(rb"\b(?:if|while|until|for|case|select|exit|return|break|continue)\b")
_ALONE: Final = re.compile(rb"=[0-9]+[ \t]*(?:[;\n]|&&|\Z)")
_LOOP: Final = re.compile(rb"(?:[^'\"\\(){}&|<`]*[;\n])?[ \t]*for[ \t]*\(\([ \t]*")
_END: Final = frozenset(b" \t\n;|&)")
C_FOR: Final = re.compile(rb"for[ \t]*(\(\([^()]*\)\))[ \t]*;?\s*\Z")


def counted(arithmetic: bytes, source: bytes) -> tuple[str, ...] | None:
    """Return the names in arithmetic of numbers, which it may change, or None if it is no such.

    Args:
        arithmetic: begins with `((`; what follows its `))` does not count.
        source: the text that it stands in.
    """
    found = _ARITHMETIC.match(arithmetic)
    if found is None:
        return None
    names = set(_NAME.findall(found[1]))
    if names and not names <= numbers(source):
        return None
    return tuple([name.decode() for name in sorted(names)])


def numbers(source: bytes) -> frozenset[bytes]:
    """Return the names that are only given numbers in a text."""
    if b"$'" in source or _SETS.search(_QUOTES.sub(b"", source)):
        return frozenset()
    spans = [
        (one.start(1), one.end(1), {*_NAME.findall(one[1])}) for one in _ARITHMETIC.finditer(source)
    ]
    known = frozenset[bytes]().union(*[names for _, _, names in spans])
    while True:
        sure = [(start, end) for start, end, names in spans if names <= known]
        left = frozenset([name for name in known if _is_number(name, source, sure)])
        if left == known:
            return known
        known = left


def _surely_set(before: bytes, after: bytes) -> bool:
    """Return whether a variable gets its number in any case.

    A shell that goes on from call to call may hold anything under its name.
    """
    if _LOOP.fullmatch(before):
        return not _DECIDES.search(before.rstrip(b"( \t").removesuffix(b"for"))
    is_alone = _ALONE.match(after) is not None
    return is_alone and _BEFORE.fullmatch(before) is not None and not _DECIDES.search(before)


def _is_number(name: bytes, source: bytes, sure: list[tuple[int, int]]) -> bool:
    mentions = re.compile(rb"(?<![\w$])(?<!\$\{)" + name + rb"(?!\w)")
    first = True
    for one in mentions.finditer(source):
        before, after = source[one.start() - 1 : one.start()], source[one.end() :]
        begins = before in {b"", b" ", b"\t", b"\n", b";", b"("}
        is_number = begins and _NUMBER.match(after) is not None
        # `i=$((i+1))`, where the arithmetic is of numbers.
        result = one.end() + len(b"=$((")
        ends = [end + len(b"))") for start, end in sure if start == result]
        is_result = (
            begins
            and after.startswith(b"=$((")
            and any(source[end : end + 1] == b"" or source[end] in _END for end in ends)
        )
        is_inside = any(start <= one.start() < end for start, end in sure)
        if not (is_number or is_result or is_inside):
            return False
        if first and not (is_number and _surely_set(source[: one.start()], after)):
            return False
        first = False
    return not first
