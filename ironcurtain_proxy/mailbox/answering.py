"""Answers to open questions: written, seen to be in time, and held against what changed meanwhile.

This proxy marks the very file that it accepted before it removes it (see `private_directory`),
so that acceptance is known for certain. The original's proxies do not; there, a request that
still lies beside the answer counts instead.

A call that would change a file is shown as a diff against the present file. The arguments by which
file tools commonly name a file, a text and its replacement are known; any other call has no diff. A
file is read only if it is regular and small. The approval does not cover the present content of the
file: a server reads it anew when the call is carried out.
"""

import os
import pwd
import re
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

import anyio
import anyio.to_thread
import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError, IronCurtainError
from ironcurtain_proxy.mailbox.display import summary, visible
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, PendingRequest
from ironcurtain_proxy.mailbox.messages import (
    MAX_NOTE,
    MAX_RESPONSE_BYTES,
    Credential,
    Request,
    clean_line,
    proved_response_bytes,
    request_name,
    response_bytes,
    response_name,
    signed_response_bytes,
)
from ironcurtain_proxy.model.signing import SignedAnswer
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_directory import MailboxDirectory, is_marked_taken, is_removed
from ironcurtain_proxy.private_files import opened, read_private
from ironcurtain_proxy.strict_json import strict_json

SHORTEST: Final = 32
LONGEST: Final = 4096
"""The most characters, and bytes, of a token."""

_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")
_LINE_END: Final = 2


def read_token(path: Path) -> str:
    """Read the token.

    Raises:
        ConfigurationError: it is not there, or cannot be trusted; the message names the file and
            holds nothing of what is in it.
    """
    raw = read_private(path, LONGEST + _LINE_END + 1, "token file")
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if not SHORTEST <= len(line) <= LONGEST or _TOKEN.fullmatch(line) is None:
        what = f"is not one line of {SHORTEST} to {LONGEST} visible characters of ASCII"
        raise ConfigurationError(f"token file {path} {what}")
    return line.decode("ascii")


WAIT_SECONDS: Final = 2.0
"""Seconds that a proxy may take to accept an answer before acceptance is only presumed."""
NOT_COUNTED: Final = "the answer did not count (is it the right token?), and the call still waits"
_STEP_SECONDS: Final = 0.002
_MOST_CHANGED: Final = MAX_RESPONSE_BYTES - (16 << 10)
_WORD_BYTES: Final = 8


class Signer(Protocol):
    """A reviewer's private key, in a file or with an agent."""

    @property
    def key(self) -> str:
        """The fingerprint of its public key."""

    def sign(self, answer: SignedAnswer) -> bytes:
        """Return the signature of an answer.

        Raises:
            ConfigurationError: the agent does not answer, or no longer has the key.
        """


Proof: TypeAlias = Credential | Signer
"""What shows who an answer is from."""


class NotTheReviewerError(IronCurtainError):
    """An answer of the wrong reviewer. Nothing was written; the message names the reviewer."""


class ReviewerAnswer(Struct, frozen=True, kw_only=True):
    """The answer of a reviewer."""

    approved: bool
    remember: int | None = None
    """The index of the candidate to remember, or None if there is none."""
    note: str = ""
    """A message to the agent."""
    reviewer: str = ""
    """The name of a reviewer that is not a person."""
    credential: Proof | None = None
    """The credential for a mailbox that only one reviewer may answer in, or the key of a person who
    signs where `reviewers.json` or a rule demands it."""
    place: str = ""
    """The place of the answer, such as `a browser`; empty: this process's terminal."""
    changed: Mapping[str, Json] | None = None
    """The arguments that are changed, or None if the call is answered as it is."""


