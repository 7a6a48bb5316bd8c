"""The outcome of a call for the agent and for the audit log, and the changes it made.

A server's own questions (`elicitation/create`, `sampling/createMessage`) are refused. An answer can
carry the same question: an error that sends the user to a URL, a result that wants more input, a
task that is to be fetched later. A client acts on each, so each is a question, too.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, NewType, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.decision import HUMAN, Decider, Effect, Ground
from ironcurtain_proxy.model.operation import METHODS, TOOL_CALL, RequestId, named_in
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Arguments, Json, RealPath, list_of, object_of

# --- audit


ResultStatus: TypeAlias = Literal["success", "denied", "error"]
"""The end of the call: the server answered, the proxy refused, or something failed."""

EscalationResult: TypeAlias = Literal["approved", "denied"]


RecordedDoor: TypeAlias = Literal["mcp", "http", "process", "hook"]
"""The door by which a call came: the agent's pipes, the front over HTTP, a Python program, or the
hook of a client."""


class OwnField(NamedTuple):
    """An additional record field in the proxy's own words, which is not scanned for secrets.

    A plain pair holds what came from an agent, a server or a reviewer.
    """

    name: str
    value: Json


class ResultSummary(Struct, frozen=True, kw_only=True):
    """The size and digest of a result. Its content is never recorded."""

    status: ResultStatus
    error: str | None = None
    size: int | None = None
    """Bytes of the result's compact JSON; None if there was none."""
    sha256: str | None = None
    asked: str | None = None
    """The kind of question that the answer carried. It is withheld then, unless its pages are
    allowed."""


EndedFor: TypeAlias = Literal["", "writers", "all"]
"""Whose calls are contained no more. `writers`: those of servers that write in the workspace at
once, because too much was put back. `all`: something could not be put back, or nobody knows. Empty:
nobody's."""


class PutBack(Struct, frozen=True):
    """A file that can steer programs outside the sandboxes, and was restored after a call."""

    said: str
    """The file and what was done with it, as a sentence without its full stop."""
    kept: str = ""
    """The copy of the removed content, or empty if there is none. Not shown to the agent."""
    acts: bool = True
    """Whether a program of the host is known to act on it. It is False if nobody knows."""
    ends: EndedFor = ""
    """For whom containment ends with it."""

    @property
    def full(self) -> str:
        """The sentence with the place where the content is kept, for the operator."""
        return f"{self.said}; what was there is kept as {self.kept}" if self.kept else self.said


class AuditRecord(Struct, frozen=True, kw_only=True):
    """One entry: an intent before a call is forwarded, or the outcome of a call."""

    timestamp: datetime
    """Aware, UTC."""
    request_id: RequestId
    session: str
    server: str
    tool: str
    arguments: Arguments
    effect: Effect
    rule: str
    reason: str
    decided_by: Decider
    client: str = ""
    """The agent's program, as it names itself; untrusted. It is empty if it is not known."""
    origins: tuple[str, ...] = ()
    """The origins of a review: `policy`, `capability`, `tool-policy`, `secrets`."""
    policy_version: str = ""
    escalation_result: EscalationResult | None = None
    result: ResultSummary | None = None
    """The outcome, or None if the record is an intent."""
    duration_ms: int = 0
    sandboxed: bool | None = None
    """Whether the process that served the call is confined; None if no server was involved."""
    context: tuple[tuple[str, Json], ...] = ()
    """Additional fields, such as `("autoApproved", true)`; see `OwnField`."""


# --- reply


RefusedBy: TypeAlias = Literal[
    "unknown-tool",
    "arguments",
    "policy",
    "no-reviewer",
    "declined",
    "expired",
    "lapsed",
    "held",
    "limit",
    "breaker",
    "busy",
    "audit",
    "kernel",
]
"""The part that refused the call.

`unknown-tool` and `arguments`: the call could not be read. `policy`: the kernel denied it.
`no-reviewer`: a reviewer was needed and none can be reached. `declined`: a reviewer refused, or the
answer was invalid. `expired`: no answer came in time. `lapsed`: an earlier approval ended while the
call waited. `held`: its question is still open, and the call may be repeated. `limit`: nobody was
asked, because too many questions of the session are open. `breaker`: the same call was repeated too
often. `busy`: its server has not started, or other calls did not end, of all or on its repository.
`audit`: the call could not be recorded.
`kernel`: a defect of the proxy.
"""


class Allowed(Struct, frozen=True):
    """The reason that allowed a call, as the record has it."""

    rule: str
    """The policy's rule that allowed the call, or that asked for a reviewer."""
    by: Decider
    """The kernel where the policy alone allowed it."""
    changed: tuple[str, ...] = ()
    """The arguments that a person changed before the call was made."""


class Answered(Struct, frozen=True, kw_only=True):
    """The server answered the call with a result or an error."""

    result: ToolResult
    recorded: bool = True
    """Whether the outcome was recorded, or False if the call was carried out, and its record
    failed."""
    put_back: tuple[PutBack, ...] = ()
    """Files that were restored after the call."""
    allowed: Allowed | None = None
    """The ground of the call; None: a tool of the proxy itself answered."""


class Refused(Struct, frozen=True, kw_only=True):
    """The call was not forwarded."""

    by: RefusedBy
    ground: Ground
    note: str = ""
    """The reviewer's message to the agent, or the number of the question of a held call."""
    decider: Decider = HUMAN
    """The decider of a `declined` call. `model:NAME` is a reviewer that is a language model."""


