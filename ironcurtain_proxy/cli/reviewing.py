"""`pending`, `approve` and `deny`; and what `review` and `web` share with them."""

import argparse
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ironcurtain_proxy.cli.arguments import path_of
from ironcurtain_proxy.cli.output import complain, picked, say, say_json, terminal_width
from ironcurtain_proxy.config.reading.layers import STATE_DIRECTORY
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import (
    NOT_COUNTED,
    NotTheReviewerError,
    Posted,
    Proof,
    ReviewerAnswer,
    Signer,
    changes_in,
    changes_of,
    objection,
    outcomes,
    post,
    read_token,
    signed,
    still_waits,
    word_for,
)
from ironcurtain_proxy.mailbox.display import banner, summary, why_alone
from ironcurtain_proxy.mailbox.mailboxes import (
    Mailboxes,
    NotPendingError,
    PendingRequest,
    came_later,
    find,
    grouped,
    has_changed,
    keep_numbers,
    sessions_directory,
    utc_now,
)
from ironcurtain_proxy.mailbox.messages import (
    Credential,
    signed_response_bytes,
    timestamp,
)
from ironcurtain_proxy.private_directory import MailboxDirectory

if TYPE_CHECKING:
    from ironcurtain_proxy.fleet.database import Board


DATABASE: Final = "IRONCURTAIN_DATABASE"
"""The variable that names the database of a fleet if `relay` and `desk` are given none."""
TOKEN_FILE: Final = "IRONCURTAIN_REVIEWER_TOKEN_FILE"  # noqa: S105  a variable's name
"""The variable that names the token file if `--token-file` does not."""
_AT_ONCE: Final = 64
"""The most answers that wait at a time: each holds a descriptor."""


def database_of(options: argparse.Namespace) -> str:
    """Return the address of the database.

    Raises:
        ConfigurationError: none is given, or its library is not installed.
    """
    url: str = options.database or os.environ.get(DATABASE, "")
    if not url:
        raise ConfigurationError(f"give --database postgresql://…, or {DATABASE}")
    # An extra, for these commands alone.
    from ironcurtain_proxy.config.extras import require  # noqa: PLC0415

    require("postgres", "--database")
    return url


def credential_of(options: argparse.Namespace) -> Proof | None:
    """Return the key or the credential of who answers, or None if a person answers unsigned.

    Raises:
        ConfigurationError: the options do not fit, the key or the token cannot be used, or the
            library that signs is not installed.
    """
    if options.key is not None:
        if options.reviewer or options.token_file is not None:
            raise ConfigurationError("--key is for a person, --as for a program: give one of them")
        # An extra, for those alone who sign.
        from ironcurtain_proxy.config.extras import require  # noqa: PLC0415
        from ironcurtain_proxy.signing import signer_of  # noqa: PLC0415

        require("fleet", "--key")
        return signer_of(options.key)
    said = options.token_file or os.environ.get(TOKEN_FILE, "")
    if not options.reviewer:
        if options.token_file is not None:
            raise ConfigurationError("--token-file needs --as NAME, the reviewer whose token it is")
        return None
    if not said:
        raise ConfigurationError(f"--as needs --token-file FILE, or {TOKEN_FILE}")
    return Credential(options.reviewer, read_token(path_of(str(said))))


def mailboxes_of(options: argparse.Namespace) -> Mailboxes:
    """Return the mailboxes of the options, or those of the environment and of all sessions."""
    named: list[Path] = [path.absolute() for path in options.directories]
    if named:
        return Mailboxes(named, None)
    said = os.environ.get("ESCALATION_DIR", "")
    return Mailboxes(
        [path_of(said)] if said else [], sessions_directory(home_directory(os.environ))
    )


def existing_mailboxes_of(options: argparse.Namespace) -> Mailboxes:
    """Return the mailboxes of `mailboxes_of`, for a command that reads them once.

    Raises:
        ConfigurationError: a directory that was named is not there, or cannot be used.
    """
    for path in options.directories:
        try:
            MailboxDirectory.open(path.absolute(), create=False).close()
        except FileNotFoundError:
            raise ConfigurationError(f"--dir {path}: no such directory") from None
    return mailboxes_of(options)


def state_directory() -> Path:
    """Return the proxy's state directory, with the numbers of the last list."""
    return home_directory(os.environ) / STATE_DIRECTORY


def answer_those(options: argparse.Namespace, given: ReviewerAnswer) -> int:
    """Answer the requests that the command line names. Return 0 if every answer was accepted."""
    given = replace(given, credential=credential_of(options))
    if options.database:
        return _answer_there(options, given)
    mailboxes = existing_mailboxes_of(options)
    waiting = mailboxes.pending(utc_now())
    failures = 0
    for reference in options.references:
        try:
            chosen = _chosen(reference, waiting, given)
        except NotPendingError as error:
            complain(str(error))
            failures += 1
            continue
        if options.equal and reference != "all":
            later = came_later(waiting, state_directory())
            listed = [one for one in waiting if one == chosen[0] or one not in later]
            rest = next(card for card in grouped(listed) if chosen[0] in card)
            others = [one for one in rest if one != chosen[0]]
            failures += len(others)
            failures -= len(answer_several(mailboxes, others, replace(given, remember=None)))
        failures += len(chosen) - len(answer_several(mailboxes, chosen, given))
    return 1 if failures else 0