class Posted(Struct, eq=False):
    """An answer that was written into a mailbox."""

    place: MailboxDirectory
    request: Request
    name: str
    descriptor: int

    def outcome(self) -> bool | None:
        """Return whether the proxy accepted the answer, or None if it has not looked yet."""
        if self.request.owner is None:
            return self.presumed()
        if is_marked_taken(self.descriptor):
            return True
        if is_removed(self.descriptor) or not self.place.has(request_name(self.request.id)):
            # Nobody waits for it any more. The proxy marks before it removes, and may have done
            # both since the mark was looked for: look once more.
            return is_marked_taken(self.descriptor)
        return None

    def presumed(self) -> bool:
        """Return the outcome if the proxy leaves no mark.

        It still waits, and will find the answer.
        """
        return self.place.has(request_name(self.request.id))

    def close(self) -> None:
        """Close the descriptor, and remove an answer that nobody waits for."""
        if self.request.owner is not None and not self.presumed():
            self.place.discard_ours(self.name)
        os.close(self.descriptor)


def post(place: MailboxDirectory, request: Request, given: ReviewerAnswer) -> Posted | None:
    """Write an answer, or None if there is one already, or nobody waits for one.

    Raises:
        NotTheReviewerError: it is not this reviewer who was asked.
        OSError: it cannot be written.
    """
    problem = objection(request, given.credential)
    if given.changed is not None and (given.credential or not request.may_edit):
        # Neither a proof nor a signature covers them: without them it would approve the old call.
        problem = problem or "its arguments cannot be changed"
    if problem:
        raise NotTheReviewerError(problem)
    if not place.has(request_name(request.id)):
        return None
    name, raw = _written(request, given)
    with suppress(FileExistsError):
        return Posted(place, request, name, place.put(name, raw))
    return None


def objection(request: Request, credential: Proof | None) -> str:
    """Return why this reviewer may not answer a request, or empty if the reviewer may."""
    is_signed = credential is not None and not isinstance(credential, Credential)
    if request.signatures and not is_signed:
        return f"it needs {request.signatures}: approve or deny it with --key FILE"
    asked = f'"{visible(request.reviewer)}"' if request.reviewer else "a person"
    if not isinstance(credential, Credential):
        alone = f"only {asked} may answer this, with its token (--as and --token-file)"
        return alone if request.reviewer else ""
    if credential.reviewer == request.reviewer:
        return ""
    return f'{asked} is asked about this, not "{credential.reviewer}"'


def still_waits(place: MailboxDirectory, request: Request) -> bool:
    """Return whether an answer that was not accepted was invalid instead of late.

    The request remains.
    """
    return bool(request.reviewer or request.signatures) and place.has(request_name(request.id))


def _written(request: Request, given: ReviewerAnswer) -> tuple[str, bytes]:
    """Return the file name of the answer, and its content."""
    note, credential = clean_line(given.note)[:MAX_NOTE], given.credential
    # Where authors prove themselves, a random name: another program cannot take it first.
    hidden = response_name(request.id, os.urandom(_WORD_BYTES).hex())
    if isinstance(credential, Credential):
        return hidden, proved_response_bytes(
            approved=given.approved, request=request, note=note, credential=credential
        )
    if request.signatures and credential is not None:
        return hidden, signed_response_bytes(signed(request, given, credential))
    return response_name(request.id), response_bytes(
        approved=given.approved,
        digest=request.digest,
        remember=given.remember,
        note=note,
        reviewer=given.reviewer,
        changed=given.changed,
        answeredFrom=_whereabouts(given.place),
    )


def signed(request: Request, given: ReviewerAnswer, signer: Signer) -> SignedAnswer:
    """Return the signed answer to a request."""
    answer = unsigned(request, given, signer.key)
    return replace(answer, signature=signer.sign(answer))


def unsigned(request: Request, given: ReviewerAnswer, key: str = "") -> SignedAnswer:
    """Return the answer to a request that a key has to sign, as it was read by who signs."""
    return SignedAnswer(
        key=key,
        approved=given.approved,
        policy_version=request.policy_version,
        machine=request.machine,
        question=request.id,
        digest=request.digest,
        remember=given.remember if given.approved else None,
        note=clean_line(given.note)[:MAX_NOTE],
    )


