"""The files of the mailbox as bytes: requests and responses.

Knows the original's shapes and our additions to them; does not know where the files lie. Whatever
is not an explicit, well-formed `approved` becomes a refusal here.
"""

import hashlib
import hmac
import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar, Final, TypeAlias, TypeGuard

import orjson
from msgspec import Struct

from ironcurtain_proxy.model.decision import HUMAN, KERNEL, Decider, Program
from ironcurtain_proxy.model.escalation import FOREVER, Approved, Declined, Escalation
from ironcurtain_proxy.model.request import effect_word
from ironcurtain_proxy.model.signing import SignedAnswer
from ironcurtain_proxy.model.values import (
    BootMoment,
    Json,
    WithSecrets,
    boot_moment,
    lazy,
    list_of,
    object_of,
    text_of,
    words,
)
from ironcurtain_proxy.strict_json import strict_json

_PURPOSE: Final = "ironcurtain-answer-1"
_PROVED: Final = ("reviewer", "escalationId", "requestDigest", "decision", "note")
"""The keys that a proof covers, in this order. Only the last value may contain line ends."""
_REDACTED: Final = "***"


class Credential(WithSecrets, frozen=True):
    """The reviewer whose answers count, and the token that authenticates them."""

    hidden: ClassVar[frozenset[str]] = frozenset({"token"})

    reviewer: str
    token: str

    def proof(self, answer: Mapping[str, object]) -> str:
        """Return the proof that an answer carries instead of the token.

        HMAC-SHA256 in hexadecimal, its key the token, over lines: `ironcurtain-answer-1`, then the
        answer's `reviewer`, `escalationId`, `requestDigest`, `decision` and `note`.
        """
        lines = "\n".join([_PURPOSE, *[text_of(answer.get(key)) for key in _PROVED]])
        return hmac.new(_bytes(self.token), _bytes(lines), hashlib.sha256).hexdigest()

    def objection(self, answer: Mapping[str, object], question: str, digest: str) -> str:
        """Return why an answer is not this reviewer's answer to this question, or empty if it is.

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
        """Return a text for the record and the agent, with the token removed."""
        return words.replace(self.token, _REDACTED)

    def _vouches_for(self, answer: Mapping[str, object]) -> bool:
        if "proof" in answer:
            said = text_of(answer.get("proof"))
            return hmac.compare_digest(_bytes(said), _bytes(self.proof(answer)))
        return hmac.compare_digest(_bytes(text_of(answer.get("token"))), _bytes(self.token))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


MAX_RESPONSE_BYTES: Final = 64 * 1024
MAX_REQUEST_BYTES: Final = 256 * 1024 * 1024
MAX_NOTE: Final = 1000
MAX_ORIGIN: Final = 100
"""The largest number of characters of an origin."""

_ID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REQUEST: Final = lazy(rf"request-({_ID})\.json", re.ASCII)
_RESPONSE: Final = lazy(rf"response-({_ID})(?:-[0-9a-f]{{16}})?\.json", re.ASCII)
_BESIDE: Final = lazy(rf"(?:claim|settled)-({_ID})\.json", re.ASCII)
_WHOLE_ID: Final = lazy(_ID, re.ASCII)
_REVIEWER: Final = lazy(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,63}", re.ASCII)

_UNKNOWN: Final = ("the proxy that asks does not say that it is harmless",)


class Owner(Struct, frozen=True):
    """The process that wrote a request and waits for its answer."""

    pid: int
    start_time: str
    """The start of the process, to tell it from a later process with the same number; empty:
    unknown."""


class Request(Struct, frozen=True, kw_only=True):
    """A request as a reviewer's side reads it. The arguments are an agent's words: untrusted."""

    id: str
    server: str
    tool: str
    arguments: Mapping[str, Json]
    reason: str
    digest: str
    """SHA-256 of the bytes that this was read from; an answer repeats it."""
    context: tuple[tuple[str, str], ...] = ()
    candidates: tuple[str, ...] = ()
    """The descriptions of what may be remembered."""
    session: str = ""
    exposed_name: str = ""
    rule: str = ""
    origins: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """What the call does, in sentences, the gravest first, or empty if it is not said."""
    why: tuple[tuple[str, str], ...] = ()
    asking: tuple[str, ...] = ()
    roles: tuple[str, ...] | None = None
    """Every argument role of the call, or None if not said, as by the original."""
    effect: str = ""
    alone: tuple[str, ...] = _UNKNOWN
    """Why "approve all" leaves the request out; empty if the call is known to be harmless. Requests
    of the original and of earlier versions do not say."""
    created: datetime | None = None
    expires: datetime | None = None
    ends: BootMoment | None = None
    policy_version: str = ""
    arguments_hash: str = ""
    owner: Owner | None = None
    reviewer: str = ""
    """The only reviewer that may answer, with a token, or empty if anyone may."""
    subject: str = ""
    """A digest of what an answer depends on, where the question outlives its proxy."""
    signatures: str = ""
    """The signatures that an approval needs, in words, or empty if there is none."""
    risk: str = ""
    machine: str = ""
    host: str = ""
    """The name of the machine, as people know it."""
    may_edit: bool = False
    """Whether a person may change arguments and approve the changed call."""


class Expected(Struct, frozen=True, kw_only=True):
    """The data that an answer to one escalation is checked against."""

    digest: str
    """SHA-256 of the request's bytes as the proxy wrote them."""
    require_digest: bool
    candidates: int
    """The number of candidates."""
    session: str
    id: str = ""
    credential: Credential | None = None
    """The credential of the only reviewer whose answers count, or None if all answers count."""
    may_edit: bool = False


