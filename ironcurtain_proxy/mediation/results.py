"""The changes that the operator wants in a server's answers to the agent.

`clean` removes control sequences of terminals and invisible characters; `redact` masks secrets. The
record holds the digest of the answer as its server sent it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import anyio.to_thread
from msgspec import Struct, field

from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import is_hidden
from ironcurtain_proxy.model.server import ResultRules, ToolResult

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movement
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, the clipboard
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
_MOST_DEPTH: Final = 200
_LARGE: Final = 64 * 1024
"""Bytes from which on the work is done in a thread."""


class Results(Struct, frozen=True):
    """The operator's rules for results, by server."""

    rules: Mapping[str, ResultRules] = field(default_factory=dict)
    redact: Callable[[Json], Json] = lambda value: value
    """Masks every secret in a value."""

    async def treated(self, server: str, answer: ToolResult, size: int) -> ToolResult:
        """The answer as the agent gets it.

        Args:
            server: the operator's name of it.
            answer: as it was sent.
            size: bytes of it.
        """
        rules = self.rules.get(server)
        if rules is None or not (rules.clean or rules.redact_secrets):
            return answer
        if size <= _LARGE:
            return self._treated(rules, answer)
        return await anyio.to_thread.run_sync(self._treated, rules, answer)

    def _treated(self, rules: ResultRules, answer: ToolResult) -> ToolResult:
        if answer.error is not None:
            return ToolResult(error=self._object(rules, answer.error))
        result = self._object(rules, answer.result or {})
        return answer if result == answer.result else answer.with_result(result, "")

    def _object(self, rules: ResultRules, value: Mapping[str, Json]) -> Mapping[str, Json]:
        treated: Json = dict(value)
        if rules.clean:
            treated = cleaned(treated)
        if rules.redact_secrets:
            treated = self.redact(treated)
        return treated if isinstance(treated, dict) else {}


def cleaned(value: Json, depth: int = _MOST_DEPTH) -> Json:
    """A value without escapes of terminals and invisible characters in its texts."""
    if isinstance(value, str):
        return _plain(value)
    if depth == 0:
        return None  # nobody reads so deep, and what is hidden there is not passed on
    if isinstance(value, list):
        return [cleaned(inner, depth - 1) for inner in value]
    if isinstance(value, dict):
        return {_plain(name): cleaned(inner, depth - 1) for name, inner in value.items()}
    return value


def _plain(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    hidden = [one for one in set(text) if is_hidden(one)]
    return text.translate({ord(one): None for one in hidden}) if hidden else text
