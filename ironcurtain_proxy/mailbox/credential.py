"""The credential of a reviewer that alone may answer in a mailbox.

There, an answer counts only with that reviewer's token, or with a proof that its writer knows
the token. The proxy's own commands write the proof: whoever gets into the directory can read its
files, and a proof fits one answer to one question only.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_PURPOSE: Final = "ironcurtain-answer-1"
_PROVED: Final = ("reviewer", "escalationId", "requestDigest", "decision", "note")
"""The keys that a proof covers, in this order. Only the last value may contain line ends."""
_REDACTED: Final = "***"


@dataclass(frozen=True, slots=True)
class Credential:
    """The reviewer whose answers count, and the token that authenticates them."""

    reviewer: str
    token: str = field(repr=False)

    def proof(self, answer: Mapping[str, object]) -> str:
        """The proof that an answer carries instead of the token.

        HMAC-SHA256 in hexadecimal, its key the token, over lines: `ironcurtain-answer-1`, then the
        answer's `reviewer`, `escalationId`, `requestDigest`, `decision` and `note`.
        """
        lines = "\n".join([_PURPOSE, *[_text(answer, key) for key in _PROVED]])
        return hmac.new(_bytes(self.token), _bytes(lines), hashlib.sha256).hexdigest()

    def objection(self, answer: Mapping[str, object], question: str, digest: str) -> str:
        """The reason why an answer is not this reviewer's answer to this question; empty: it is.

        Args:
            answer: what the response file says.
            question: the escalation's id.
            digest: SHA-256 of the request's bytes: it covers the arguments, and all else.
        """
        if not self._vouches_for(answer):
            return "its token is missing, or wrong"
        if answer.get("reviewer") != self.reviewer:
            return "it names another reviewer"
        if answer.get("escalationId") != question:
            return "it answers another question"
        if answer.get("requestDigest") != digest:
            return "it answers something other than what was asked"
        return ""

    def kept_out_of(self, words: str) -> str:
        """A text for the record and the agent, with the token removed."""
        return words.replace(self.token, _REDACTED)

    def _vouches_for(self, answer: Mapping[str, object]) -> bool:
        if "proof" in answer:
            return hmac.compare_digest(_bytes(_text(answer, "proof")), _bytes(self.proof(answer)))
        return hmac.compare_digest(_bytes(_text(answer, "token")), _bytes(self.token))


def _text(answer: Mapping[str, object], key: str) -> str:
    value = answer.get(key)
    return value if isinstance(value, str) else ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