Answer: TypeAlias = Approved | Declined


def is_id(text: str) -> bool:
    """Return whether a text is a UUID in lower case, which may be part of a file name."""
    return _WHOLE_ID.fullmatch(text) is not None


def request_name(escalation: str) -> str:
    """Return the request's file name."""
    return f"request-{escalation}.json"


def response_name(escalation: str, word: str = "") -> str:
    """Return the response's file name.

    With a word of 16 hexadecimal digits it cannot be foreseen.
    """
    return f"response-{escalation}{'-' if word else ''}{word}.json"


def request_id(name: str) -> str | None:
    """Return the id in the name of a request file, or None if it is no request."""
    found = _REQUEST.fullmatch(name)
    return None if found is None else found[1]


def response_id(name: str) -> str | None:
    """Return the id in the name of a response file, or None if it is no response."""
    found = _RESPONSE.fullmatch(name)
    return None if found is None else found[1]


def claim_name(escalation: str) -> str:
    """Return the name of the file of who has adopted a question."""
    return f"claim-{escalation}.json"


def settled_name(escalation: str) -> str:
    """Return the name of the file that says that a question is approved, and not yet used."""
    return f"settled-{escalation}.json"


def id_beside(name: str) -> str | None:
    """Return the id in the name of a file that only counts beside its request, or None."""
    found = _RESPONSE.fullmatch(name) or _BESIDE.fullmatch(name)
    return None if found is None else found[1]


