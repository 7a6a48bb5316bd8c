"""Which of the messages that a stream brings is the answer to a request.

A stream is read until it has brought the answer; a server may number its own requests as we do.
"""

from typing import Final

from ironcurtain_proxy.jsonrpc.codec import Malformed, MessageId, decode, recover_id

_SHORT: Final = 64 * 1024
_HEAD: Final = 128
_EDGE: Final = 4096


def is_answer_to(line: bytes, request_id: MessageId) -> bool:
    """Whether a line answers this request. A long one is looked at from both ends."""
    if len(line) > _SHORT:
        is_request = b'"method"' in line[:_HEAD]
        return not is_request and recover_id(line[:_EDGE], line[-_EDGE:]) == request_id
    message = decode(line)
    if isinstance(message, Malformed):
        return message.id == request_id
    return "method" not in message and message.get("id") == request_id
