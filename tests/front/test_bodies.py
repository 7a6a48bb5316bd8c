"""What a request holds: in time, within the limit, one large one at a time."""

from collections.abc import Sequence
from contextlib import ExitStack

import anyio
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from ironcurtain_proxy.front import serving
from ironcurtain_proxy.front.guard import RefusalError

pytestmark = pytest.mark.anyio

LIMIT = 1 << 20


def a_request(*parts: bytes, is_whole: bool = True, said: int | None = None) -> Request:
    """A request whose body comes in parts, and has no end if it is not whole."""
    left: list[Message] = [
        {"type": "http.request", "body": part, "more_body": True} for part in parts
    ]
    if is_whole:
        left.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        if not left:
            await anyio.sleep_forever()
        return left.pop(0)

    headers: Sequence[tuple[bytes, bytes]] = (
        [] if said is None else [(b"content-length", str(said).encode())]
    )
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def read_body(request: Request, limit: int, lock: anyio.Lock) -> bytes:
    """A body that is handed on at once."""
    with ExitStack() as held:
        return await serving.read_body(request, limit, lock, held)


def status_of(refusal: RefusalError) -> int:
    return refusal.response().status_code


async def test_the_parts_of_a_body_are_put_together() -> None:
    assert await read_body(a_request(b"a", b"", b"b"), LIMIT, anyio.Lock()) == b"ab"


async def test_a_body_that_does_not_come_to_its_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_SLOWEST", 0.02)
    lock = anyio.Lock()
    with pytest.raises(RefusalError) as refused:
        await read_body(a_request(bytes(100_000), is_whole=False), LIMIT, lock)
    assert status_of(refused.value) == 408
    assert not lock.locked()


@pytest.mark.parametrize(
    "request_", [a_request(said=LIMIT + 1), a_request(*[bytes(1 << 16)] * 17, is_whole=False)]
)
async def test_a_body_over_the_limit_is_refused_before_its_end(request_: Request) -> None:
    lock = anyio.Lock()
    with pytest.raises(RefusalError) as refused:
        await read_body(request_, LIMIT, lock)
    assert status_of(refused.value) == 413
    assert not lock.locked()


@pytest.mark.parametrize(("zeros", "length"), [(5000, 1), (10, LIMIT + 1)])
async def test_a_length_is_read_with_any_number_of_zeros(zeros: int, length: int) -> None:
    request = a_request(b"a")
    request.scope["headers"] = [(b"content-length", b"0" * zeros + b"%d" % length)]
    if length <= LIMIT:
        assert await read_body(request, LIMIT, anyio.Lock()) == b"a"
    else:
        with pytest.raises(RefusalError):
            await read_body(request, LIMIT, anyio.Lock())


async def test_a_large_body_waits_for_another_and_a_small_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "_SLOWEST", 0.05)
    lock = anyio.Lock()
    await lock.acquire()
    assert await read_body(a_request(b"small"), LIMIT, lock) == b"small"

    async def wait() -> None:
        with pytest.raises(RefusalError):
            await read_body(a_request(bytes(100_000)), LIMIT, lock)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
    lock.release()
    assert len(await read_body(a_request(bytes(100_000)), LIMIT, lock)) == 100_000


async def test_a_large_body_counts_until_it_is_handed_on() -> None:
    """A proxy that reads slowly would have them all wait in memory."""
    lock = anyio.Lock()
    with ExitStack() as held:
        for body, is_held in ((b"small", False), (bytes(100_000), True)):
            await serving.read_body(a_request(body), LIMIT, lock, held)
            assert lock.locked() == is_held
    assert not lock.locked()


async def test_a_client_that_goes_in_the_middle_is_noticed() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(ClientDisconnect):
        await read_body(request, LIMIT, anyio.Lock())


async def test_a_body_that_is_there_is_held_to_the_limit_and_may_have_lost_its_sender() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    assert await serving._whole_body(a_request(b"a"), LIMIT) == b"a"
    with pytest.raises(RefusalError) as refused:
        await serving._whole_body(a_request(bytes(LIMIT + 1)), LIMIT)
    assert status_of(refused.value) == 413
    with pytest.raises(ClientDisconnect):
        await serving._whole_body(Request({"type": "http", "headers": []}, gone), LIMIT)