def digest_of(raw: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def clean_line(text: str) -> str:
    """Return one line of visible characters.

    Other characters could act on a terminal or a model.
    """
    spaced = " ".join(text.split())
    return "".join([char for char in spaced if unicodedata.category(char)[0] != "C"]).strip()


# --- the proxy's side ----------------------------------------------------------------------------


def request_bytes(
    escalation: Escalation,
    owner: Owner,
    reviewer: str = "",
    ends: BootMoment | None = None,
    subject: str = "",
    host: str = "",
) -> bytes:
    """Return the content of a request's file: the original's keys first, then this project's.

    Args:
        escalation: the question.
        owner: who waits for the answer.
        reviewer: who alone may answer, with a token; empty: whoever reads it.
        ends: the deadline by the count of this boot.
        subject: see `adoption.subject_of`; empty: the question ends with its proxy.
        host: the machine's name for people.

    Raises:
        TypeError: the arguments cannot be written as JSON (orjson's `JSONEncodeError`).
    """
    fields: dict[str, object] = {
        "escalationId": escalation.id,
        "serverName": escalation.server,
        "toolName": escalation.tool,
        "arguments": dict(escalation.arguments),
        "reason": escalation.ground.reason,
    }
    if escalation.context:
        fields["context"] = dict(escalation.context)
    if escalation.candidates:
        fields["whitelistCandidates"] = [
            {"description": candidate.description} for candidate in escalation.candidates
        ]
    roles = [role for fact in escalation.request.arguments if fact.values for role in fact.roles]
    fields |= {
        "exposedName": escalation.exposed_name,
        "session": escalation.session,
        "rule": escalation.ground.rule,
        "told": list(escalation.told),
        "origins": list(escalation.origins),
        "reasons": [
            {
                "origin": reason.origin,
                "rule": reason.ground.rule,
                "reason": reason.ground.reason,
                "capabilities": list(reason.capabilities),
            }
            for reason in escalation.reasons
        ],
        "effect": effect_word(escalation.request),
        "roles": list(dict.fromkeys([*escalation.roles, *roles])),
        "alone": list(escalation.alone),
        # Finer than elsewhere: requests are listed in the order in which they came.
        "createdAt": timestamp(escalation.created, "microseconds"),
        "policyVersion": escalation.policy_version,
        "argumentsHash": escalation.fingerprint,
        "owner": {"pid": owner.pid, "startTime": owner.start_time},
    }
    if escalation.deadline - escalation.created < FOREVER:
        fields["expiresAt"] = timestamp(escalation.deadline)
        if ends is not None:
            fields["expiresInBoot"] = ends.as_json()
    may_edit = escalation.editable and escalation.signing is None and not reviewer
    said = {"mayEdit": may_edit, "subject": subject, "reviewer": reviewer}
    fields |= {name: value for name, value in said.items() if value}
    if (need := escalation.signing) is not None:
        # The host is signed, too: a database that names another machine deceives nobody.
        said = {"risk": need.risk, "machine": need.machine, "host": host}
        fields |= {"signatures": str(need), **said}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


_OF_ONE_PROXY: Final = words("escalationId session createdAt expiresAt expiresInBoot owner")
"""The keys of a request that differ where another proxy asks the same."""


def asks_the_same(raw: bytes, other: bytes) -> bool:
    """Return whether two requests show a person the same, but for who asks and when.

    Raises:
        TypeError: one is nested too deeply.
    """
    shown = [object_of(strict_json(one)) for one in (raw, other)]
    # As JSON: Python takes 1 and true for the same.
    left = [{name: one[name] for name in one if name not in _OF_ONE_PROXY} for one in shown]
    return len({orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in left}) == 1


def timestamp(moment: datetime, precision: str = "milliseconds") -> str:
    """RFC 3339 in UTC, by default with milliseconds, as JavaScript writes it."""
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def judge_response(raw: bytes, expected: Expected) -> Answer:
    """Return the ruling that a response file stands for. Any invalid response refuses the call."""
    try:
        fields = strict_json(raw)
    except orjson.JSONDecodeError:
        return invalid("the response is not JSON")
    if not isinstance(fields, dict):
        return invalid("the response is not a JSON object")
    if problem := _problem(fields, expected) or _why_no_edit(fields, expected):
        return invalid(problem)
    name, note = text_of(fields.get("reviewer")), clean_line(text_of(fields.get("note")))
    chosen = fields.get("whitelistSelection")
    remember = chosen if _is_place(chosen, expected.candidates) else None
    if expected.credential is not None:
        # Only a person has anything remembered; and no proof covers it.
        note, remember = expected.credential.kept_out_of(note), None
    by: Decider = HUMAN
    if name:
        by = Program(name, "named" if expected.credential is None else "session")
    said = "" if expected.credential else text_of(fields.get("answeredFrom"))
    origin = clean_line(said)[:MAX_ORIGIN]
    details: tuple[tuple[str, Json], ...] = (("answeredFrom", origin),) if origin else ()
    if fields["decision"] == "denied":
        return Declined(by=by, kind="denied", note=note, details=details)
    changed = fields.get("arguments")
    return Approved(
        by=by,
        remember=remember,
        note=note,
        details=details,
        changed=changed if isinstance(changed, dict) else None,
    )


def _problem(fields: Mapping[str, object], expected: Expected) -> str:
    """Return why the response is invalid, or empty if it is valid."""
    if fields.get("decision") not in ("approved", "denied"):
        return 'the response\'s decision is neither "approved" nor "denied"'
    note = fields.get("note", "")
    if not isinstance(note, str) or len(note) > MAX_NOTE:
        return f"the response's note is not a text of at most {MAX_NOTE} characters"
    if expected.credential is not None:
        return expected.credential.objection(fields, expected.id, expected.digest)
    reviewer = fields.get("reviewer", "someone")
    if not isinstance(reviewer, str) or _REVIEWER.fullmatch(reviewer) is None:
        return "the response's reviewer is not a name"
    if reviewer == expected.session:
        return "a session does not review itself"
    # A refusal counts whatever was shown.
    return "" if fields["decision"] == "denied" else _why_no_approval(fields, expected)


def _why_no_edit(fields: Mapping[str, object], expected: Expected) -> str:
    """Return why arguments may not be changed. Neither a proof nor a signature covers them."""
    if fields["decision"] != "approved" or "arguments" not in fields:
        return ""
    changed = fields["arguments"]
    if not expected.may_edit or expected.credential is not None or "reviewer" in fields:
        return "the response changes arguments, which nobody may do here"
    if not isinstance(changed, dict) or not changed:
        return "the response's arguments are not an object with those that are changed"
    if "requestDigest" not in fields or "whitelistSelection" in fields:
        return "a response that changes arguments names what was shown, and remembers nothing"
    return ""


def _why_no_approval(fields: Mapping[str, object], expected: Expected) -> str:
    chosen = fields.get("whitelistSelection")
    if chosen is not None and not _is_place(chosen, expected.candidates):
        return f"the response would remember what was not offered ({expected.candidates} offered)"
    if "requestDigest" not in fields:
        return "the response does not say what was shown" if expected.require_digest else ""
    if fields["requestDigest"] != expected.digest:
        return "the response answers something other than what was asked"
    return ""


def invalid(reason: str) -> Declined:
    """Return the refusal of one call because its answer could not be accepted."""
    return Declined(by=KERNEL, kind="invalid", reason=reason)


def _is_place(chosen: object, candidates: int) -> TypeGuard[int]:
    """Return whether a choice is the index of a candidate: True is no number, 0.0 no integer."""
    return isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < candidates


_TEXTS: Final[Mapping[str, str]] = {
    one.partition("=")[0]: one.partition("=")[2] or one
    for one in words(
        """
        id=escalationId server=serverName tool=toolName reason exposed_name=exposedName
        policy_version=policyVersion arguments_hash=argumentsHash session rule effect reviewer
        subject signatures risk machine host
        """
    )
}
"""The fields of a request that are texts, by the keys of its file."""


def read_request(name: str, raw: bytes) -> Request | None:
    """Parse a request file of this proxy or the original, or None if it is invalid."""
    try:
        fields = strict_json(raw)
        # What is nested too deeply to be written again would end the screen that shows it, with
        # all other questions on it.
        _ = orjson.dumps(fields)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    if not isinstance(fields, dict) or fields.get("escalationId") != request_id(name):
        return None
    arguments = fields.get("arguments")
    required = [fields.get(key) for key in ("escalationId", "serverName", "toolName", "reason")]
    if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in required):
        return None
    return Request(
        **{name: text_of(fields.get(key)) for name, key in _TEXTS.items()},
        arguments=arguments,
        digest=digest_of(raw),
        context=_context(fields.get("context")),
        candidates=_candidates(fields.get("whitelistCandidates")),
        origins=_texts(fields.get("origins")) or (),
        told=_texts(fields.get("told")) or (),
        why=tuple(
            [(text_of(one.get("origin")), text_of(one.get("reason"))) for one in _reasons(fields)]
        ),
        asking=tuple(
            [name for one in _reasons(fields) for name in _texts(one.get("capabilities")) or ()]
        ),
        roles=_texts(fields.get("roles")),
        alone=_UNKNOWN if (said := _texts(fields.get("alone"))) is None else said,
        created=_moment(fields.get("createdAt")),
        expires=_moment(fields.get("expiresAt")),
        ends=boot_moment(fields.get("expiresInBoot")),
        owner=owner_of(fields.get("owner")),
        may_edit=fields.get("mayEdit") is True,
    )


