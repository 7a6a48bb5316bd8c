"""sed and awk scripts: whether they only read. Pure: no I/O, no clock, no log.

Only a part of each language is understood. What is not asks.
"""

import re
from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.shell.rules import Reads, check_reads, options

MAX_SCRIPT: Final = 400
"""Characters of a sed script: longer ones could take long to match."""

_SED_OPTIONS: Final = Reads(
    allowed=options(
        "-n -e: -E -r -u -z -s -l: --quiet --silent --expression --regexp-extended --null-data"
        " --separate --unbuffered --posix --debug --sandbox --line-length --help --version"
    ),
    abbreviated=False,
)


def check_sed(words: Sequence[Word]) -> str | None:
    """Refuses what edits files in place, and the commands `w` and `e`, which write and run."""
    scripts: list[Word] = []
    operands: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.text in _SED_SCRIPT_OPTIONS:
            scripts.append(words[at] if at < len(words) else Word(None))
            at += 1
        elif (word.text or "").startswith("--expression="):
            scripts.append(Word((word.text or "").partition("=")[2]))
        elif word.text is not None and not word.text.startswith("-"):
            operands.append(word)
        elif _sed_option(word) is not None:
            return "an option or an argument is not known to only read"
    if all(_sed_reads(script.text or "") for script in scripts or operands[:1] or [Word("")]):
        return None
    return "the script is not known to only read"


_SED_SCRIPT_OPTIONS: Final = options("-e --expression -ne -Ee -re -nEe -nre")


def _sed_option(word: Word) -> str | None:
    if word.text is None:
        known = not word.splits and word.prefix
        return None if known and word.prefix[0] != "-" else "an argument is not known"
    if "e" in word.text and not word.text.startswith("--"):
        return "an option is not known"
    return check_reads(_SED_OPTIONS, [word])


_SED_ADDRESS: Final = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\[^\n]|\[[^\]/\n\[]+\])*/[IM]*)"
_SED_PART: Final = r"(?:[^{d}\\\n\[]|\\[^\n]|\[\^?[^\]{d}\n\[\\]+\])*"
_SED_SUBSTITUTION: Final = "|".join(
    rf"s{d}{_SED_PART.replace('{d}', d)}{d}(?:[^{d}\\\n]|\\[^\n])*{d}[gpiI0-9]*"
    for d in ("/", "#", ",", ":", "@", "!", "%", "_", r"\|")
)
_SED_SCRIPT: Final = re.compile(
    rf"\s*(?:(?:{_SED_ADDRESS}(?:[ ]*,[ ]*(?:{_SED_ADDRESS}|[+~]\d+))?)?[ ]*!?[ ]*"
    rf"(?:[dDgGhHnNpPxlFz=]|[qQ][ ]?\d*|{_SED_SUBSTITUTION})[ ]*(?:;\s*|\n\s*|$))+"
)


def _sed_reads(script: str) -> bool:
    return len(script) <= MAX_SCRIPT and _SED_SCRIPT.fullmatch(script) is not None


_AWK_OPTIONS: Final = Reads(
    allowed=options("-F: -v: --field-separator --assign --help --version --posix --re-interval"),
    abbreviated=False,
)
_AWK_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\[^\n])*")
    |(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<name>[A-Za-z_]\w*)|(?P<end>[;{}\n])
    |(?P<operator>&&|\|\||[<>=!+\-*%^]=|>>|\+\+|--|[-+*%^!<>=~?:,$()\[\]&|@])|(?P<slash>/)""",
    re.VERBOSE,
)
_AWK_REGEX: Final = re.compile(r'/(?:[^/\\\n\["]|\\[^\n"]|\[\^?[^\]\[/"\\\n]+\])+/')
_AWK_NOWHERE: Final = re.compile(r'\s*"/dev/null"\s*[;}]')
_AWK_DENIED: Final = frozenset(
    {"system", "getline", "close", "fflush", "@", "|", ">>", "function", "func", "ENVIRON"}
)
_AWK_KEYWORDS: Final = frozenset({"print", "printf", "return", "in", "if", "while", "else", "do"})

_AWK_AMBIGUOUS: Final = frozenset(
    {")", "++", "--", "$", "exit", "next", "nextfile", "delete", "case", "switch", "for", "default",
     "length", "BEGIN", "END", "break", "continue", "BEGINFILE", "ENDFILE"}
)  # fmt: skip
"""After these a `/` may be either, or implementations differ."""


def check_awk(words: Sequence[Word]) -> str | None:
    """Refuses what runs and writes, by `system`, `|` and `>`, and what reads by `getline`."""
    at = 0
    while at < len(words) and words[at].prefix.startswith("-"):
        if words[at].text in _AWK_VALUES:
            at += 2
        elif words[at].text in {None, "-"} or check_reads(_AWK_OPTIONS, [words[at]]):
            return "an option is not known"
        else:
            at += 1
    if at >= len(words):
        version = len(words) == 1 and words[0].text in {"--version", "--help"}
        return None if version else "there is no script"
    if any((word.text or "").startswith("-") for word in words[at:]):
        return "an option is not known"
    return None if _awk_reads(words[at].text) else "the script is not known to only read"


_AWK_VALUES: Final = options("-F -v --field-separator --assign")


def _awk_reads(script: str | None) -> bool:
    """Reads the script token by token: a `/` is a division or begins a pattern."""
    at, depth, prints, previous = 0, 0, False, ""
    while script is not None and at < len(script):
        found = _awk_token(script, at, previous)
        if found is None:
            return False
        kind, text = found
        at += len(text)
        if kind in {"space", "comment"}:
            continue
        depth += (text == "(") - (text == ")") if kind == "operator" else 0
        if kind == "end":
            prints = False
        elif kind == "name" and text in {"print", "printf"}:
            prints, depth = True, 0
        writes = kind == "operator" and text == ">" and prints and depth <= 0
        if _is_denied(kind, text) or (writes and not _AWK_NOWHERE.match(script, at)):
            return False
        previous = "x" if kind in {"string", "number", "regex"} else text
    return script is not None


def _awk_token(script: str, at: int, previous: str) -> tuple[str, str] | None:
    """The kind and the text of what is at a place."""
    if script[at] == "/" and previous in _AWK_AMBIGUOUS:
        return None
    if _begins_pattern(previous) and (regex := _AWK_REGEX.match(script, at)):
        return "regex", regex[0]
    found = _AWK_TOKEN.match(script, at)
    if found is None or (found.lastgroup == "slash" and not previous):
        return None
    return found.lastgroup or "", found[0]


def _is_denied(kind: str | None, text: str) -> bool:
    return kind in {"name", "operator"} and text in _AWK_DENIED


def _begins_pattern(previous: str) -> bool:
    if previous in _AWK_KEYWORDS or not previous:
        return True
    return not (previous[-1].isalnum() or previous[-1] in "_)]$")
