"""Questions that outlive the proxy that asked them.

Where calls are held, the agent makes its call again later, and by then the proxy may be another
process: it was killed, the machine was restarted, the agent was. So the file of the question stays,
answers to it count, and the proxy that gets the same call adopts it: under the same id and with the
same bytes, so that what a person was shown, and signed, is what is carried out.

    request-7db5443e-….json     names its subject: SHA-256 of all that an answer depends on
    claim-7db5443e-….json       the process that has adopted it
    settled-7db5443e-….json     it is approved, and the call has not come again

The files are removed before an approval is used: so it is used at most once, and a proxy that is
killed before loses none.

Two proxies never adopt one question: they look and claim under a lock.
"""

import os
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.mailboxes import (
    is_alive,
    is_kept,
    seconds_left,
    session_mailboxes,
    utc_now,
)
from ironcurtain_proxy.mailbox.messages import (
    MAX_REQUEST_BYTES,
    Owner,
    Request,
    claim_name,
    id_beside,
    owner_of,
    read_request,
    request_id,
    request_name,
    response_name,
    settled_name,
)
from ironcurtain_proxy.mailbox.session_state import GRANTS_NAME, grants_owner
from ironcurtain_proxy.model.escalation import APPROVAL_LASTS, Escalation, EscalationId
from ironcurtain_proxy.private_directory import (
    MailboxDirectory,
    UnacceptableFileError,
    temporary_writer,
)
from ironcurtain_proxy.private_files import held_lock
from ironcurtain_proxy.strict_json import strict_json

LOCK_NAME: Final = "adoption.lock"
_LOCK_SECONDS: Final = 5.0
_LARGEST_CLAIM: Final = 4096


class KeptQuestion(Struct, frozen=True):
    """A question that this proxy has adopted."""

    id: EscalationId
    raw: bytes
    """The bytes of its request, as its first proxy wrote them."""
    seconds: float | None
    """Seconds until its deadline; `None` means that it has none."""

    def asked(self, escalation: Escalation, now: datetime) -> Escalation:
        """Return the question of a call under the id and the deadline of this one."""
        deadline = escalation.deadline
        if self.seconds is not None:
            deadline = now + timedelta(seconds=self.seconds)
        return replace(escalation, id=self.id, deadline=deadline)


def subject_of(escalation: Escalation, principal: str) -> str:
    """Return a digest of everything that an answer to a question depends on.

    Arguments alone would not be enough: they may lead elsewhere by now (a link, a remote), and the
    answer would be used for a call that nobody was asked about.

    Args:
        escalation: the question.
        principal: whose agent asks.
    """
    parts = (
        principal,
        escalation.fingerprint,
        escalation.policy_version,
        escalation.definition,
        escalation.request,
        escalation.reasons,
        escalation.candidates,
        escalation.context,
        escalation.command,
        escalation.place,
        escalation.opening,
        # An approval of a call in a sandbox is none of the call without it.
        escalation.sandboxed,
        escalation.held,
        escalation.signing,
    )
    return sha256(msgspec.json.encode(parts, order="deterministic", enc_hook=repr)).hexdigest()


def adopted(
    place: MailboxDirectory, sessions: Path | None, subject: str, own: Owner, now: datetime
) -> KeptQuestion | None:
    """Adopt the question with a subject whose proxy is gone, or return None if there is none.

    It lies in `place` afterwards, with the answers that it has.

    Args:
        place: the mailbox of this proxy.
        sessions: where the mailboxes of other sessions are, or None if only `place` is looked into.
        subject: see `subject_of`.
        own: this process.
        now: by the machine's clock.
    """
    others = () if sessions is None else session_mailboxes(sessions)
    for directory in (place.path, *[one for one in others if one != place.path]):
        # The directories of thousands of ended sessions are looked at, and nothing is made there.
        with suppress(OSError, ConfigurationError):
            if not any(request_id(name) for name in os.listdir(directory)):  # noqa: PTH208
                continue
            here = MailboxDirectory.open(directory, create=False)
            try:
                with held_lock(directory / LOCK_NAME, _LOCK_SECONDS, OSError("it is busy")):
                    found = _claimed(here, place, subject, own, now)
            finally:
                here.close()
            if found is not None:
                return found
    return None