def response_bytes(
    *,
    approved: bool,
    digest: str,
    remember: int | None,
    note: str,
    reviewer: str = "",
    changed: Mapping[str, Json] | None = None,
    **own: str,
) -> bytes:
    """Return a response file; `own` are fields that only the record needs."""
    fields: dict[str, object] = {"decision": "approved" if approved else "denied", **own}
    if approved and remember is not None:
        fields["whitelistSelection"] = remember
    said = {"note": note, "reviewer": reviewer, "arguments": changed, "requestDigest": digest}
    return orjson.dumps(fields | {name: value for name, value in said.items() if value})


def proved_response_bytes(
    *, approved: bool, request: Request, note: str, credential: Credential
) -> bytes:
    """Return a response file in a mailbox that is one reviewer's. The token itself is not in it."""
    fields: dict[str, object] = {
        "decision": "approved" if approved else "denied",
        "escalationId": request.id,
        "requestDigest": request.digest,
        "reviewer": credential.reviewer,
        "note": credential.kept_out_of(note),
    }
    return orjson.dumps({**fields, "proof": credential.proof(fields)})


def signed_response_bytes(answer: SignedAnswer) -> bytes:
    """Return the file of a signed answer."""
    fields: dict[str, object] = {
        "decision": "approved" if answer.approved else "denied",
        "escalationId": answer.question,
        "requestDigest": answer.digest,
        "policyVersion": answer.policy_version,
        "machine": answer.machine,
        "note": answer.note,
        "key": answer.key,
        "signature": b64encode(answer.signature).decode(),
    }
    if answer.remember is not None:
        fields["whitelistSelection"] = answer.remember
    if answer.client:
        fields["authenticatorData"] = b64encode(answer.authenticator).decode()
        fields["clientData"] = b64encode(answer.client).decode()
    return orjson.dumps(fields)


