"""What is said to a server that speaks 2026-07-28 or later: no handshake, request by request.

    server/discover ──▶ its capabilities            once, when the server starts
    any request     ──▶ `_meta`: version, client, what this request's client can do
                    ◀── a result, or `input_required`: questions, and a state to send back
    the request again, with `inputResponses` and the state as it came
    subscriptions/listen ──▶ a request that stays open, and brings all news

Over HTTP some of a message stands in headers, too, so that others on the way need not read it. They
are made from the message itself: a header that says what the policy did not judge would be a way
around it. Every message of a server is untrusted. No function here does I/O.
"""

import base64
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.downstream.greeting import SPOKEN, ServerDescription
from ironcurtain_proxy.downstream.versions import VERSIONS as HANDSHAKE_VERSIONS
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.caller import (
    CAPABILITIES_KEY,
    INFO_KEY,
    LEVEL_KEY,
    VERSION_KEY,
    VERSIONS,
)
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult
from ironcurtain_proxy.version import VERSION as OUR_VERSION

VERSION: Final = VERSIONS[0]
"""The version that is said to servers without a handshake."""

NO_CAPABILITIES: Final[Mapping[str, Json]] = {"roots": {}}
"""What a client can do in a request that no request of the agent's stands behind."""

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UNSUPPORTED_VERSION: Final = -32022
INPUT_REQUIRED: Final = "input_required"

_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_CLIENT: Final[Mapping[str, Json]] = {"name": "ironcurtain-proxy", "version": OUR_VERSION}

MOST_ROUNDS: Final = 10
"""How often a server may want more input for one request. The SDKs stop there, too."""

MOST_INPUTS: Final = 4
"""The most questions of one answer."""

_RETRYABLE: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose answers may want input."""


def enveloped(
    params: Mapping[str, Json], capabilities: Mapping[str, Json], level: str | None = None
) -> dict[str, Json]:
    """Return the params with what each request says of itself and its client.

    Args:
        params: of the request; its `_meta` crosses as it is, but for these keys.
        capabilities: the `clientCapabilities`.
        level: the least severe log messages that are wanted; None wants none.
    """
    meta = params.get("_meta")
    said: dict[str, Json] = {**meta} if isinstance(meta, Mapping) else {}
    said |= {VERSION_KEY: VERSION, INFO_KEY: dict(_CLIENT), CAPABILITIES_KEY: dict(capabilities)}
    if level is not None:
        said[LEVEL_KEY] = level
    return {**params, "_meta": said}


async def discover(
    server: str, ask: Callable[[Mapping[str, Json]], Awaitable[ToolResult]]
) -> ServerDescription | None:
    """Ask a server what it is, or return None if it does not speak without a handshake.

    Args:
        server: its name.
        ask: sends `server/discover` with these params.

    Raises:
        DownstreamError: it speaks only versions that are not known here, or gives no answer.
    """
    answer = await ask({})
    if answer.error is not None and answer.error.get("code") == UNSUPPORTED_VERSION:
        supported = _texts(_at(answer.error, "data", "supported"))
        if VERSION in supported:
            answer = await ask({})
        elif not set(supported) & set(HANDSHAKE_VERSIONS):
            raise DownstreamError(_disjoint(server, supported))
    result = answer.result or {}
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or VERSION not in versions:
        return None
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    info = _at(result, "_meta", _SERVER_INFO)
    return ServerDescription(
        capabilities if isinstance(capabilities, dict) else {},
        instructions if isinstance(instructions, str) else "",
        info if isinstance(info, dict) else {},
    )


def may_be_spoken(refusal: ToolResult) -> bool:
    """Return whether a server that refuses to be greeted may speak without a handshake."""
    supported = _at(refusal.error, "data", "supported")
    return not isinstance(supported, list) or VERSION in supported


def _disjoint(server: str, supported: Sequence[str]) -> str:
    shown = ", ".join([one[:40] for one in supported[:8]])
    what = shown or "no version that it names"
    return f'server "{server}" speaks {what}, and the proxy speaks {SPOKEN}'


# --- answers that want input


class Wanted(Struct, frozen=True):
    """What an answer wants before it can be given."""

    questions: Mapping[str, tuple[str, Mapping[str, Json]]]
    """Method and params by the server's own key."""
    state: str | None
    """What is sent back as it came."""

    def retried(self, params: Mapping[str, Json], responses: Mapping[str, Json]) -> dict[str, Json]:
        """Return the params of the same request with the answers."""
        again = dict(params)
        if responses:
            again["inputResponses"] = dict(responses)
        if self.state is not None:
            again["requestState"] = self.state
        return again


def wanted_by(method: str, answer: ToolResult) -> Wanted | None:
    """Return what an answer wants. None means that it wants nothing, or nothing well-formed."""
    result = answer.result
    if result is None or result.get("resultType") != INPUT_REQUIRED or method not in _RETRYABLE:
        return None
    asked, state = result.get("inputRequests"), result.get("requestState")
    entries = asked if isinstance(asked, dict) else {}
    if not isinstance(asked, dict | None) or not isinstance(state, str | None):
        return None
    if len(entries) > MOST_INPUTS or (not entries and state is None):
        return None
    questions: dict[str, tuple[str, Mapping[str, Json]]] = {}
    for key, entry in entries.items():
        named = entry.get("method") if isinstance(entry, dict) else None
        params = entry.get("params", {}) if isinstance(entry, dict) else None
        if not isinstance(named, str) or not isinstance(params, dict):
            return None
        questions[key] = named, params
    return Wanted(questions, state)


