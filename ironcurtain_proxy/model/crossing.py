"""The part of a call's `params` that reaches a server.

The arguments are judged elsewhere. Beside them the protocol has room for data that no rule speaks
of (`_meta`, `task`, `inputResponses`, keys of later versions), and a server may act on each. Only
named keys of `_meta` cross, and only small values: what crosses is recorded and shown to reviewers.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.caller import ENVELOPE
from ironcurtain_proxy.model.json import Json

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
    if params.keys() <= judged:
        return DividedParams(params=params)
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
    """The `_meta` of `params`; empty if there is none."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def bound_meta(params: Mapping[str, Json]) -> dict[str, Json]:
    """The part of `_meta` that an approval is bound to.

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
    """Whether a value is small enough to be shown to a reviewer and recorded as a whole."""
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