def read_signed(raw: bytes) -> SignedAnswer | str:
    """Return the signed answer in a file, or why it is none. Its signature is not checked here."""
    try:
        fields = object_of(strict_json(raw))
        signature, authenticator, client = [
            b64decode(text_of(fields.get(name)), validate=True)
            for name in ("signature", "authenticatorData", "clientData")
        ]
    except ValueError:
        return "the response is not JSON, or its signature not Base64"
    if not signature:
        return "the response is not signed"
    chosen, note = fields.get("whitelistSelection"), fields.get("note", "")
    if fields.get("decision") not in ("approved", "denied"):
        return 'the response\'s decision is neither "approved" nor "denied"'
    if not isinstance(note, str) or note != clean_line(note)[:MAX_NOTE]:
        return f"the response's note is not a line of at most {MAX_NOTE} characters"
    if chosen is not None and (isinstance(chosen, bool) or not isinstance(chosen, int)):
        return "the response would remember what was not offered"
    return SignedAnswer(
        key=text_of(fields.get("key")),
        approved=fields["decision"] == "approved",
        policy_version=text_of(fields.get("policyVersion")),
        machine=text_of(fields.get("machine")),
        question=text_of(fields.get("escalationId")),
        digest=text_of(fields.get("requestDigest")),
        remember=chosen,
        note=note,
        signature=signature,
        authenticator=authenticator,
        client=client,
    )


def owner_of(value: object) -> Owner | None:
    """Parse the owner in a file, or None if it is invalid."""
    pid, start = [object_of(value).get(name) for name in ("pid", "startTime")]
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return None
    return Owner(pid, text_of(start))


def _texts(value: object) -> tuple[str, ...] | None:
    found = [item for item in list_of(value) if isinstance(item, str)]
    return tuple(found) if isinstance(value, list) else None


def _context(value: object) -> tuple[tuple[str, str], ...]:
    return tuple([(key, text) for key, text in object_of(value).items() if isinstance(text, str)])


def _candidates(value: object) -> tuple[str, ...]:
    """Return the candidates.

    An invalid one keeps its index, because answers name candidates by index.
    """
    return tuple([text_of(object_of(item).get("description")) for item in list_of(value)])


def _reasons(fields: Mapping[str, object]) -> list[Mapping[str, object]]:
    return [one for one in list_of(fields.get("reasons")) if isinstance(one, dict)]


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
