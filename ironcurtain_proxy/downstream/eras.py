"""How a server of each era is begun, and what is said to it.

    initialize       ──▶ version, capabilities           until 2025-11-25
    server/discover  ──▶ its capabilities                since 2026-07-28
    any request      ──▶ `_meta`: version, client, what this request's client can do
                     ◀── a result, or `input_required`: questions, and a state to send back
    the request again, with `inputResponses` and the state as it came
    subscriptions/listen ──▶ a request that stays open, and brings all news

An unknown version may give messages another meaning, so a server that answers with one is not used.

Some servers carry out a tool as a task alone (`taskSupport: required`). The proxy asks for the task
and waits for its end, so that for the agent and for the record this is a call like any other. No
task outlives its call, because nobody would see how it ended.

Every message of a server is untrusted. No function here does I/O itself.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.errors import (
    CallLostError,
    DownstreamError,
    ServerUnavailableError,
    UnansweredError,
)
from ironcurtain_proxy.jsonrpc.codec import value_at
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.operation import (
    CAPABILITIES_KEY,
    HANDSHAKE_VERSIONS,
    INFO_KEY,
    LEVEL_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
    VERSIONS,
)
from ironcurtain_proxy.model.server import ToolDefinition, ToolResult
from ironcurtain_proxy.model.values import Json, list_of
from ironcurtain_proxy.version import VERSION as OUR_VERSION

PROTOCOL_VERSION: Final = HANDSHAKE_VERSIONS[0]
"""The version that is offered with `initialize`."""

VERSION: Final = VERSIONS[0]
"""The version that is said to servers without a handshake."""

METHOD_NOT_FOUND: Final = -32601
_MOST_WORDS: Final = 300
UNSUPPORTED_VERSION: Final = -32022

ROOTS: Final[Mapping[str, Json]] = {"roots": {"listChanged": True}}
"""The client capabilities for every server."""

NO_CAPABILITIES: Final[Mapping[str, Json]] = {"roots": {}}
"""What a client can do in a request that no request of the agent's stands behind."""

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

CLIENT: Final[dict[str, Json]] = {"name": "ironcurtain-proxy", "version": OUR_VERSION}

MOST_ROUNDS: Final = 10
"""How often a server may want more input for one request. The SDKs stop there, too."""

MOST_INPUTS: Final = 4
"""The most questions of one answer."""

_RETRYABLE: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose answers may want input."""

_LONGEST: Final = 40

Ask: TypeAlias = Callable[[str, Mapping[str, Json], float], Awaitable[ToolResult]]
"""Sends a request with a method and params, and waits so many seconds for its answer."""

AskOne: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[ToolResult]]
"""Sends one kind of request with these params."""


class ServerDescription(Struct, frozen=True):
    """A server's description of itself; untrusted."""

    capabilities: Mapping[str, Json] = field(default_factory=dict)
    instructions: str = ""
    """The server's instructions, of any length."""
    info: Mapping[str, Json] = field(default_factory=dict)


def _described(result: Mapping[str, Json], info: object) -> ServerDescription:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return ServerDescription(
        capabilities if isinstance(capabilities, dict) else {},
        instructions if isinstance(instructions, str) else "",
        info if isinstance(info, dict) else {},
    )


# --- beginning


async def greet(
    server: str, ask: AskOne, offered: Mapping[str, Json], *, is_modern: bool = False
) -> ServerDescription:
    """Initialize a server, in a version that both sides support.

    Args:
        server: its name.
        ask: sends `initialize`.
        offered: the client's capabilities.
        is_modern: whether it wants each request to say its version and client, too.

    Raises:
        DownstreamError: it refuses, or answers in a version that is not spoken here.
    """

    async def said(version: str) -> ToolResult:
        params: dict[str, Json] = {
            "protocolVersion": version,
            "capabilities": dict(offered),
            "clientInfo": CLIENT,
        }
        return await ask(enveloped(params, offered, version=version) if is_modern else params)

    answer = await said(PROTOCOL_VERSION)
    other = supported_version(answer.error)
    if other is not None:
        answer = await said(other)
    if answer.result is None:
        what = f'server "{server}" refuses to be initialized{_why(answer)}'
        raise refusal(what, answer.error)
    check_version(server, answer.result)
    return _described(answer.result, answer.result.get("serverInfo"))


