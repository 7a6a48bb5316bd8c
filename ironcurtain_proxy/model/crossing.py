"""A request as it stands on the wire, divided: what is judged, and what else reaches a server.

The arguments are judged elsewhere. Beside them the protocol has room for data that no rule speaks
of (`_meta`, `task`, `inputResponses`, keys of later versions), and a server may act on each. Only
named keys of `_meta` cross, and only small values: what crosses is recorded and shown to reviewers.

`serve`, `explain`, `decide` and `policy test` divide requests here, so that all judge the same.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct

from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import (
    ENVELOPE,
    METHODS,
    QUESTION_METHODS,
    RESOURCE_METHODS,
    TOOL_CALL,
    Caller,
    Method,
    Operation,
    ParsedRequest,
    RequestId,
    label,
    named_in,
)
from ironcurtain_proxy.model.values import Arguments, Json, object_of

STANDARD_META: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage"})
"""The standard keys of `_meta` that are forwarded if their value is valid. The operator may name
more."""

OF_CALLS: Final = frozenset({"name", "arguments"})
"""The keys of a tool call that are judged."""

MAX_BYTES: Final = 8192
"""The limit for one value of `_meta` and for all text in it: the W3C's limit for `baggage`."""

MAX_DEPTH: Final = 16

MAX_WITHHELD: Final = 16
"""The largest number of withheld names that are kept."""

_NAME_LENGTH: Final = 64
_LARGEST_COUNTER: Final = 1 << 53


class DividedParams(Struct, frozen=True, kw_only=True):
    """The `params` of one call, divided into forwarded and withheld parts."""

    params: Mapping[str, Json]
    """The forwarded part: `name`, `arguments` and the allowed keys of `_meta`."""
    withheld: tuple[str, ...] = ()
    """The names of withheld keys, such as `task` and `_meta.vendor/key`."""


def divide(
    params: Mapping[str, Json],
    named: frozenset[str] = frozenset(),
    judged: frozenset[str] = OF_CALLS,
) -> DividedParams:
    """Divide the `params` of an operation into the forwarded and the withheld part.

    Args:
        params: as the agent sent them.
        named: the keys of `_meta` that the operator lets through, besides the standard ones.
        judged: the other keys that are forwarded, because they are judged.
    """
    kept: dict[str, Json] = {}
    withheld: list[str] = []
    for key, value in params.items():
        if key in judged:
            kept[key] = value
        elif key == "_meta" and isinstance(value, dict):
            meta = {name: one for name, one in value.items() if _crosses(name, one, named)}
            withheld += [f"_meta.{n}" for n in value if n not in meta and n not in ENVELOPE]
            if meta:
                kept[key] = meta
        else:
            withheld.append(key)
    return DividedParams(params=kept, withheld=_shortened(withheld) if withheld else ())