def answer_changed(options: argparse.Namespace, given: ReviewerAnswer, arguments: str) -> int:
    """Approve one call with other arguments. Return 0 if the answer was accepted.

    Raises:
        ConfigurationError: the arguments cannot be used, or several calls are named.
    """
    if len(options.references) != 1 or options.references == ["all"]:
        raise ConfigurationError("--args is for one call: name its id")
    if options.database:
        raise ConfigurationError("--args is for calls of this machine, and --database for others")
    mailboxes = existing_mailboxes_of(options)
    try:
        one = find(options.references[0], mailboxes.pending(utc_now()), state_directory())
    except NotPendingError as error:
        complain(str(error))
        return 1
    given = replace(given, changed=changes_in(arguments, one.request))
    return 0 if answer_several(mailboxes, [one], given) else 1


def _answer_there(options: argparse.Namespace, given: ReviewerAnswer) -> int:
    """Answer questions that other machines have sent to a database."""
    from ironcurtain_proxy.fleet.database import (  # noqa: PLC0415  an extra
        Board,
        DatabaseError,
        FleetDatabase,
    )

    signer = given.credential
    if signer is None or isinstance(signer, Credential):
        raise ConfigurationError("--database needs --key FILE: only signed answers count there")
    if options.equal:
        raise ConfigurationError("--equal is for the calls of this machine: name each id")
    database = FleetDatabase(database_of(options))
    try:
        board = Board(database)
        waiting = board.pending(utc_now())
        done = [_sent_there(board, waiting, one, given, signer) for one in options.references]
    except DatabaseError as error:
        complain(str(error))
        return 1
    finally:
        database.close()
    return 0 if all(done) else 1


def _sent_there(
    board: "Board",
    waiting: Sequence[PendingRequest],
    reference: str,
    given: ReviewerAnswer,
    signer: Signer,
) -> bool:
    """Sign the answer to one question. Return whether its machine takes it."""
    try:
        one = find(reference, waiting, state_directory())
    except NotPendingError as error:
        complain(str(error))
        return False
    if has_changed(one, state_directory()):
        complain(f"{_told(one)}: it has changed since `pending` showed it: look again")
        return False
    done = board.answer(one, signed_response_bytes(signed(one.request, given, signer)))
    (say if done.taken else complain)(done.told)
    return done.taken


def _chosen(
    reference: str, waiting: Sequence[PendingRequest], given: ReviewerAnswer
) -> list[PendingRequest]:
    if reference != "all":
        return [find(reference, waiting, state_directory())]
    if given.approved:
        # The agent may ask between the moment when a person reads the list and the answer.
        later = came_later(waiting, state_directory())
        for one in later:
            complain(f"{_told(one)}: left out of all: it came after `pending`, look again")
        waiting = [one for one in waiting if one not in later]
    return all_of(waiting, given.credential, approve=given.approved)


def all_of(
    waiting: Sequence[PendingRequest], credential: Proof | None, *, approve: bool
) -> list[PendingRequest]:
    """Return the requests that `all` stands for. Not all can be approved together.

    Requests to another reviewer are left out.

    Raises:
        NotPendingError: there are no such requests.
    """
    if not waiting:
        raise NotPendingError("nothing is pending")
    waiting = _own(waiting, credential)
    if not approve:
        return waiting
    together = [one for one in waiting if not one.request.alone]
    for one in waiting:
        if one.request.alone:
            why = f"{why_alone(one)}; approve it by its id"
            complain(f"{one.id[:8]} {summary(one)}: left out of all: {why}")
    if not together:
        raise NotPendingError("nothing may be approved together with others")
    return together


def _own(waiting: Sequence[PendingRequest], credential: Proof | None) -> list[PendingRequest]:
    own: list[PendingRequest] = []
    for one in waiting:
        problem = objection(one.request, credential)
        if problem:
            complain(f"{one.id[:8]} {summary(one)}: left out of all: {problem}")
        else:
            own.append(one)
    if not own:
        raise NotPendingError("nothing is pending that you may answer")
    return own


def answer_several(
    mailboxes: Mailboxes, chosen: Sequence[PendingRequest], given: ReviewerAnswer
) -> list[PendingRequest]:
    """Answer requests and print the outcome of each.

    Many are answered at a time: waiting for each one before the next takes ten milliseconds a call.

    Returns:
        The requests whose answer was accepted.
    """
    answered: list[PendingRequest] = []
    for first in range(0, len(chosen), _AT_ONCE):
        answered += _answer_at_once(mailboxes, chosen[first : first + _AT_ONCE], given)
    return answered