def _whereabouts(place: str) -> str:
    """Return the user who answers, and the terminal: `joe on pts/3`.

    For the record; it proves nothing.
    """
    user, terminal = str(os.getuid()), "no terminal"
    with suppress(KeyError, OSError):
        user = pwd.getpwuid(os.getuid()).pw_name
    if place:
        return f"{user} in {place}"
    for descriptor in (0, 2, 1):
        with suppress(OSError):
            terminal = os.ttyname(descriptor).removeprefix("/dev/")
            break
    return f"{user} on {terminal}"


def answer(place: MailboxDirectory, request: Request, given: ReviewerAnswer) -> bool:
    """Answer a request. The answer repeats the digest of the request and never overwrites another.

    Returns:
        Whether the proxy took it.

    Raises:
        NotTheReviewerError: it is not this reviewer who was asked.
        OSError: it cannot be written.
    """
    posted = post(place, request, given)
    if posted is None:
        return False
    try:
        return outcomes([posted])[0]
    finally:
        posted.close()


def outcomes(posted: Sequence[Posted]) -> list[bool]:
    """Return whether the proxies accepted answers that were written together, in their order.

    The wait ends `WAIT_SECONDS` after the last of them was found taken or not: a proxy that is
    busy with some has as long for the others.
    """
    known: list[bool | None] = [None] * len(posted)
    end = time.monotonic() + WAIT_SECONDS
    while None in known and time.monotonic() < end:
        found = [
            one.outcome() if taken is None else taken
            for one, taken in zip(posted, known, strict=True)
        ]
        if found == known:
            time.sleep(_STEP_SECONDS)
        else:
            known, end = found, time.monotonic() + WAIT_SECONDS
    return [
        one.presumed() if taken is None else taken for one, taken in zip(posted, known, strict=True)
    ]


async def answer_async(place: MailboxDirectory, request: Request, given: ReviewerAnswer) -> bool:
    """Answer without blocking the event loop. If cancelled, the answer stays in place."""
    work = partial(answer, place, request, given)
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


def word_for(given: ReviewerAnswer, one: PendingRequest) -> str:
    """Return what a taken answer did, in a word."""
    if not given.approved:
        return "denied"
    if given.changed:
        return "approved with changes, if the policy does not deny them"
    # Whether another signature is needed, the proxy knows alone.
    return f"signed ({one.request.signatures} needed)" if one.request.signatures else "approved"


def changes_in(text: str, request: Request) -> dict[str, Json]:
    """Return the arguments that a JSON text gives another value than a request has.

    Args:
        text: an object with the changed arguments, or with all of them.
        request: the call.

    Raises:
        ConfigurationError: it is no such object, or changes nothing.
    """
    try:
        given = strict_json(text.encode("utf-8", "replace"))
    except ValueError:
        raise ConfigurationError("the changed arguments are not JSON") from None
    if not isinstance(given, dict):
        raise ConfigurationError("the changed arguments are not a JSON object")
    known = request.arguments
    found = {
        name: value
        for name, value in given.items()
        # As JSON: Python takes 1 and true for the same.
        if name not in known or orjson.dumps(known[name]) != orjson.dumps(value)
    }
    if len(orjson.dumps(found)) > _MOST_CHANGED:
        raise ConfigurationError(f"the changed arguments have more than {_MOST_CHANGED} bytes")
    if not found:
        raise ConfigurationError("nothing is changed: approve the call as it is")
    if not request.may_edit:
        raise ConfigurationError("the arguments of this call cannot be changed")
    return found


class SentAnswer(Struct, frozen=True):
    """The outcome of an answer, and its words."""

    told: str
    taken: bool = False
    """Whether the proxy took it."""
    waits: bool = False
    """Whether the call still waits for an answer."""