def meta_of(params: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the `_meta` of `params`; empty if there is none."""
    return object_of(params.get("_meta"))


def bound_meta(params: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of `_meta` that an approval is bound to.

    All of it but a progress token that counts: clients number their calls, and a call that is made
    again after its approval has the next number.
    """
    return {
        name: value
        for name, value in meta_of(params).items()
        if name != "progressToken" or not _counts(value)
    }


def _crosses(name: str, value: Json, named: frozenset[str]) -> bool:
    if name in named:
        return _is_small(value)
    if name == "progressToken" and _is_number(value):
        return True
    return name in STANDARD_META and isinstance(value, str) and _is_small(value)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _counts(value: Json) -> bool:
    return type(value) is int and abs(value) < _LARGEST_COUNTER


def _is_small(value: Json) -> bool:
    """Return whether a value is small enough to be shown to a reviewer and recorded as a whole."""
    pending, left = [(value, MAX_DEPTH)], MAX_BYTES
    while pending:
        found, depth = pending.pop()
        left -= 1
        if isinstance(found, str):
            left -= len(found.encode("utf-8", "surrogatepass"))
        elif isinstance(found, dict):
            pending += [(key, depth - 1) for key in found]
            pending += [(item, depth - 1) for item in found.values()]
        elif isinstance(found, list):
            pending += [(item, depth - 1) for item in found]
        elif isinstance(found, int):
            left -= found.bit_length() // 3
        if left < 0 or depth < 0:
            return False
    return True


def _shortened(names: list[str]) -> tuple[str, ...]:
    shown = [name[:_NAME_LENGTH] for name in names[:MAX_WITHHELD]]
    more = len(names) - len(shown)
    return (*shown, f"and {more} more") if more else tuple(shown)


# --- asked


NameKind: TypeAlias = Literal["resource", "prompt"]

QUESTION_KEYS: Final[Mapping[Method, frozenset[str]]] = {
    "elicitation/create": frozenset({"mode", "message", "requestedSchema", "url", "elicitationId"}),
    "sampling/createMessage": frozenset(
        {"messages", "modelPreferences", "systemPrompt", "temperature", "maxTokens"}
        | {"stopSequences", "metadata", "tools", "toolChoice"}
    ),
}
"""The keys of a question that are passed on. `includeContext` is left out: it would hand the server
what the agent heard from others."""


def fault_of(method: str, params: Mapping[str, Json]) -> str | None:
    """Return the fault in the shape of a request, or None if it has none."""
    match method:
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            is_whole = isinstance(params.get("uri"), str)
            return None if is_whole else f"{method} needs a uri (string)"
        case "prompts/get":
            is_whole = isinstance(params.get("name"), str) and isinstance(
                params.get("arguments"), dict | None
            )
            return None if is_whole else "prompts/get needs a name (string) and arguments (object)"
        case "completion/complete":
            return None if _is_completion(params) else "completion/complete needs ref and argument"
        case _:
            return None


def _is_completion(params: Mapping[str, Json]) -> bool:
    reference, argument = params.get("ref"), params.get("argument")
    if not isinstance(reference, dict) or not isinstance(argument, dict):
        return False
    key = {"ref/prompt": "name", "ref/resource": "uri"}.get(str(reference.get("type")))
    if key is None or not isinstance(reference.get(key), str):
        return False
    context = params.get("context")
    others = context.get("arguments", {}) if isinstance(context, dict) else {}
    return (
        isinstance(argument.get("name"), str)
        and isinstance(argument.get("value"), str)
        and isinstance(context, dict | None)
        and isinstance(others, dict)
        and all(isinstance(one, str) for one in others.values())
    )


def named_by(method: Method, params: Mapping[str, Json]) -> tuple[NameKind, str]:
    """Return the names in a request of an agent, as the request spells them."""
    if method == "completion/complete":
        reference = object_of(params.get("ref"))
        is_prompt = reference.get("type") == "ref/prompt"
        named = reference.get("name" if is_prompt else "uri")
        return ("prompt" if is_prompt else "resource"), str(named)
    if method in RESOURCE_METHODS:
        return "resource", str(params.get("uri"))
    return "prompt", str(params.get("name"))


def asked_of(method: Method, params: Mapping[str, Json], server: str, own: str) -> ParsedRequest:
    """Return a request of an agent, of the shape that the protocol says.

    Args:
        method: of a resource, a prompt or a completion.
        params: as they came.
        server: the server that is meant.
        own: its own name of what `named_by` gives.
    """
    kind, exposed = named_by(method, params)
    given = params.get("arguments")
    if method == "completion/complete":
        return _completion(params, server, kind, own)
    if kind == "resource":
        return ParsedRequest(
            method=method,
            exposed_name=exposed,
            server=server,
            tool=label(method),
            arguments={"uri": own},
            params=params,
            judged=frozenset({"uri"}),
            own={"uri": own},
        )
    return ParsedRequest(
        method=method,
        exposed_name=exposed,
        server=server,
        tool=label(method, own),
        arguments=given if isinstance(given, dict) else {},
        params=params,
        judged=frozenset({"name", "arguments"}),
        own={"name": own},
    )


def _completion(params: Mapping[str, Json], server: str, kind: NameKind, own: str) -> ParsedRequest:
    """Return a completion, which is judged as what it completes with the arguments so far."""
    argument = object_of(params.get("argument"))
    others = object_of(object_of(params.get("context")).get("arguments"))
    name = str(argument.get("name"))
    key = "name" if kind == "prompt" else "uri"
    return ParsedRequest(
        method="completion/complete",
        exposed_name=named_by("completion/complete", params)[1],
        server=server,
        tool=label("completion/complete", own),
        arguments={**others, name: argument.get("value")},
        params=params,
        judged=frozenset({"ref", "argument", "context"}),
        own={"ref": {"type": f"ref/{kind}", key: own}, "argument": {"name": name}},
    )


def asked_by(server: str, method: Method, params: Mapping[str, Json]) -> ParsedRequest:
    """Return a question of a server.

    Args:
        server: the operator's name of the server.
        method: elicitation or sampling.
        params: as the server sent them.
    """
    keys = QUESTION_KEYS[method]
    return ParsedRequest(
        method=method,
        exposed_name=f"{method} of {server}",
        server=server,
        tool=label(method),
        arguments={name: value for name, value in params.items() if name in keys},
        params=params,
        judged=keys,
    )


def recorded_as(server: str, tool: str, arguments: Arguments) -> ParsedRequest | None:
    """Return the request that a record tells of, or None if it is of a tool call.

    Args:
        server: of the record.
        tool: its `toolName`, which is a label for other operations.
        arguments: its `arguments`.
    """
    method = tool.partition(" ")[0]
    if method not in METHODS or method == TOOL_CALL:
        return None
    known = cast("Method", method)
    if known in QUESTION_METHODS:
        return asked_by(server, known, arguments)
    if known in RESOURCE_METHODS:
        return asked_of(known, arguments, server, str(arguments.get("uri")))
    named = named_in(tool)
    if known == "prompts/get":
        return asked_of(known, {"name": named, "arguments": {**arguments}}, server, named)
    # A record does not say what kind a completion is of; only templates have a scheme.
    key: dict[str, Json] = (
        {"type": "ref/resource", "uri": named}
        if ":" in named
        else {"type": "ref/prompt", "name": named}
    )
    so_far: Json = {"arguments": {**arguments}}
    last = next(reversed([*arguments]), "")
    argument: Json = {"name": last, "value": arguments.get(last)}
    return asked_of(known, {"ref": key, "argument": argument, "context": so_far}, server, named)


def on_the_wire(server: str, method: str, params: Mapping[str, Json]) -> ParsedRequest | Ground:
    """Return the request of an agent, or the question of a server; a ground: it is refused unread.

    Args:
        server: that is asked, or that asks.
        method: of MCP.
        params: with the server's own names of what they name.
    """
    if method not in METHODS or method == TOOL_CALL:
        return Ground("not-offered", f"{method[:100]} is no method that is decided on")
    known = cast("Method", method)
    if known in QUESTION_METHODS:
        return asked_by(server, known, params)
    if (fault := fault_of(method, params)) is not None:
        return Ground("invalid-params", fault)
    return asked_of(known, params, server, named_by(known, params)[1])


def operation_of(
    asked: ParsedRequest,
    request_id: RequestId,
    named_meta: frozenset[str] = frozenset(),
    caller: Caller | None = None,
) -> Operation:
    """Return the operation that is decided.

    Args:
        asked: the request.
        request_id: ours.
        named_meta: the keys of `_meta` that the operator forwards to servers.
        caller: see `Operation.caller`.
    """
    crossing = divide(asked.params, named_meta, asked.judged)
    return Operation(
        request_id=request_id,
        exposed_name=asked.exposed_name,
        server=asked.server,
        tool=asked.tool,
        arguments=asked.arguments,
        params={**crossing.params, **asked.own},
        withheld=crossing.withheld,
        method=asked.method,
        caller=caller,
    )
