"""What the agent reads: the texts of replies, and the proxy's own tools.

A refusal has two blocks: the first says what happened, in words that other programs match; the
second says why, and what to do. The texts name no files, commands of servers or exceptions.

The proxy's own tools show the state of the session, announce a plan, or carry out a composite of
calls that the operator wrote; each of its calls is decided like any other. Their prefix is
reserved: a server's tool with such a name is never reached.

There are two eras of the protocol. Until 2025-11-25 a client sends `initialize`, and what it says
there holds for its connection. Since 2026-07-28 each request says in its `_meta` which version it
speaks and what its client can do, and each result says that it is complete and who gives it. The
era belongs to the request: both may be spoken on one connection.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias, assert_never

import orjson

from ironcurtain_proxy.jsonrpc.codec import INVALID_PARAMS, encode, value_at
from ironcurtain_proxy.model.decision import (
    CONTAINMENT,
    ClientDialog,
    Contained,
    Decider,
    Engine,
    Grants,
    LlmApprover,
    Nobody,
    Person,
    Program,
    ProxyItself,
    Signers,
)
from ironcurtain_proxy.model.escalation import Escalation, visible
from ironcurtain_proxy.model.operation import (
    CAPABILITIES_KEY,
    HANDSHAKE_VERSIONS,
    INFO_KEY,
    LEVEL_KEY,
    SERVER_INFO_KEY,
    TASKS,
    VERSION_KEY,
    VERSIONS,
    Caller,
    CompositeSpec,
)
from ironcurtain_proxy.model.reply import (
    COMPLETE,
    URL_ELICITATION_REQUIRED,
    Answered,
    Failed,
    Refused,
    RefusedBy,
    Reply,
    Withheld,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Arguments, Json, list_of, object_of
from ironcurtain_proxy.version import VERSION

# --- the eras

_Answer: TypeAlias = Mapping[str, object]
"""`{"result": …}` or `{"error": …}`."""

NAME: Final = "ironcurtain-proxy"

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The severities of log messages, the least severe first."""

UNSUPPORTED_VERSION: Final = -32022
MISSING_CAPABILITY: Final = -32021
HEADER_MISMATCH: Final = -32020
NO_SUCH_RESOURCE: Final = -32002
"""The code of a missing resource until 2025-11-25; later it is that of wrong parameters."""

_INFO: Final[Mapping[str, Json]] = MappingProxyType({"name": NAME, "version": VERSION})

REMOVED: Final = frozenset(
    {*("initialize", "ping", "logging/setLevel"), *("resources/subscribe", "resources/unsubscribe")}
)
"""The methods that no request of the newer era may use."""

_CACHED: Final = frozenset(
    {
        *("server/discover", "resources/read", "resources/list", "resources/templates/list"),
        *("tools/list", "prompts/list"),
    }
)
"""The methods whose results say how long they may be used again."""

NOT_CROSSING: Final = frozenset({TASKS})
"""Extensions that clients and servers cannot use with each other through the proxy."""

CAPABILITIES: Final[Mapping[str, Json]] = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "tools": {"listChanged": True},
}
"""The capabilities that the proxy declares to the agent, as far as its servers have them."""

_OF_SERVERS: Final = ("completions", "prompts", "resources")
"""Those among them that only servers have."""

_MOST_ASKED: Final = 100
_ENDED: Final = (NO_SUCH_RESOURCE, URL_ELICITATION_REQUIRED)
"""The codes of errors that the newer era has not."""


def is_introduction(params: Mapping[str, Json]) -> bool:
    """Return whether the parameters of `initialize` are complete."""
    info = params.get("clientInfo")
    said = info if isinstance(info, dict) else {}
    texts = (params.get("protocolVersion"), said.get("name"), said.get("version"))
    is_able = isinstance(params.get("capabilities"), dict)
    return is_able and all(isinstance(one, str) for one in texts)


def introduction(params: Mapping[str, Json], title: str) -> dict[str, Json]:
    """Return the result of `initialize`, without instructions and capabilities."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0],
        "serverInfo": {**_INFO, **({"title": title} if title else {})},
    }


# --- the era without a handshake


def is_modern(method: str, params: Mapping[str, Json]) -> bool:
    """Return whether a request names its version itself.

    A handshake may name the version that it offers there, too: servers of both eras are greeted so.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return False
    return method != "initialize" or meta[VERSION_KEY] not in HANDSHAKE_VERSIONS