async def sent(mailboxes: Mailboxes, one: PendingRequest, given: ReviewerAnswer) -> SentAnswer:
    """Write an answer, and wait until the proxy has taken it."""
    told = summary(one)
    place = mailboxes.place_of(one)
    try:
        taken = place is not None and await answer_async(place, one.request, given)
    except OSError as error:
        return SentAnswer(f"not answered: {error.strerror}: {told}", waits=True)
    except ConfigurationError as error:
        return SentAnswer(f"not answered: {error}: {told}", waits=True)
    if taken:
        word = word_for(given, one)
        kept = " and remembered" if given.remember is not None else ""
        return SentAnswer(f"{word}{kept}: {told}", taken=True)
    waits = place is not None and still_waits(place, one.request)
    why = NOT_COUNTED if waits else "too late, no longer pending"
    return SentAnswer(f"{why}: {told}", waits=waits)


async def sent_to_all(
    mailboxes: Mailboxes, calls: Sequence[PendingRequest], given: ReviewerAnswer, *, is_card: bool
) -> tuple[SentAnswer, list[PendingRequest]]:
    """Answer several calls, which are named in one sentence.

    Args:
        mailboxes: of the calls.
        calls: at least one. What is remembered of the first covers the others.
        given: the answer to each.
        is_card: whether all stand for one question, so that the first is answered or none.

    Returns:
        The outcome of all, and the calls that still wait.
    """
    done = await sent(mailboxes, calls[0], given)
    if len(calls) == 1 or (is_card and not done.taken):
        return done, [*calls] if done.waits else [*calls[1:]]
    others = [await sent(mailboxes, one, replace(given, remember=None)) for one in calls[1:]]
    found = [*zip(calls, [done, *others], strict=True)]
    taken = [one for one, outcome in found if outcome.taken]
    left = [outcome.told for _, outcome in found if not outcome.taken]
    kept = " and remembered" if given.remember is not None else ""
    told = "; ".join(dict.fromkeys(map(summary, taken)))
    said = [f"{word_for(given, calls[0])}{kept} {len(taken)} of {len(calls)} calls: {told}"]
    told = ". But ".join([*said[: len(taken)], *dict.fromkeys(left)])
    still = [one for one, outcome in found if outcome.waits]
    return SentAnswer(told, taken=bool(taken)), still


# --- changes


_MAX_FILE_BYTES: Final = 256 * 1024
_MAX_LINES: Final = 8000
_PATHS: Final = ("path", "file_path", "filePath", "filename")
_OLD: Final = ("oldText", "old_text", "old_string", "old_str", "oldString")
_NEW: Final = ("newText", "new_text", "new_string", "new_str", "newString")
_CONTENT: Final = ("content", "contents", "text", "file_text")
_EVERYWHERE: Final = ("replace_all", "replaceAll")


class _Edit(NamedTuple):
    old: str
    new: str
    everywhere: bool
    names: frozenset[str]
    """The fields that say all this."""


class ShownChange(NamedTuple):
    """The diff of a call, as a person reads it."""

    lines: list[str]
    """The lines of the diff, safe to show. Empty if the call is not known to change a text."""
    shows: frozenset[str] = frozenset()
    """The arguments that the diff shows in full, so that they need not be shown again.

    The content that overwrites a file is none of them: of lines that the file has already the diff
    shows nothing, and the file may have others when the call is carried out."""


def changes_of(tool: str, arguments: Mapping[str, Json]) -> list[str]:
    """Return the lines of a call's diff."""
    return file_change(tool, arguments).lines


def file_change(tool: str, arguments: Mapping[str, Json]) -> ShownChange:
    """Return the diff of a call against the present file."""
    edits = _edits(arguments)
    path = _text(arguments, _PATHS)
    if edits:
        return _edited(path, edits, arguments)
    name = _named(arguments, _CONTENT)
    if path is None or name is None or "write" not in tool:
        return ShownChange([])
    present = _present(path)
    if present is None:
        return ShownChange([_UNREADABLE])
    lines = _diff(present.text, str(arguments[name]))
    if present.is_there:
        return ShownChange(lines)
    whole = frozenset([name]) if lines[0][0] == "@" else frozenset[str]()
    return ShownChange(["(a new file)", *lines], whole)


