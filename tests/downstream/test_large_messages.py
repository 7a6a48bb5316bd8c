"""Large messages between the proxy and real servers, and servers that do not read them."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.errors import CallTimedOutError, DownstreamError
from tests.downstream.scripted_servers import OPTIONS, a_call, running, text_of

pytestmark = pytest.mark.anyio


async def test_50_mb_pass_in_both_directions() -> None:
    async with running() as servers:
        assert len(await text_of(servers, "large", {"size": 50_000_000})) == 50_000_000
        assert await text_of(servers, "length", {"text": "x" * 50_000_000}) == "50000000"


async def test_over_the_cap_the_call_fails_with_the_reason_and_the_server_stays() -> None:
    options = replace(OPTIONS, max_message_bytes=1_000_000)
    async with running(options=options) as servers:
        with pytest.raises(DownstreamError, match="larger than 1000000"):
            await servers.forward(a_call("large", {"size": 50_000_000}))
        with pytest.raises(DownstreamError, match="larger than 1000000"):
            await servers.forward(a_call("length", {"text": "x" * 1_000_000}))
        assert await text_of(servers, "echo", {"text": "on"}) == "on"
        assert servers.status()["one"].starts == 1


async def test_a_server_that_does_not_read_fails_calls_instead_of_filling_memory() -> None:
    options = replace(OPTIONS, max_message_bytes=2_000_000, call_timeout=0.2)
    async with running(options=options) as servers:
        with pytest.raises(CallTimedOutError):
            await servers.forward(a_call("stall"))
        errors = []
        for _ in range(6):
            with pytest.raises(DownstreamError) as caught:
                await servers.forward(a_call("length", {"text": "x" * 1_000_000}))
            errors.append(str(caught.value))
    assert errors[0] == 'server "one" did not answer within 0.2 s'
    assert errors[-1] == 'server "one" does not read its input'
