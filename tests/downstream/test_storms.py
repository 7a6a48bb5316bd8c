"""Of a storm of notifications the agent gets a part and a count, and every answer."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream import conversation, notifications, session_log, supervisor
from ironcurtain_proxy.downstream.session_log import Allowance, NotificationLimits
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.values import Json
from tests.downstream.scripted_servers import OPTIONS, a_call, running, scripted, text_of
from tests.program import until

pytestmark = pytest.mark.anyio

LOG = "notifications/message"
PROGRESS = "notifications/progress"


def test_what_was_taken_comes_back_at_its_rate_and_never_more_than_fits() -> None:
    seconds = 0.0
    bucket = Allowance(10, 100, clock=lambda: seconds)
    assert [bucket.take(60), bucket.take(60), bucket.take(40), bucket.take(1)] == [
        *(True, False, True, False)
    ]
    seconds = 1.0
    assert [bucket.take(10), bucket.take(1)] == [True, False]
    seconds = 1000.0
    assert [bucket.take(100), bucket.take(1)] == [True, False]


def test_after_a_refusal_some_must_have_come_back() -> None:
    seconds = 0.0
    bucket = Allowance(10, 100, resume=50, clock=lambda: seconds)
    assert [bucket.take(100), bucket.take(1)] == [True, False]
    seconds = 4.0
    assert not bucket.take(1)
    seconds = 5.0
    assert bucket.take(1)


async def test_one_kind_of_notifications_leaves_room_for_the_other() -> None:
    notices = NotificationLimits()
    while notices.admits("message", 1):
        pass
    assert notices.admits("progress", 1)
    assert notices.count() == 1
    assert notices.count() == 0


async def test_a_storm_of_notifications_is_cut_counted_and_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifications, "_SAID_AGAIN", 600.0)
    heard: list[Mapping[str, Json]] = []
    moves: list[Mapping[str, Json]] = []

    async def log(server: str, params: Mapping[str, Json]) -> None:
        heard.append(params)

    async def progress(params: Mapping[str, Json]) -> None:
        moves.append(params)

    options = replace(OPTIONS, session_log=tmp_path / "log")
    async with running(options=options) as servers:
        servers.hooks.on_log = log
        for method in (LOG, PROGRESS):
            call = a_call("storm", {"method": method, "times": 60_000}, _meta={"progressToken": 1})
            assert (await servers.forward(call, progress)).result is not None
        await until(lambda: any(one.get("logger") == "ironcurtain-proxy" for one in heard))
        assert await text_of(servers, "echo", {"text": "still here"}) == "still here"
    ours = [params for params in heard if params.get("logger") == "ironcurtain-proxy"]
    assert len(ours) == 1
    assert 1000 <= len(heard) - 1 < 30_000
    assert 1000 <= len(moves) < 30_000
    assert "sends too many or too large notifications: " in str(ours[0]["data"])
    assert sum("too many" in record.getMessage() for record in caplog.records) == 1
    said = [line for line in (tmp_path / "log").read_text().splitlines() if "too many" in line]
    counts = [int(line.partition("notifications: ")[2].split()[0]) for line in said]
    assert sum(counts) == 120_000 - (len(heard) - 1) - len(moves)


async def test_large_notifications_are_bounded_in_sum() -> None:
    heard: list[int] = []

    async def log(_server: str, params: Mapping[str, Json]) -> None:
        heard.append(len(str(params)))

    async with running() as servers:
        servers.hooks.on_log = log
        storm: Mapping[str, Json] = {"method": LOG, "times": 200, "size": 1 << 20}
        assert await text_of(servers, "storm", storm) == "told"
    assert 4 << 20 < sum(heard) < 100 << 20


async def test_a_server_that_restarts_does_not_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_log, "_NOTICES", 0.0)
    heard: list[object] = []

    async def log(_server: str, params: Mapping[str, Json]) -> None:
        if params.get("logger") != "ironcurtain-proxy":
            heard.append(params)

    async with running() as servers:
        servers.hooks.on_log = log
        for _ in range(2):
            await text_of(servers, "storm", {"method": LOG, "times": 2000})
            with pytest.raises(ServerUnavailableError):
                await servers.forward(a_call("crash"))
            await until(lambda: servers.status()["one"].state == "ready")
    assert len(heard) == 1000


async def test_an_agent_that_wants_errors_only_is_not_told_of_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "_COLLECTED", 0.0)
    heard: list[Mapping[str, Json]] = []

    async def log(_server: str, params: Mapping[str, Json]) -> None:
        heard.append(params)

    async with running() as servers:
        servers.hooks.on_log = log
        await servers.set_log_level("error")
        await text_of(servers, "storm", {"method": LOG, "times": 30_000})
        await text_of(servers, "echo")
    assert len(heard) >= 1000
    assert not [params for params in heard if params.get("logger") == "ironcurtain-proxy"]


async def test_a_server_whose_tools_never_stay_the_same_is_listed_more_and_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_QUIET", 0.0)
    monkeypatch.setattr(supervisor, "_SLOW", 600.0)
    announced: list[object] = []

    async def note(_: bool) -> None:
        announced.append(None)

    async with running(scripted("one", {"restless": True})) as servers:
        servers.hooks.on_tools_changed = note
        await until(lambda: len(announced) >= 20)
        for _ in range(500):
            await text_of(servers, "echo")
    assert len(announced) <= 22


@pytest.mark.parametrize(
    "line",
    [
        "x",
        '{"jsonrpc":"2.0","id":4711,"result":{}}',
        '{"jsonrpc":"2.0","id":"a","error":{}}',
        '{"jsonrpc":"2.0","id":1,"method":"ping"}',
        '{"jsonrpc":"2.0","method":"notifications/x"}',
    ],
)
async def test_after_lines_that_nobody_waits_for_others_have_time(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without end they took the time of hundreds of calls of other servers."""
    slept, sleep, pause = list[float](), anyio.sleep, 0.0123

    async def noting(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    async with running() as servers:
        monkeypatch.setattr(anyio, "sleep", noting)
        monkeypatch.setattr(conversation, "PAUSE", pause)
        flood: dict[str, Json] = {"bytes": f"{line}\n" * 5, "answer": True}
        monkeypatch.setattr(conversation, "thread_time", count(0, 0.01).__next__)
        assert await text_of(servers, "raw", flood) == "after"
        assert pause not in slept, "an honest server may say much at once"
        monkeypatch.setattr(conversation, "thread_time", count().__next__)
        for _ in range(3):
            assert await text_of(servers, "echo", {"text": "x"}) == "x"
        assert pause not in slept, "an answer is waited for"
        assert await text_of(servers, "raw", flood) == "after"
        assert slept.count(pause) == 5
