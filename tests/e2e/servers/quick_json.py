"""JSON by the interpreter's own C, for servers that hundreds of tests start.

`json` imports `re` and `enum`, which are half of the start of such a server.
"""

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class _Ways:
    """How `json` reads by default."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


def _fail(value: object) -> "NoReturn":
    raise TypeError(value)


_scan = make_scanner(_Ways())  # type: ignore[arg-type]


def loads(text: bytes | str) -> "dict[str, Json]":
    """The object of a text, as `json.loads` gives it."""
    try:
        value: dict[str, Json]
        value, _ = _scan(text.decode() if isinstance(text, bytes) else text, 0)
    except StopIteration as error:
        raise ValueError(text) from error
    return value


def _encoder(*, sort_keys: bool) -> make_encoder:
    ascii_ = encode_basestring_ascii
    return make_encoder(None, _fail, ascii_, None, ": ", ", ", sort_keys, False, True)


_encode, _encode_sorted = _encoder(sort_keys=False), _encoder(sort_keys=True)


def dumps(value: object, *, sort_keys: bool = False) -> str:
    """The text of a value, as `json.dumps` gives it."""
    return "".join((_encode_sorted if sort_keys else _encode)(value, 0))