async def discover(server: str, ask: AskOne) -> ServerDescription | None:
    """Ask a server what it is, or return None if it does not speak without a handshake.

    Args:
        server: its name.
        ask: sends `server/discover`.

    Raises:
        DownstreamError: it speaks only versions that are not known here, or gives no answer.
    """
    answer = await ask({})
    if answer.error is not None and answer.error.get("code") == UNSUPPORTED_VERSION:
        supported = _supported(answer.error) or []
        if VERSION in supported:
            answer = await ask({})
        elif not set(supported) & set(HANDSHAKE_VERSIONS):
            raise DownstreamError(f'server "{server}" {_disjoint(supported)}')
    result = answer.result or {}
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or VERSION not in versions:
        return None
    return _described(result, value_at(result, "_meta", SERVER_INFO_KEY))


def check_version(server: str, answer: Mapping[str, Json]) -> None:
    """Check the version of a server's answer.

    Raises:
        DownstreamError: it is unknown, or missing.
    """
    version = answer.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        shown = repr(version[:_LONGEST]) if isinstance(version, str) else "that is no text"
        raise DownstreamError(
            f'server "{server}" answers initialize with protocol version {shown}; '
            f"the proxy speaks {', '.join(HANDSHAKE_VERSIONS)}"
        )


def supported_version(refusal: Mapping[str, Json] | None) -> str | None:
    """Return the newest version besides the one we offered that a refusal names as supported."""
    supported = _supported(refusal) or []
    return next((version for version in HANDSHAKE_VERSIONS[1:] if version in supported), None)


def may_be_spoken(refusal: ToolResult) -> bool:
    """Return whether a server that refuses to be greeted may speak without a handshake."""
    supported = _supported(refusal.error)
    return supported is None or VERSION in supported


def _supported(error: Mapping[str, Json] | None) -> list[str] | None:
    """Return the versions that a refusal names as supported; None if it names none."""
    said = value_at(error, "data", "supported")
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else None


def refusal(what: str, error: Mapping[str, Json] | None) -> DownstreamError:
    """Return the error for a server that refuses to begin, with its words as a note.

    The note is for the operator: the agent reads in the proxy's words no others.
    """
    raised = DownstreamError(what)
    if said := (error or {}).get("message"):
        raised.add_note(f'; it answered "{visible(str(said)[:_MOST_WORDS])}"')
    return raised


def _why(answer: ToolResult) -> str:
    """Return advice for the operator on a refusal, by its code."""
    error = answer.error or {}
    supported = _supported(error)
    if supported is not None:
        return f": it {_disjoint(supported)}"
    if error.get("code") == METHOD_NOT_FOUND:
        return f": it has no initialize, and no answer to server/discover that names {VERSION}"
    return ""


_SPOKEN: Final = ", ".join((*VERSIONS, *HANDSHAKE_VERSIONS))


def _disjoint(supported: Sequence[str]) -> str:
    shown = ", ".join([one[:_LONGEST] for one in supported[:8]])
    return f"speaks {shown or 'no version'}, and the proxy speaks {_SPOKEN}"


# --- requests


def enveloped(
    params: Mapping[str, Json],
    capabilities: Mapping[str, Json],
    level: str | None = None,
    version: str = VERSION,
) -> dict[str, Json]:
    """Return the params with what each request says of itself and its client.

    Args:
        params: of the request; its `_meta` crosses as it is, but for these keys.
        capabilities: the `clientCapabilities`.
        level: the least severe log messages that are wanted; None wants none.
        version: of the protocol.
    """
    meta = params.get("_meta")
    said: dict[str, Json] = {**meta} if isinstance(meta, Mapping) else {}
    said |= {VERSION_KEY: version, INFO_KEY: CLIENT, CAPABILITIES_KEY: dict(capabilities)}
    if level is not None:
        said[LEVEL_KEY] = level
    return {**params, "_meta": said}


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
    if result is None or result.get("resultType") != "input_required" or method not in _RETRYABLE:
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
        if value_at(capabilities, kind, "listChanged") is True
    }
    return {**found, "resourceSubscriptions": [*uris]} if uris else found