def caller_of(params: Mapping[str, Json], number: int = 0) -> Caller | _Answer:
    """Return who makes a request, or the error of a request that does not say it as it must.

    Args:
        params: of the request.
        number: the proxy's own number of the request.
    """
    said = object_of(params.get("_meta"))
    version, capabilities = said.get(VERSION_KEY), said.get(CAPABILITIES_KEY)
    info, level = said.get(INFO_KEY), said.get(LEVEL_KEY)
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        needs = f"{VERSION_KEY} (string) and {CAPABILITIES_KEY} (object)"
        return fault(
            INVALID_PARAMS, f"_meta needs {needs}, unless the connection began with initialize"
        )
    if version not in VERSIONS:
        return unsupported_version(version)
    if level is not None and level not in LEVELS:
        return fault(INVALID_PARAMS, f"{LEVEL_KEY} must be one of {', '.join(LEVELS)}")
    return Caller(
        version=version,
        capabilities=capabilities,
        info=info if isinstance(info, dict) else {},
        log_level=str(level or ""),
        number=number,
    )


def unsupported_version(asked: str) -> _Answer:
    """Return the error for a version that is not served without a handshake."""
    data: dict[str, Json] = {"supported": [*VERSIONS], "requested": asked[:_MOST_ASKED]}
    return fault(UNSUPPORTED_VERSION, f"this version is not served; {', '.join(VERSIONS)} is", data)


def without_tasks(caller: Caller) -> _Answer | None:
    """Return the error for a request about a task whose client does not declare them."""
    if caller.knows_tasks:
        return None
    data: dict[str, Json] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return fault(MISSING_CAPABILITY, f"the client has to declare {TASKS}", data)


def discovery(instructions: str, capabilities: Mapping[str, Json]) -> dict[str, Json]:
    """Return the result of `server/discover`."""
    known = {**object_of(capabilities.get("extensions")), TASKS: {}}
    return {
        "supportedVersions": [*VERSIONS],
        "capabilities": {**capabilities, "extensions": known},
        "instructions": instructions,
    }


def declared(
    servers: "Sequence[Mapping[str, Json]] | None", extensions: Mapping[str, Json]
) -> dict[str, Json]:
    """Return what the proxy declares in front of servers.

    Args:
        servers: what each server declares; None: one is not known yet, so it may have everything.
        extensions: of the servers.
    """
    found = {
        name: value
        for name, value in CAPABILITIES.items()
        if servers is None
        or name not in _OF_SERVERS
        or any(isinstance(one.get(name), dict) for one in servers)
    }
    return {**found, **({"extensions": dict(extensions)} if extensions else {})}


