"""Names in the sentences of a question: visible, short, and never more than they are.

A name is an agent's text. With a blank or a sign of punctuation in it, it could go on as a sentence
of the proxy's own; so such a name stands in quotes.
"""

import re
from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.opening import shown_host
from ironcurtain_proxy.model.question import visible

MOST_WORDS: Final = 20
"""The most words of a sentence."""
SENSITIVE: Final = "which commonly holds secrets"

_LONGEST: Final = 72
_TAIL: Final = 48
"""The characters at the end that a cut keeps: they say whose host it is, and which file."""
_PLAIN: Final = re.compile(r"[^\s\"',;:!?()]+(?::[^\s\"',;:!?()]+)*")
_MOST_NAMED: Final = 2


def short_name(text: str) -> str:
    """Return a name for a sentence: in quotes if it is no plain word, the middle cut."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - _TAIL - 1]}…{text[-_TAIL:]}"
    shown = visible(text)
    if _PLAIN.fullmatch(shown):
        return shown
    blanks = shown.count(" ")
    if blanks > _MOST_BLANKS:
        first, *_, last = shown.split(" ")
        shown = f"{first} … {last}"
    return '"' + shown.replace('"', '\\"') + '"'


_MOST_BLANKS: Final = 3


def short_place(path: str, home: str | None) -> str:
    """Return a path for a sentence, the home directory as `~`."""
    if home and path.startswith(f"{home.rstrip('/')}/"):
        path = f"~{path[len(home.rstrip('/')) :]}"
    return short_name(path)


def short_host(host: str) -> str:
    """Return a host for a sentence, marked if it may look like another one."""
    marked = "" if shown_host(host) == host else " (may imitate another host)"
    return short_name(host) + marked


def and_more(names: Sequence[str]) -> str:
    """Return a few names, and how many others there are."""
    if len(names) <= _MOST_NAMED:
        return " and ".join(names)
    return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