def news_besides(wanted: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield method and params of all that may be told, besides changes of the tools."""
    for kind in ("prompts", "resources"):
        if wanted.get(f"{kind}ListChanged"):
            yield f"notifications/{kind}/list_changed", {}
    for uri in list_of(wanted.get("resourceSubscriptions")):
        yield "notifications/resources/updated", {"uri": uri}


def without_subscription(params: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the params of a notification without the number of the request that brought it."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or SUBSCRIPTION_KEY not in meta:
        return params
    rest = {key: value for key, value in meta.items() if key != SUBSCRIPTION_KEY}
    others = {key: value for key, value in params.items() if key != "_meta"}
    return {**others, "_meta": rest} if rest else others


def age_of(result: Mapping[str, Json], otherwise: float) -> float:
    """Return for how many seconds a list may be shown without being asked for again."""
    said = result.get("ttlMs")
    if isinstance(said, int | float) and not isinstance(said, bool) and said >= 0:
        return float(min(said, 86_400_000)) / 1000
    return otherwise


# --- tools that run as tasks alone


_LONGEST_ID: Final = 1024
_RELATED: Final = "io.modelcontextprotocol/related-task"
_CANCEL: Final = 1.0
"""Seconds for a server to cancel a task."""


def task_tools(tools: Sequence[ToolDefinition], capabilities: Mapping[str, Json]) -> frozenset[str]:
    """Return the names of the tools that are called as tasks."""
    if value_at(capabilities, "tasks", "requests", "tools", "call") is None:
        return frozenset()
    return frozenset(
        [one.name for one in tools if value_at(one.raw, "execution", "taskSupport") == "required"]
    )


async def call_as_task(
    server: str, ask: Ask, params: Mapping[str, Json], seconds: float, under_way: set[str]
) -> ToolResult:
    """Call a tool as a task, and wait for the result of the task.

    Args:
        server: the server's name.
        ask: sends a request.
        params: of the call.
        seconds: for the task as a whole.
        under_way: the names of the server's other tasks.

    Raises:
        DownstreamError: no answer, or none in time; the task is cancelled then.
    """
    end = anyio.current_time() + seconds
    asked: dict[str, Json] = {**params, "task": {"ttl": int(seconds * 1000)}}
    answer = await ask("tools/call", asked, seconds)
    if answer.result is None or "task" not in answer.result:
        return answer
    task = value_at(answer.result, "task", "taskId")
    if not isinstance(task, str) or len(task) > _LONGEST_ID:
        raise UnansweredError(f'server "{server}" began a task without a name')
    if task in under_way:
        # Attack: one call would get the result of the other, and cancel it at its end.
        raise UnansweredError(f'server "{server}" began a task under the name of another')
    under_way.add(task)
    try:
        answer = await ask("tasks/result", {"taskId": task}, max(0.0, end - anyio.current_time()))
        if value_at(answer.result, "_meta", _RELATED, "taskId") not in (None, task):
            raise UnansweredError(f'server "{server}" gave the result of another task')
        return answer
    except CallLostError:
        raise
    except ServerUnavailableError:
        # The task has begun: nobody may take this for a call that was never sent.
        raise CallLostError(f'server "{server}" was gone before its task ended') from None
    except (DownstreamError, anyio.get_cancelled_exc_class()):
        # One that has gone, or does not answer, is told no more.
        with anyio.CancelScope(shield=True), suppress(DownstreamError):
            await ask("tasks/cancel", {"taskId": task}, _CANCEL)
        raise
    finally:
        under_way.remove(task)
