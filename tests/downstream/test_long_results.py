"""Long results of real processes: hashed as they came, for exactly the bytes that go on."""

from hashlib import sha256

import pytest

from ironcurtain_proxy.audit.records import summarize
from ironcurtain_proxy.jsonrpc.sending import LONG_RESULT
from tests.downstream.scripted_servers import a_call, running

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        pytest.param('{"jsonrpc":"2.0","id":ID,"result":{"x":"TEXT"}}\n', True, id="compact"),
        pytest.param('{"jsonrpc":"2.0","id":ID,"result":{"x": "TEXT"}}\n', False, id="a blank"),
        pytest.param(
            '{"jsonrpc":"2.0","id":ID,"result":{"x":"\\u0041TEXT"}}\n', False, id="escape"
        ),
    ],
)
async def test_the_digest_of_a_long_result_is_that_of_the_bytes_the_agent_gets(
    line: str, is_known: bool
) -> None:
    line = line.replace("TEXT", "x" * LONG_RESULT)
    async with running() as servers:
        answer = await servers.forward(a_call("raw", {"bytes": line}))
    assert answer.written is not None
    digest = sha256(answer.written).hexdigest()
    assert answer.digest == (digest if is_known else None)
    assert summarize(answer).sha256 == digest
