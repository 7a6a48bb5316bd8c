"""Open questions for the page. The page shows every text as text, never as markup."""

from collections.abc import Sequence
from datetime import datetime

from ironcurtain_proxy.mailbox.answering import objection
from ironcurtain_proxy.mailbox.changes import changes_of
from ironcurtain_proxy.mailbox.credential import Credential
from ironcurtain_proxy.mailbox.display import (
    Field,
    arguments_of,
    metadata_of,
    reasons_of,
    summary,
    visible,
)
from ironcurtain_proxy.mailbox.requests import PendingRequest, seconds_left
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.sessions.asker import asker_of


def shown_question(one: PendingRequest, credential: Credential | None, now: datetime) -> Json:
    """One question, in full.

    Args:
        one: the question.
        credential: the answering reviewer; None: a person.
        now: aware.
    """
    request = one.request
    left = seconds_left(request, now)
    return {
        "id": one.id,
        "digest": request.digest,
        "headline": summary(one),
        "asker": asker_of(one).told(),
        "secondsLeft": None if left is None else max(0, round(left)),
        "arguments": _fields(arguments_of(one)),
        "changes": [*changes_of(request.tool, request.arguments)],
        "reasons": _fields(reasons_of(one)),
        "candidates": [visible(words) for words in request.candidates],
        "record": _fields(metadata_of(one)),
        "together": request.may_be_answered_together,
        "objection": objection(request, credential),
    }


def _fields(fields: Sequence[Field]) -> list[Json]:
    return [{"name": field.name, "lines": [*field.lines]} for field in fields]