def _answer_at_once(
    mailboxes: Mailboxes, chosen: Sequence[PendingRequest], given: ReviewerAnswer
) -> list[PendingRequest]:
    posted: list[tuple[PendingRequest, Posted]] = []
    try:
        for one in chosen:
            put = _post(mailboxes, one, given)
            if put is not None:
                posted.append((one, put))
        ended = outcomes([put for _, put in posted])
    finally:
        for _, put in posted:
            put.close()
    answered: list[PendingRequest] = []
    for (one, _), taken in zip(posted, ended, strict=True):
        if taken:
            answered.append(one)
            say(f"{word_for(given, one)} {_told(one)}")
        else:
            _complain_of_late(mailboxes, one)
    return answered


def _post(mailboxes: Mailboxes, one: PendingRequest, given: ReviewerAnswer) -> Posted | None:
    """Write the answer to one request, or print why it cannot be answered and return None."""
    if given.credential is not None and has_changed(one, state_directory()):
        complain(f"{_told(one)}: it has changed since `pending` showed it: look again")
        return None
    if given.remember is not None and given.remember >= len(one.request.candidates):
        what = "has no such candidate" if one.request.candidates else "cannot be remembered"
        complain(f"{_told(one)}: {what}; approve it without remembering it")
        return None
    place = mailboxes.place_of(one)
    posted: Posted | None = None
    try:
        posted = None if place is None else post(place, one.request, given)
    except NotTheReviewerError as error:
        complain(f"{_told(one)}: {error}")
        return None
    except OSError as error:
        complain(f"{_told(one)}: the answer cannot be written: {error.strerror}")
        return None
    if posted is None:
        _complain_of_late(mailboxes, one)
    return posted


def _complain_of_late(mailboxes: Mailboxes, one: PendingRequest) -> None:
    place = mailboxes.place_of(one)
    waits = place is not None and still_waits(place, one.request)
    complain(f"{_told(one)}: {NOT_COUNTED if waits else 'too late, no longer pending'}")


def _told(one: PendingRequest) -> str:
    return f"{one.id[:8]} {summary(one)}"


# --- approve


def run_approve(options: argparse.Namespace) -> int:
    """Approve the named requests."""
    remember = 0 if options.remember else None
    if options.kind is not None:
        remember = options.kind - 1
    answer = ReviewerAnswer(approved=True, remember=remember, note=options.note)
    if options.args is None:
        return answer_those(options, answer)
    if remember is not None or options.key is not None or options.reviewer:
        raise ConfigurationError("--args goes with no --remember, --kind, --key and --as")
    return answer_changed(options, answer, options.args)


# --- deny


def run_deny(options: argparse.Namespace) -> int:
    """Deny the named requests."""
    return answer_those(options, ReviewerAnswer(approved=False, note=options.note))


# --- pending


def run_pending(options: argparse.Namespace) -> int:
    """List the calls that wait."""
    now = utc_now()
    waiting = _there(options, now) if options.database else _here(options, now)
    keep_numbers(waiting, state_directory())
    if options.json:
        say_json([_fields(one, number) for number, one in enumerate(waiting, 1)])
        return 0
    width = terminal_width()
    lines: list[str] = [] if waiting else ["nothing is pending"]
    for number, one in enumerate(waiting, 1):
        # The files of another machine are not those of this one.
        diff = [] if options.database else changes_of(one.request.tool, one.request.arguments)
        lines += banner(one, number, now, diff, width)
    # Written at once: a thousand calls have ten thousand lines.
    say("\n".join(lines))
    return 0


def _here(options: argparse.Namespace, now: datetime) -> list[PendingRequest]:
    return existing_mailboxes_of(options).pending(now)


def _there(options: argparse.Namespace, now: datetime) -> list[PendingRequest]:
    """Return the questions that machines have sent to a database."""
    url = database_of(options)
    from ironcurtain_proxy.fleet.database import (  # noqa: PLC0415  an extra
        Board,
        DatabaseError,
        FleetDatabase,
    )

    database = FleetDatabase(url)
    try:
        return Board(database).pending(now)
    except DatabaseError as error:
        raise ConfigurationError(str(error)) from None
    finally:
        database.close()


def _fields(one: PendingRequest, number: int) -> dict[str, object]:
    request = one.request
    return {
        "number": number,
        **picked(one, "id session"),
        "directory": str(one.directory),
        **picked(request, "server tool arguments reason told rule origins candidates"),
        "reviewer": request.reviewer or None,
        "context": dict(request.context),
        "expiresAt": None if request.expires is None else timestamp(request.expires),
        "requestDigest": request.digest,
    }