def _claimed(
    here: MailboxDirectory, place: MailboxDirectory, subject: str, own: Owner, now: datetime
) -> KeptQuestion | None:
    for name in here.names():
        identifier = request_id(name)
        if identifier is None:
            continue
        with suppress(FileNotFoundError, UnacceptableFileError):
            raw = here.read(name, MAX_REQUEST_BYTES)
            request = read_request(name, raw)
            if (
                request is None
                or request.subject != subject
                or not is_kept(request, now)
                or _has_living_owner(here, request)
            ):
                continue
            if _has_lapsed(here, identifier, now):
                for left in (name, *_beside(here, identifier)):
                    here.discard(left)
                continue
            claim = orjson.dumps({"owner": {"pid": own.pid, "startTime": own.start_time}})
            place.write(claim_name(identifier), claim)
            # It is asked again: a key that signed its approval may be revoked by now.
            here.discard(settled_name(identifier))
            if here.path != place.path:
                _move(here, place, identifier)
            return KeptQuestion(EscalationId(identifier), raw, seconds_left(request, now))
    return None


def _has_living_owner(place: MailboxDirectory, request: Request) -> bool:
    """Return whether the process that asked, or one that adopted the question, still runs."""
    owners = [request.owner]
    with suppress(FileNotFoundError, UnacceptableFileError, orjson.JSONDecodeError):
        claim = strict_json(place.read(claim_name(request.id), _LARGEST_CLAIM))
        owners.append(owner_of(claim.get("owner")) if isinstance(claim, dict) else None)
    return any(owner is not None and is_alive(owner) for owner in owners)


def _has_lapsed(place: MailboxDirectory, identifier: str, now: datetime) -> bool:
    """Return whether a question was approved, and no call came for as long as an approval lasts."""
    found = place.modified_ns(settled_name(identifier))
    # One that is far in the future was given before the clock was set back.
    apart = 0.0 if found is None else abs(now.timestamp() - found[1] / 1e9)
    return apart > APPROVAL_LASTS.total_seconds()


def _beside(place: MailboxDirectory, identifier: str) -> list[str]:
    return [name for name in place.names() if id_beside(name) == identifier]


def _move(here: MailboxDirectory, place: MailboxDirectory, identifier: str) -> None:
    """Move a question into another mailbox: its answers first, for a crash to leave it whole."""
    here.discard(claim_name(identifier))
    for name in (*_beside(here, identifier), request_name(identifier)):
        os.rename(here.path / name, place.path / name)  # noqa: PTH104  both are directories of ours


# --- what proxies that are gone have left ---------------------------------------------------------


def discard_leftovers(place: MailboxDirectory) -> None:
    """Remove the requests of dead owners, responses without a request, and half-written files."""
    with suppress(OSError):
        names = place.names()
        for name in names:
            _discard_request(place, name)
        for name in names:
            _discard_orphan(place, name)


def _discard_request(place: MailboxDirectory, name: str) -> None:
    escalation = request_id(name)
    if escalation is None:
        return
    with suppress(FileNotFoundError, UnacceptableFileError):
        request = read_request(name, place.read(name, MAX_REQUEST_BYTES))
        # Without an owner it is one of the original's proxies, which may well be alive.
        if (
            request is not None
            and request.owner is not None
            and not is_alive(request.owner)
            and not is_kept(request, utc_now())
        ):
            place.discard(name)
            place.discard(response_name(escalation))


def _discard_orphan(place: MailboxDirectory, name: str) -> None:
    escalation, writer = id_beside(name), temporary_writer(name)
    if escalation is not None:
        if not place.has(request_name(escalation)):
            place.discard_ours(name)
    elif writer is not None:
        if writer == 0 or not is_alive(Owner(writer, "")):
            place.discard_ours(name)
    elif name == GRANTS_NAME:
        owner = grants_owner(place)
        if owner is None or not is_alive(owner):
            place.discard_ours(name)
