"""Signs of an attack in a server's description, found by rules with ids.

A finding is a reason to look and never a decision: a server that means harm has other words, and
one that means well may have these. Patterns take linear time on any text.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import is_hidden, visible

RuleId: TypeAlias = Literal[
    "hidden-characters", "instructs-the-model", "speaks-of-secrets", "names-another-server"
]

_MOST: Final = 64 * 1024
"""Characters of a text that are searched."""
_SHOWN: Final = 60

_INSTRUCTS: Final = re.compile(
    r"ignore (?:all |any )?(?:the )?(?:previous|prior|above|other) (?:instructions|tools|rules)"
    r"|do not (?:tell|mention|inform|show|reveal|alert)(?: this)?(?: to)? the user"
    r"|without (?:telling|informing|asking|notifying) the user"
    r"|(?:before|after|when) (?:using|calling|invoking) any (?:other )?tool"
    r"|you must (?:always |first )?(?:call|use|invoke|read|send|pass|include)"
    r"|<(?:important|system|instructions?|secret|hidden)>"
    r"|system prompt",
    re.IGNORECASE,
)
_SECRETS: Final = re.compile(
    r"\.ssh/|id_rsa|id_ed25519|\.aws/credentials|/etc/(?:passwd|shadow)|\.netrc|\.env\b"
    r"|private key of the user|contents? of (?:the )?(?:conversation|chat)",
    re.IGNORECASE,
)


class Finding(Struct, frozen=True):
    """A suspicious text in a server's description, and where it is."""

    rule: RuleId
    part: str
    """The name of the tool, the prompt or other part."""
    where: str
    """The path to the text, as in `inputSchema.properties.x.description`."""
    shown: str
    """The place in the text, with visible characters."""

    def __str__(self) -> str:
        place = f", {visible(self.where)}" if self.where else ""
        return f'{visible(self.part)}{place}: {self.rule}: "{self.shown}"'


def scan(part: str, value: Json, other_servers: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the signs in one part.

    Args:
        part: its name.
        value: what its server wrote.
        other_servers: the names of the others, which it should not know.
    """
    others = _named(other_servers)
    for where, text in _texts(value, ""):
        for rule, found in _signs(text[:_MOST], others):
            yield Finding(rule, part, where, _excerpt(text, found))


def _signs(text: str, others: "re.Pattern[str] | None") -> Iterator[tuple[RuleId, tuple[int, int]]]:
    hidden = next((i for i, one in enumerate(text) if is_hidden(one)), None)
    if hidden is not None:
        yield "hidden-characters", (hidden, hidden + 1)
    if found := _INSTRUCTS.search(text):
        yield "instructs-the-model", found.span()
    if found := _SECRETS.search(text):
        yield "speaks-of-secrets", found.span()
    if others is not None and (found := others.search(text)):
        yield "names-another-server", found.span()


def _named(servers: Sequence[str]) -> "re.Pattern[str] | None":
    """Return tools of other servers, as the agent knows them: `server__tool`."""
    if not servers:
        return None
    return re.compile(r"\b(?:" + "|".join(map(re.escape, servers)) + r")__\w")


def _texts(value: Json, where: str, depth: int = 32) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif depth == 0:
        return
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield f"{where}.{name}".lstrip("."), name
            yield from _texts(inner, f"{where}.{name}".lstrip("."), depth - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, where, depth - 1)


def _excerpt(text: str, span: tuple[int, int]) -> str:
    start = max(0, span[0] - _SHOWN // 3)
    return visible(text[start : start + _SHOWN])