def tool_of_before(tool: Json) -> Json:
    """Return a tool as the older era has it: there an output is an object, or has no schema.

    A client of that era rejects the whole list for one tool whose output is an array.
    """
    if not isinstance(tool, dict) or value_at(tool, "outputSchema", "type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def result_of_before(answer: ToolResult) -> ToolResult:
    """Return an answer as the older era has it: what is structured is an object, or left out.

    A client of that era rejects the whole answer otherwise, of a call that was carried out.
    """
    said = (answer.result or {}).get("structuredContent")
    if answer.result is None or said is None or isinstance(said, dict):
        return answer
    rest = {key: value for key, value in answer.result.items() if key != "structuredContent"}
    return answer.with_result(rest, answer.refused_host)


def stamped(method: str, answer: _Answer, lasts: float = 0) -> _Answer:
    """Return an answer as the newer era has it.

    A result says that it is complete, who gives it and how long it holds; a policy makes it one
    principal's own. Two codes of errors have ended.

    Args:
        method: of the request.
        answer: as the older era has it.
        lasts: seconds for which the result may be used again, unless it says so itself.
    """
    result, error = answer.get("result"), answer.get("error")
    if isinstance(result, dict):
        told = {**object_of(result.get("_meta")), SERVER_INFO_KEY: dict(_INFO)}
        cached = _cache_of(result, lasts) if method in _CACHED else {}
        return {"result": {"resultType": COMPLETE, **result, **cached, "_meta": told}}
    if isinstance(error, dict) and error.get("code") in _ENDED:
        return {"error": {**error, "code": INVALID_PARAMS}}
    return answer


def stamped_text(text: bytes) -> bytes:
    """Return the JSON of a result with the same marks in front. It has none of them itself."""
    return b"%b%b" % (_MARKS, text[1:]) if text == b"{}" else b"%b,%b" % (_MARKS, text[1:])


_MARKS: Final = encode({"resultType": COMPLETE, "_meta": {SERVER_INFO_KEY: dict(_INFO)}})[:-2]
"""The marks of a result, without the end of the object."""


def _cache_of(result: Mapping[str, Json], lasts: float) -> dict[str, Json]:
    own = result.get("ttlMs")
    is_own = isinstance(own, int) and not isinstance(own, bool) and own >= 0
    return {"ttlMs": own if is_own else int(lasts * 1000), "cacheScope": "private"}


def fault(code: int, message: str, data: Json = None) -> _Answer:
    """Return an error as the answer to a request."""
    more = {} if data is None else {"data": data}
    return {"error": {"code": code, "message": message, **more}}


# --- what the agent reads

_TEXTS: Final = orjson.loads(Path(__file__).with_name("texts.json").read_bytes())
REFUSALS: Final[Mapping[RefusedBy, Sequence[str]]] = _TEXTS["refusals"]
"""The two blocks of each refusal. Programs match the first block of `no-reviewer` and `declined`
word for word."""
_NOTES: Final[Mapping[str, str]] = _TEXTS["notes"]

WORKING_DIRECTORY_RULE: Final = "git-path-enrichment-failed"
"""The one ground whose text other programs know with `Error: ` before it."""

NOT_RECORDED_NOTE: Final = _NOTES["not_recorded"]
_MOST_PUT_BACK: Final = 10


def result_of(reply: Reply, exposed_name: str) -> dict[str, Json]:
    """Return the `result` object of a reply.

    Args:
        reply: the reply to the call; `Answered` with a JSON-RPC error is handled elsewhere.
        exposed_name: the tool's name as the agent used it.
    """
    match reply:
        case Answered(result=answer):
            return _with_notes(dict(answer.result or {}), notes_of(reply))
        case Failed(message=message, perhaps_done=done):
            blocks = [f"Error: {message}", *([_NOTES["perhaps_done"]] if done else [])]
            return error_result(*blocks, *notes_of(reply))
        case Withheld(ground=ground):
            blocks = [f"DENIED: {ground.reason}", _NOTES["withheld"].format(rule=ground.rule)]
            return error_result(*blocks, *notes_of(reply))
        case Refused():
            return error_result(*refusal_blocks(reply, exposed_name))
        case _:
            assert_never(reply)


def error_result(*texts: str) -> dict[str, Json]:
    """Return a tool result that says the call failed, one text block for each text."""
    content: list[Json] = [{"type": "text", "text": text} for text in texts]
    return {"content": content, "isError": True}


def refusal_blocks(refused: Refused, exposed_name: str, kind: str = "tool") -> list[str]:
    """Return why a call was refused, and what the agent can do, one text for each block.

    Args:
        refused: the refusal.
        exposed_name: as the agent named it.
        kind: the word for the operation.
    """
    ground = refused.ground
    if ground.rule == WORKING_DIRECTORY_RULE:
        return [f"Error: {ground.reason}"]
    # One pass over our own text: the reason may hold an agent's or server's words, no template.
    # A reason is a sentence, and some of the blocks go on after it.
    note = refused.note
    if refused.by == "declined" and note:
        note = f' The reviewer says: "{note}".'
    said = {
        "name": exposed_name,
        "kind": kind,
        "reason": ground.reason,
        "clause": ground.reason.removesuffix("."),
        "rule": ground.rule,
        "note": note,
        "whom": decider_in_words(refused.decider),
    }
    return [block.format(**said) for block in REFUSALS[refused.by]]


def decider_in_words(decider: Decider) -> str:
    """Return the party that did not approve, for the agent: the user, or another reviewer."""
    match decider:
        case Program(name=name, kind="model"):
            return f"the model {visible(name)}"
        case Program(name=name):
            return f"the reviewer {visible(name)}"
        case LlmApprover():
            return "the auto-approver"
        case Person() | Signers() | Engine() | Grants() | Contained():
            # Agents know the words of the original program, which has no other reviewers.
            return "user"
        case ClientDialog() | ProxyItself() | Nobody():
            return "user"
        case _:
            assert_never(decider)


def notes_of(reply: Answered | Failed | Withheld) -> list[str]:
    """Return the proxy's own notes on a call that was forwarded."""
    notes = [] if reply.recorded else [NOT_RECORDED_NOTE]
    changed = () if isinstance(reply, Withheld) or not reply.allowed else reply.allowed.changed
    if changed:
        names = ", ".join([visible(name) for name in changed])
        notes.append(_NOTES["changed"].format(names=names))
    if isinstance(reply, Answered) and reply.result.refused_host and _is_contained(reply):
        notes.append(_NOTES["blocked"].format(host=visible(reply.result.refused_host)))
    if reply.put_back:
        said = [one.said for one in reply.put_back[:_MOST_PUT_BACK]]
        notes.append(_NOTES["put_back"].format(what="; ".join(said)))
    return notes


def _is_contained(reply: Answered) -> bool:
    return reply.allowed is not None and reply.allowed.by == CONTAINMENT


def _with_notes(result: dict[str, Json], notes: list[str]) -> dict[str, Json]:
    if not notes:
        return result
    content = result.get("content")
    blocks: list[Json] = list(content) if isinstance(content, list) else []
    said: list[Json] = [{"type": "text", "text": note} for note in notes]
    return {**result, "content": [*blocks, *said]}


# --- own tools


PREFIX: Final = "ironcurtain_"

_OWN_TOOLS: Final[list[dict[str, Json]]] = orjson.loads(
    Path(__file__).with_name("own_tools.json").read_bytes()
)
STATUS_TOOL, PREFLIGHT_TOOL = _OWN_TOOLS
STATUS: Final = "ironcurtain_escalation_status"
PREFLIGHT: Final = "ironcurtain_preflight"

COMPOSITE: Final = "ironcurtain_run_"
"""The prefix of a composite tool's name."""


def is_own(tool: Json) -> bool:
    """Return whether a tool's name has the prefix of the proxy's own tools."""
    return isinstance(tool, dict) and str(tool.get("name")).startswith(PREFIX)


def composite_tool(spec: CompositeSpec) -> dict[str, Json]:
    """Return a composite as the agent sees it."""
    steps = ", ".join([step.tool for step in spec.steps])
    return {
        "name": COMPOSITE + spec.name,
        "description": f"{spec.description or 'A list of calls.'} Carries out, in order: {steps}.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def preflight_result(
    run: str, capabilities: Sequence[str], asked_later: Sequence[str]
) -> dict[str, Json]:
    """Return the result of a plan that may be carried out."""
    needs = f" It may: {', '.join(capabilities)}." if capabilities else ""
    later = "".join([f"\nStill asked about when it is made: {text}" for text in asked_later])
    text = f"The plan may be carried out as run {run}.{needs}{later}"
    structured: dict[str, Json] = {
        "run": run,
        "capabilities": list(capabilities),
        "askedLater": list(asked_later),
    }
    return {**text_result(text), "structuredContent": structured}


def text_result(text: str, *, failed: bool = False) -> dict[str, Json]:
    """Return a result of one sentence."""
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def composite_result(steps: Sequence[tuple[str, Mapping[str, Json]]]) -> dict[str, Json]:
    """Return the result of a composite: all steps that ran; the last one may have failed."""
    content: list[Json] = []
    failed = False
    for number, (tool, result) in enumerate(steps, 1):
        failed = result.get("isError") is True
        word = "failed" if failed else "done"
        content.append({"type": "text", "text": f"step {number}, {tool}: {word}"})
        content += list_of(result.get("content"))
    return {"content": content, "isError": failed}


_WORDS: Final = {
    "open": "waits for an approval",
    "approved": "approved: make the same call again",
    "refused": "refused: make the same call again to be told why",
}


def status_result(
    questions: Sequence[tuple[Escalation, str]], arguments: Arguments
) -> dict[str, Json]:
    """Return the result of the status tool.

    Args:
        questions: the questions of this session, each with its state.
        arguments: of the call; an `id` names one question.
    """
    shown = [one for one in questions if arguments.get("id") in (None, one[0].id)]
    rows: list[Json] = [
        {
            "id": escalation.id,
            "tool": escalation.exposed_name,
            "reason": escalation.ground.reason,
            "state": state,
            "expiresAt": escalation.deadline.isoformat(timespec="seconds"),
        }
        for escalation, state in shown
    ]
    lines = [f"{one.id} {one.exposed_name}: {_WORDS.get(state, state)}" for one, state in shown]
    text = "\n".join(lines) or "No call of yours waits for an approval."
    return {**text_result(text), "structuredContent": {"escalations": rows}}
