"""The state of one escalation whose request lies in a mailbox."""

from contextlib import suppress
from typing import Final

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.mailbox.messages import Expected, response_id, response_name
from ironcurtain_proxy.model.escalation import Escalation, Ruling
from ironcurtain_proxy.private_directory import MailboxDirectory

_EMPTY_GRACE: Final = 0.25
"""Seconds for which an empty response counts as still being written, as by a shell's `>`."""


class Question(Struct, kw_only=True, eq=False):
    """One question, open or settled."""

    escalation: Escalation
    place: MailboxDirectory
    expected: Expected
    answered: anyio.Event = field(default_factory=anyio.Event)
    ruling: Ruling | None = None
    _empty_since: float | None = None
    """The time since which an empty response has been there, in monotonic seconds."""

    def settle(self, ruling: Ruling) -> None:
        """Settle the question. Only the first answer counts."""
        if self.ruling is None:
            self.ruling = ruling
            self.answered.set()

    def may_be_answered_by(self, name: str) -> bool:
        """Whether a file of this name is an answer to it.

        Nobody can occupy a name that nobody can foresee. Only an answer with a proof of its author
        may have such a name.
        """
        if self.expected.credential is None:
            return name == response_name(self.escalation.id)
        return response_id(name) == self.escalation.id

    def names_of_answers(self) -> list[str]:
        """The file names under which answers may lie."""
        if self.expected.credential is not None:
            with suppress(OSError):
                return [name for name in self.place.names() if self.may_be_answered_by(name)]
        return [response_name(self.escalation.id)]

    def may_still_be_written(self, now: float) -> bool:
        """Whether an empty response may be still being written; `now` is monotonic."""
        if self._empty_since is None:
            self._empty_since = now
        return now - self._empty_since < _EMPTY_GRACE
