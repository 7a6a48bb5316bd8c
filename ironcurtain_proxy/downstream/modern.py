"""What is said to a server that speaks 2026-07-28 or later: no handshake, request by request.

    server/discover ──▶ its capabilities            once, when the server starts
    any request     ──▶ `_meta`: version, client, what this request's client can do
                    ◀── a result, or `input_required`: questions, and a state to send back
    the request again, with `inputResponses` and the state as it came
    subscriptions/listen ──▶ a request that stays open, and brings all news

Every message of a server is untrusted. No function here does I/O.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.downstream.greeting import SPOKEN, ServerDescription
from ironcurtain_proxy.downstream.greeting import VERSIONS as HANDSHAKE_VERSIONS
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.operation import (
    CAPABILITIES_KEY,
    INFO_KEY,
    LEVEL_KEY,
    VERSION_KEY,
    VERSIONS,
)
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
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


def _at(value: object, *way: str) -> object:
    """Return the value at the end of a way of keys, or None if there is none."""
    for key in way:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
