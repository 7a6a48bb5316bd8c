"""The two eras of the protocol: how a client begins, and what its answers look like.

Until 2025-11-25 a client sends `initialize`, and what it says there holds for its connection. Since
2026-07-28 each request says in its `_meta` which version it speaks and what its client can do, and
each result says that it is complete and who gives it. The era belongs to the request: both may be
spoken on one connection.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from ironcurtain_proxy.jsonrpc.codec import INVALID_PARAMS, encode
from ironcurtain_proxy.jsonrpc.headers import value_at
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
)
from ironcurtain_proxy.model.reply import COMPLETE, URL_ELICITATION_REQUIRED
from ironcurtain_proxy.model.values import object_of
from ironcurtain_proxy.version import VERSION

if TYPE_CHECKING:
    from ironcurtain_proxy.model.server import ToolResult
    from ironcurtain_proxy.model.values import Json

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

_INFO: Final[Mapping[str, "Json"]] = MappingProxyType({"name": NAME, "version": VERSION})

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

CAPABILITIES: Final[Mapping[str, "Json"]] = {
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


def is_introduction(params: "Mapping[str, Json]") -> bool:
    """Return whether the parameters of `initialize` are complete."""
    info = params.get("clientInfo")
    said = info if isinstance(info, dict) else {}
    texts = (params.get("protocolVersion"), said.get("name"), said.get("version"))
    is_able = isinstance(params.get("capabilities"), dict)
    return is_able and all(isinstance(one, str) for one in texts)


def introduction(params: "Mapping[str, Json]", title: str) -> "dict[str, Json]":
    """Return the result of `initialize`, without instructions and capabilities."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0],
        "serverInfo": {**_INFO, **({"title": title} if title else {})},
    }


# --- the era without a handshake


def is_modern(method: str, params: "Mapping[str, Json]") -> bool:
    """Return whether a request names its version itself.

    A handshake may name the version that it offers there, too: servers of both eras are greeted so.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return False
    return method != "initialize" or meta[VERSION_KEY] not in HANDSHAKE_VERSIONS


def caller_of(params: "Mapping[str, Json]", number: int = 0) -> "Caller | _Answer":
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


def unsupported_version(asked: str) -> "_Answer":
    """Return the error for a version that is not served without a handshake."""
    data: dict[str, Json] = {"supported": [*VERSIONS], "requested": asked[:_MOST_ASKED]}
    return fault(UNSUPPORTED_VERSION, f"this version is not served; {', '.join(VERSIONS)} is", data)


def without_tasks(caller: Caller) -> "_Answer | None":
    """Return the error for a request about a task whose client does not declare them."""
    if caller.knows_tasks:
        return None
    data: dict[str, Json] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return fault(MISSING_CAPABILITY, f"the client has to declare {TASKS}", data)


def discovery(instructions: str, capabilities: "Mapping[str, Json]") -> "dict[str, Json]":
    """Return the result of `server/discover`."""
    known = {**object_of(capabilities.get("extensions")), TASKS: {}}
    return {
        "supportedVersions": [*VERSIONS],
        "capabilities": {**capabilities, "extensions": known},
        "instructions": instructions,
    }


def declared(
    servers: "Sequence[Mapping[str, Json]] | None", extensions: "Mapping[str, Json]"
) -> "dict[str, Json]":
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


def tool_of_before(tool: "Json") -> "Json":
    """Return a tool as the older era has it: there an output is an object, or has no schema.

    A client of that era rejects the whole list for one tool whose output is an array.
    """
    if not isinstance(tool, dict) or value_at(tool, "outputSchema", "type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def result_of_before(answer: "ToolResult") -> "ToolResult":
    """Return an answer as the older era has it: what is structured is an object, or left out.

    A client of that era rejects the whole answer otherwise, of a call that was carried out.
    """
    said = (answer.result or {}).get("structuredContent")
    if answer.result is None or said is None or isinstance(said, dict):
        return answer
    rest = {key: value for key, value in answer.result.items() if key != "structuredContent"}
    return answer.with_result(rest, answer.refused_host)


def stamped(method: str, answer: "_Answer", lasts: float = 0) -> "_Answer":
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


def _cache_of(result: "Mapping[str, Json]", lasts: float) -> "dict[str, Json]":
    own = result.get("ttlMs")
    is_own = isinstance(own, int) and not isinstance(own, bool) and own >= 0
    return {"ttlMs": own if is_own else int(lasts * 1000), "cacheScope": "private"}


def fault(code: int, message: str, data: "Json" = None) -> "_Answer":
    """Return an error as the answer to a request."""
    more = {} if data is None else {"data": data}
    return {"error": {"code": code, "message": message, **more}}
