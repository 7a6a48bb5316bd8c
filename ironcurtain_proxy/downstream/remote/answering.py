"""The search for the answer to a request among the messages of a stream.

A stream is read until it has brought the answer; a server may number its own requests as we do.
"""

from typing import Final

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder

from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, answer_id, decode, recover_id

_SHORT: Final = 64 * 1024
_HEAD: Final = 128
_EDGE: Final = 4096


class _Envelope(Struct):
    id: int | str | float | None = None
    method: Raw | None = None


_envelope: Final = Decoder(_Envelope).decode


def is_answer_to(line: bytes, request_id: MessageId) -> bool:
    """Whether a line answers this request. A long one is looked at from both ends."""
    if len(line) > _SHORT:
        is_request = b'"method"' in line[:_HEAD]
        return not is_request and answer_id(recover_id(line[:_EDGE], line[-_EDGE:])) == request_id
    try:
        found = _envelope(line)
    except (MsgspecError, ValueError, RecursionError):
        return _is_odd_answer(line, request_id)
    return found.method is None and answer_id(found.id) == request_id


def _is_odd_answer(line: bytes, request_id: MessageId) -> bool:
    message = decode(line)
    if isinstance(message, Malformed):
        return answer_id(message.id) == request_id
    return "method" not in message and answer_id(message.get("id")) == request_id