def _fully_shown(arguments: Mapping[str, Json], edits: Sequence[_Edit]) -> frozenset[str]:
    """Return the arguments that hold nothing but the texts of edits.

    An edit with any further field is shown in full: the server may read that one instead.
    """
    listed = arguments.get("edits")
    if not isinstance(listed, list):
        return edits[0].names
    known = [edit.names for edit in edits]
    plain = known == [frozenset(one) for one in listed if isinstance(one, dict)]
    return frozenset({"edits"}) if plain and len(known) == len(listed) else frozenset()


def _edits(arguments: Mapping[str, Json]) -> list[_Edit]:
    listed = arguments.get("edits")
    given = listed if isinstance(listed, list) else [dict(arguments)]
    return [edit for one in given if isinstance(one, dict) and (edit := _edit(one)) is not None]


def _edit(fields: Mapping[str, Json]) -> _Edit | None:
    old, new = _named(fields, _OLD), _named(fields, _NEW)
    if old is None or new is None:
        return None
    flags = [name for name in _EVERYWHERE if isinstance(fields.get(name), bool)]
    names = frozenset([old, new, *flags[:1]])
    everywhere = any(fields[name] is True for name in flags)
    return _Edit(str(fields[old]), str(fields[new]), everywhere, names)


def _edited(path: str | None, edits: Sequence[_Edit], arguments: Mapping[str, Json]) -> ShownChange:
    """Return the diff of the file, or that of the texts alone where the file cannot be shown."""
    present = None if path is None else _present(path)
    if present is None:
        return ShownChange(_by_texts(edits))
    if not present.is_there:
        return ShownChange(["(would fail: there is no such file)", *_by_texts(edits)])
    text = present.text
    missing: list[str] = []
    for number, edit in enumerate(edits, 1):
        if not edit.old or edit.old not in text:
            which = f" of edit {number}" if len(edits) > 1 else ""
            missing.append(f"(would fail: the text{which} to replace is not in the file)")
            continue
        text = text.replace(edit.old, edit.new, -1 if edit.everywhere else 1)
    if missing:
        return ShownChange([*missing, *_by_texts(edits)])
    lines = _diff(present.text, text)
    # A text that a later edit replaces is in no line: then the arguments are shown, too.
    shown = "\n".join([line for line in lines if line[0] != "-"])
    whole = all(visible(part) in shown for edit in edits for part in edit.new.split("\n"))
    return ShownChange(lines, _fully_shown(arguments, edits) if whole else frozenset())


def _by_texts(edits: Sequence[_Edit]) -> list[str]:
    return [line for edit in edits for line in _diff(edit.old, edit.new)]


def _diff(old: str, new: str) -> list[str]:
    # An empty text has no line, but `split` would give one.
    before, after = (text.split("\n") if text else [] for text in (old, new))
    if len(before) + len(after) > _MAX_LINES:
        return [f"({len(before)} lines before, {len(after)} lines after: too many for a diff)"]
    lines = list(islice(unified_diff(before, after, lineterm="", n=3), 2, None))
    return [visible(line) for line in lines] or ["(no change)"]


class _Present(NamedTuple):
    text: str
    is_there: bool


_UNREADABLE: Final = "(what the file holds now cannot be shown)"


def _present(path: str) -> _Present | None:
    """Return the present content of the file, or None if it cannot be shown."""
    try:
        # The agent may have named a device, which does something where it is only opened.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  text
            return None
        with opened(Path(path)) as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
        return None if len(raw) > _MAX_FILE_BYTES else _Present(raw.decode(), is_there=True)
    except FileNotFoundError:
        return _Present("", is_there=False)
    except (OSError, ValueError):
        return None


def _text(fields: Mapping[str, Json], names: Sequence[str]) -> str | None:
    name = _named(fields, names)
    return None if name is None else str(fields[name])


def _named(fields: Mapping[str, Json], names: Sequence[str]) -> str | None:
    """Return the first of the names whose field is a text."""
    return next((name for name in names if isinstance(fields.get(name), str)), None)