# --- subscriptions


def wanted_news(capabilities: Mapping[str, Json], uris: Sequence[str]) -> dict[str, Json]:
    """Return what to listen for at a server with these capabilities; empty means nothing.

    Args:
        capabilities: as the server declares them.
        uris: the resources that the agent has subscribed to.
    """
    found: dict[str, Json] = {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if _at(capabilities, kind, "listChanged") is True
    }
    return {**found, "resourceSubscriptions": [*uris]} if uris else found


def without_subscription(params: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the params of a notification without the number of the request that brought it."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or _SUBSCRIPTION not in meta:
        return params
    rest = {key: value for key, value in meta.items() if key != _SUBSCRIPTION}
    others = {key: value for key, value in params.items() if key != "_meta"}
    return {**others, "_meta": rest} if rest else others


def age_of(result: Mapping[str, Json], otherwise: float) -> float:
    """Return for how many seconds a list may be shown without being asked for again."""
    said = result.get("ttlMs")
    if isinstance(said, bool) or not isinstance(said, int | float) or not said >= 0:
        return otherwise
    return float(min(said, 86_400_000)) / 1000


# --- headers

MirroredPaths = Mapping[tuple[str, ...], str]
"""Header names by the keys that lead to an argument."""

_NAMING: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_MIRRORED: Final = "x-mcp-header"
_PREFIX: Final = "mcp-param-"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_WRAPPED: Final = re.compile(r"=\?base64\?.*\?=", re.DOTALL)
_PRIMITIVE: Final = frozenset({"string", "integer", "boolean"})
_LONGEST_HEADER: Final = 8192
_DEEPEST: Final = 64


def mirrored_arguments(tool: ToolDefinition) -> MirroredPaths | str:
    """Return which arguments of a tool stand in headers, or what is wrong with its annotations.

    An annotation counts only on a property that is reached through `properties` alone: elsewhere it
    depends on the value whether it applies.
    """
    found: dict[tuple[str, ...], str] = {}
    for path, schema in _positions((), tool.raw.get("inputSchema"), 0):
        if _MIRRORED not in schema:
            continue
        name, where = schema[_MIRRORED], ".".join(path or ())
        if not path:
            return f"{_MIRRORED} where it cannot be"
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            return f"{_MIRRORED} of {where} is no name of a header"
        if str(schema.get("type")) not in _PRIMITIVE:
            return f"{_MIRRORED} of {where} is not on a text, a whole number or a truth"
        if name.lower() in [one.lower() for one in found.values()]:
            return f"two arguments have the {_MIRRORED} {name}"
        found[path] = name
    return found


def _positions(
    path: tuple[str, ...] | None, schema: object, depth: int
) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Json]]]:
    """Yield each schema in a schema, with its path if it is reached by `properties` alone."""
    if isinstance(schema, dict):
        yield path, schema
    if depth < _DEEPEST:
        for way, below in _below(path, schema):
            yield from _positions(way, below, depth + 1)


def _below(
    path: tuple[str, ...] | None, schema: object
) -> Iterator[tuple[tuple[str, ...] | None, object]]:
    if isinstance(schema, list):
        yield from [(None, one) for one in schema]
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key == "properties" and isinstance(value, dict):
            for name, one in value.items():
                yield (None if path is None else (*path, name)), one
        elif key in _IN_MAPS and isinstance(value, dict):
            yield from [(None, one) for one in value.values()]
        elif key in _IN:
            yield None, value


_IN_MAPS: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})
_IN: Final = frozenset(
    {
        *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames"),
        *("unevaluatedProperties", "not", "if", "then", "else", "contentSchema"),
        *("allOf", "anyOf", "oneOf", "prefixItems"),
    }
)
"""Keys of JSON Schema whose values are schemas; data, such as `default`, is not looked at."""


def version_of(message: Mapping[str, Json]) -> str:
    """Return the version that a message names in its `_meta`, empty if it names none."""
    said = _at(message, "params", "_meta", VERSION_KEY)
    return said if isinstance(said, str) else ""


def headers_of_message(
    message: Mapping[str, Json], mirrored: Mapping[str, MirroredPaths]
) -> dict[str, str]:
    """Return the headers that repeat a message.

    Args:
        message: as it is sent.
        mirrored: which arguments stand in headers, by the tool.

    Raises:
        DownstreamError: a header would be too long.
    """
    method, params = str(message.get("method")), message.get("params")
    found = {"mcp-protocol-version": version_of(message), "mcp-method": method}
    if method not in _NAMING or not isinstance(params, dict):
        return found
    name = params.get(_NAMING[method])
    found["mcp-name"] = header_value(str(name))
    if method == "tools/call":
        for path, token in mirrored.get(str(name), {}).items():
            text = _scalar(_at(params, "arguments", *path))
            if text is not None:
                found[_PREFIX + token.lower()] = header_value(text)
    if any(len(value) > _LONGEST_HEADER for value in found.values()):
        raise DownstreamError(f"an argument that stands in a header is over {_LONGEST_HEADER} long")
    return found


def header_value(text: str) -> str:
    """Return a text as the value of a header, wrapped where no header could hold it as it is."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def _at(value: object, *way: str) -> object:
    """Return the value at the end of a way of keys, or None if there is none."""
    for key in way:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
