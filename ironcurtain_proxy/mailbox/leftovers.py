"""The removal of files that dead proxies left in a mailbox.

A running proxy may share the directory; its files are kept.
"""

from contextlib import suppress

from ironcurtain_proxy.mailbox.grants_command import GRANTS_NAME, grants_owner
from ironcurtain_proxy.mailbox.messages import (
    MAX_REQUEST_BYTES,
    Owner,
    read_request,
    request_id,
    request_name,
    response_id,
    response_name,
)
from ironcurtain_proxy.mailbox.processes import is_alive
from ironcurtain_proxy.private_directory import (
    MailboxDirectory,
    UnacceptableFileError,
    temporary_writer,
)


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
        if request is not None and request.owner is not None and not is_alive(request.owner):
            place.discard(name)
            place.discard(response_name(escalation))


def _discard_orphan(place: MailboxDirectory, name: str) -> None:
    escalation, writer = response_id(name), temporary_writer(name)
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
