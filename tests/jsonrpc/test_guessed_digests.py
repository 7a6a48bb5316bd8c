"""A long result is hashed as it came, and the digest counts only for exactly these bytes."""

from hashlib import sha256

import pytest

from ironcurtain_proxy.jsonrpc.sending import LONG_RESULT, guess_digest

RESULT = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * LONG_RESULT)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"result":%b}',
        b'{"id":"a-7","jsonrpc":"2.0","result":%b}',
        b'{"result":%b,"jsonrpc":"2.0","id":7}',
        b'{"jsonrpc":"2.0","result":%b,"id":7} ',
    ],
)
def test_the_digest_of_a_result_is_found_wherever_it_stands_in_its_line(line: bytes) -> None:
    guess = guess_digest(line % RESULT)
    assert guess is not None
    assert guess.of(RESULT) == sha256(RESULT).hexdigest()


@pytest.mark.parametrize(
    ("line", "written"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":%b}', RESULT[:-1] + b" ", id="other bytes"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":%b}', RESULT + b" ", id="more bytes"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result": %b}', RESULT, id="a blank before it"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":%b,"x":1}', RESULT, id="a member more"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{},"result":%b}', RESULT, id="twice"),
    ],
)
def test_a_digest_of_other_bytes_is_never_taken(line: bytes, written: bytes) -> None:
    guess = guess_digest(line % RESULT)
    assert guess is None or guess.of(written) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":%b}' % RESULT,
        b'{"jsonrpc":"2.0","id":7,"result":' + RESULT,
        b"\xff" * (2 * LONG_RESULT),
    ],
    ids=["short", "a notification", "cut off", "no JSON"],
)
def test_nothing_is_hashed_that_is_short_or_looks_like_no_answer(line: bytes) -> None:
    guess = guess_digest(line)
    assert guess is None or guess.of(RESULT) is None