class Failed(Struct, frozen=True, kw_only=True):
    """The call was forwarded, or about to be, and no answer came."""

    message: str
    """One line for the agent, without internals."""
    perhaps_done: bool = False
    """The server received the call, so it may have been carried out."""
    recorded: bool = True
    put_back: tuple[PutBack, ...] = ()
    """See `Answered.put_back`."""
    allowed: Allowed | None = None
    """The ground of the call; None: not known, because of a defect of the proxy."""


class Withheld(Struct, frozen=True, kw_only=True):
    """The call was carried out or begun, and its answer is withheld: it carries a question."""

    ground: Ground
    recorded: bool = True
    put_back: tuple[PutBack, ...] = ()
    """See `Answered.put_back`."""


Reply: TypeAlias = Answered | Refused | Failed | Withheld
"""The outcome of a call."""


# --- asking


URL_ELICITATION_REQUIRED: Final = -32042
"""MCP's error that asks the client to open URLs."""

COMPLETE: Final = "complete"
"""The one `resultType` that marks a finished answer."""

_WORDS: Final = 40
_MOST_PAGES: Final = 4
"""The most pages of one error."""


def question_in(answer: ToolResult) -> str | None:
    """Return the kind of question that an answer carries, as a short name.

    It is None if it carries none.
    """
    if answer.error is not None:
        return _in_error(answer.error)
    result = answer.result or {}
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        return f"result type {kind[:_WORDS] if isinstance(kind, str) else 'that is no text'}"
    if "inputRequests" in result or "requestState" in result:
        return "result type input_required"
    return "result type task" if "task" in result else None


def _in_error(error: Mapping[str, Json]) -> str | None:
    # Also -32042.0 and "-32042": clients read those as the same code.
    code, data = error.get("code"), error.get("data")
    asks = code == URL_ELICITATION_REQUIRED or (
        isinstance(code, str) and code.strip() == str(URL_ELICITATION_REQUIRED)
    )
    if asks or (isinstance(data, dict) and "elicitations" in data):
        return "url elicitation, error -32042"
    return None


def pages_in(answer: ToolResult) -> list[Mapping[str, Json]]:
    """Return the pages that an error wants opened before its request is made again.

    It is empty if it is no error as the protocol has it, with pages alone.
    """
    error = answer.error or {}
    found = object_of(error.get("data")).get("elicitations")
    pages = [one for one in list_of(found) if isinstance(one, dict)]
    are_pages = all(
        one.get("mode") == "url" and isinstance(one.get("elicitationId"), str) for one in pages
    )
    is_whole = error.get("code") == URL_ELICITATION_REQUIRED and pages == found and are_pages
    return [*pages] if is_whole and len(pages) <= _MOST_PAGES else []


# --- timeline


PointId = NewType("PointId", str)
"""The name of a point, such as `12`: its index in the timeline of its workspace."""

ChangeKind: TypeAlias = Literal["created", "changed", "deleted", "mode"]
"""The kind of change at a path. `changed`: its content or file type; `mode`: only its mode."""


class NotHeld(Struct, frozen=True):
    """The workspace cannot be recorded as it is, so a call could not be undone."""

    reason: str
    """One line for the operator and the record, without paths."""


class PathNotHeld(Struct, frozen=True, order=True):
    """A path that could not be brought back if a call deleted it."""

    path: RealPath
    why: str
    """The reason in a few words, such as `it is too large`."""

    def __str__(self) -> str:
        name = str(self.path).encode("utf-8", "backslashreplace").decode()
        return f"{name} ({self.why})"


class Change(Struct, frozen=True, order=True):
    """The change at one path."""

    path: str
    """The path below the workspace, such as `src/a.py`; bytes that are not UTF-8 as `os.fsdecode`
    gives them."""
    kind: ChangeKind


# --- view


class NotTaken(Struct, frozen=True):
    """A change that does not come into the workspace."""

    path: str
    """Below the workspace, as `os.fsdecode` gives it."""
    why: str

    def __str__(self) -> str:
        name = self.path.encode("utf-8", "backslashreplace").decode()
        return f"{name} ({self.why})"


class ViewChanges(Struct, frozen=True, kw_only=True):
    """The changes that are prepared in a view."""

    paths: tuple[str, ...]
    """Each changed path below the workspace; a directory stands for all that is in it."""
    kept_back: tuple[NotTaken, ...]
    """Control places, which need an approval of their own."""
    others: tuple[NotTaken, ...]
    """What does not come into the workspace for another reason."""


# --- conventions


_TARGETS: Final[Mapping[str, str]] = {
    TOOL_CALL: "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
}
"""The attribute for what a method asks for. A URI of a resource is an argument, and has none."""


def method_and_target(action: str, longest: int | None = None) -> tuple[str, Mapping[str, str]]:
    """Return the method of an action, and the attribute with the name of its tool or prompt.

    Args:
        action: the `toolName` of a record: `read_file`, `prompts/get fetch`, `resources/read`.
        longest: characters of the name.
    """
    method = action.partition(" ")[0]
    if method not in METHODS:
        return TOOL_CALL, {_TARGETS[TOOL_CALL]: action[:longest]}
    attribute = _TARGETS.get(method)
    return method, {} if attribute is None else {attribute: named_in(action)[:longest]}
