"""How many sessions there are, and when one ends that nobody uses; each proxy is a `cat`."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from ironcurtain_proxy.agent.requests import Message
from ironcurtain_proxy.front import sessions as module
from ironcurtain_proxy.front.sessions import (
    MOST,
    OWN,
    AgentSession,
    ProxyProcess,
    Sessions,
    TooManySessionsError,
)
from tests.program import until

pytestmark = pytest.mark.anyio


async def a_cat(_name: str, _principal: str) -> ProxyProcess:
    return await ProxyProcess.start(["cat"], {}, 1 << 20)


async def none(_name: str, _principal: str) -> ProxyProcess:
    raise FileNotFoundError


@asynccontextmanager
async def running(sessions: Sessions) -> AsyncIterator[Sessions]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(sessions.run)
        yield sessions
        tasks.cancel_scope.cancel()


def some(start: module.Starter = a_cat) -> Sessions:
    return Sessions(start, max_waiting=1 << 20, patience=5.0)


def a_request() -> Message:
    return Message(id=1, method="ping", params={}, size=40)


async def until_ended(sessions: Sessions, session: AgentSession) -> None:
    await until(lambda: sessions.find(session.principal, session.name) is None)


async def test_a_principal_has_no_more_than_its_share_and_another_its_own() -> None:
    async with running(some()) as sessions:
        own = [await sessions.begin("alice") for _ in range(MOST)]
        with pytest.raises(TooManySessionsError):
            await sessions.begin("alice")
        await sessions.begin("bob")
        sessions.end(own[0])
        await sessions.begin("alice")


async def test_a_session_that_its_client_left_makes_way_and_one_in_use_does_not() -> None:
    async with running(some()) as sessions:
        own = [await sessions.begin("alice") for _ in range(MOST)]
        other = await sessions.begin("bob")
        for session in [*own, other]:
            session.used_at -= 61
        own[0].begin(a_request())
        own[2].used_at -= 1
        await sessions.begin("alice")
        found = [sessions.find("alice", one.name) is not None for one in own]
        assert found == [True, True, False, *[True] * (MOST - 3)]
        assert sessions.find("bob", other.name) is other


async def test_sessions_that_are_about_to_start_count_too() -> None:
    may_start = anyio.Event()

    async def slowly(name: str, principal: str) -> ProxyProcess:
        await may_start.wait()
        return await a_cat(name, principal)

    begun: list[bool] = []

    async def begin(sessions: Sessions) -> None:
        try:
            await sessions.begin("alice")
        except TooManySessionsError:
            begun.append(False)
        else:
            begun.append(True)

    async with running(some(slowly)) as sessions, anyio.create_task_group() as tasks:
        for _ in range(MOST + 3):
            tasks.start_soon(begin, sessions)
        await until(lambda: len(begun) >= 3)
        may_start.set()
    assert (begun.count(False), begun.count(True)) == (3, MOST)


async def test_a_session_that_cannot_start_takes_nobodys_place() -> None:
    async with running(some(none)) as sessions:
        for _ in range(MOST + 1):
            with pytest.raises(FileNotFoundError):
                await sessions.begin("alice")


async def test_a_session_ends_that_nobody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.0)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        await until_ended(sessions, session)


@pytest.mark.parametrize("use", ["a request under way", "a stream that is read"])
async def test_a_session_in_use_stays_however_old(
    use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.2)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        if use == "a request under way":
            session.begin(a_request())
        else:
            own = session.stream(OWN)
            assert own is not None
            own.follow()
        other = await sessions.begin("alice")
        await until_ended(sessions, other)
        assert sessions.find("alice", session.name) is session


async def test_a_session_of_another_is_unknown() -> None:
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        assert sessions.find("alice", session.name) is session
        assert sessions.find("bob", session.name) is None


async def test_the_session_that_is_no_clients_own_is_found_by_none() -> None:
    async with running(some()) as sessions:
        session = await sessions.shared("alice")
        assert sessions.find("alice", session.name) is None
        assert await sessions.shared("alice") is session


async def test_an_event_of_one_session_names_nothing_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins = iter([7, 700])
    monkeypatch.setattr(secrets, "randbelow", lambda _most: next(begins))
    async with running(some()) as sessions:
        one, other = await sessions.begin("alice"), await sessions.begin("alice")
        streams = [session.begin(a_request()) for session in (one, other)]
        assert one.stream(streams[0].name) is streams[0]
        assert one.stream(streams[1].name) is other.stream(streams[0].name) is None
        for session, foreign in ((one, other), (other, one)):
            own = session.stream(OWN)
            assert own is not None
            assert session.stream(own.name) is own
            assert foreign.stream(own.name) is None


@pytest.mark.parametrize("depth", [900, 1_500, 30_000])
async def test_an_answer_is_handed_out_however_deep_a_server_nests_it(depth: int) -> None:
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        follower = session.begin(a_request()).follow()
        answer = b'{"jsonrpc":"2.0","id":1,"result":{"a":%b}}' % (b"[" * depth + b"]" * depth)
        await session.send(answer + b"\n")
        assert await follower.next() == answer
        assert sessions.find("alice", session.name) is session


@pytest.mark.parametrize("odd", [b'"_meta":"text"', b'"progressToken":{}', b'"_meta":[]'])
async def test_progress_of_an_odd_shape_ends_no_session(odd: bytes) -> None:
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        follower = session.begin(a_request()).follow()
        told = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{%b}}' % odd
        await session.send(told + b'\n{"id":1,"result":{}}\n')
        assert [await follower.next(), await follower.next()] == [told, b'{"id":1,"result":{}}']
        assert sessions.find("alice", session.name) is session


async def test_sessions_that_have_ended_are_none_any_more() -> None:
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
    assert sessions.find("alice", session.name) is None
    with pytest.raises(TooManySessionsError):
        await sessions.begin("alice")


async def test_a_session_that_starts_while_the_front_ends_leaves_no_process() -> None:
    started: list[ProxyProcess] = []

    async def late(name: str, principal: str) -> ProxyProcess:
        sessions.stop()
        started.append(await a_cat(name, principal))
        return started[0]

    sessions = some(late)
    async with running(sessions):
        with pytest.raises(TooManySessionsError):
            await sessions.begin("alice")
    assert started[0]._process.returncode is not None


async def test_an_answer_that_cannot_be_handed_out_is_an_error() -> None:
    answer = b'{"id":1,"result":"' + b"x" * 5000 + b'"}'

    async def start(_name: str, _principal: str) -> ProxyProcess:
        return await ProxyProcess.start(["cat"], {}, 4096)

    async with running(some(start)) as sessions:
        session = await sessions.begin("alice")
        follower = session.begin(a_request()).follow()
        await session.send(answer + b"\n")
        line = await follower.next()
        assert b"the answer is too large" in (line or b"")
        assert sessions.find("alice", session.name) is session


async def test_a_request_that_came_before_the_end_of_its_session_is_answered_after_it() -> None:
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        session.process.close_input()
        await until_ended(sessions, session)
        follower = session.begin(a_request()).follow()
        line = await follower.next()
        assert b"the session ended before the answer" in (line or b"")
        assert session.is_idle


@pytest.mark.parametrize(
    ("method", "own", "reaches"),
    [
        ("progress", b'"progressToken":2', 2),
        ("message", b'"ironcurtain/request":2', 2),
        ("resources/updated", b'"_meta":{"io.modelcontextprotocol/subscriptionId":2}', 2),
        ("progress", b'"progressToken":2,"_meta":"text"', None),
        ("progress", b'"progressToken":{}', None),
    ],
)
async def test_a_notification_reaches_its_request_whatever_else_its_server_names(
    method: str, own: bytes, reaches: int | None
) -> None:
    """Many clients share a proxy: a server must not speak to one in the call of another."""
    told = b'"ironcurtain/request":1,"_meta":{"io.modelcontextprotocol/subscriptionId":1}'
    parts = [own, *(part for part in told.split(b",", 1) if part.split(b":")[0] not in own)]
    line = b'{"jsonrpc":"2.0","method":"notifications/%b","params":{%b}}' % (
        method.encode(),
        b",".join(parts),
    )
    async with running(some()) as sessions:
        session = await sessions.begin("alice")
        session.is_shared = True
        one, two = [
            session.begin(Message(id=number, method="ping", params={}, size=40)).follow()
            for number in (1, 2)
        ]
        await session.send(line + b"\n")
        for number in (1, 2):
            await session.send(b'{"id":%d,"result":{}}\n' % number)
        first = {1: await one.next(), 2: await two.next()}
    assert [number for number, said in first.items() if said == line] == (
        [] if reaches is None else [reaches]
    )
