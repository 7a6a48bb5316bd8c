"""Calls that arrive together, one of them withdrawn at any moment, on disks well and not.

What is real: the requests, their lanes, the batch, the life of a call, the log and its threads.
"""

import asyncio  # noqa: TID251  callbacks of the loop
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel
import orjson
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from ironcurtain_proxy.agent.requests import RequestCapacity, Requests, ServerAnswer, Service
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.recovery import open_log
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.jsonrpc.codec import MessageId
from ironcurtain_proxy.jsonrpc.sending import Answers, Batch
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.reply import Answered
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from tests.examples import sample
from tests.fakes import DONE, Harness
from tests.program import until

pytestmark = pytest.mark.anyio

Fault: TypeAlias = Literal["none", "slow", "hanging", "full at intents", "full at outcomes"]

_CALLS = (1, 2, 3)
_TURNS = 6
_MOST_POINTS = 200


class Disk:
    """Stands for `os.write`; keeps what each write held."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.is_full = False
        self.writes: list[bytes] = []

    def write(self, file: int, data: bytes) -> int:
        self.gate.wait()
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.writes.append(data)
        return os.write(file, data)


@pytest.fixture
def disk() -> Iterator[Disk]:
    one = Disk()
    yield one
    one.gate.set()


class Session:
    """Three calls, which arrive in one batch and are answered in another."""

    def __init__(self, path: Path, disk: Disk, fault: Fault) -> None:
        self.path, self.disk, self.fault = path, disk, fault
        self.batch = Batch()
        settings = LogSettings(write_deadline=0.02 if fault == "hanging" else 20)
        self.log = AuditLog(open_log(path), settings, None, disk.write, self.batch)
        self.answers = Answers[ToolResult]()
        self.asked: list[int] = []
        self.sent: set[str] = set()
        self.told: list[MessageId] = []
        self.wrong: list[str] = []
        self.room = RequestCapacity()
        self.requests = Requests(self._tell, self.room, anyio.lowlevel.checkpoint)
        self.service = Service(self._answer, self._answer, {"error": {}})
        rule = Rule(name="all", effect="allow", reason="so")
        self.made = Harness(Policy(rules=(rule,), version="v1"))
        self.made.servers.act = self._act
        self.made.begin(replace(self.made.world, recorder=self.log))
        self.points = 0
        self.victim, self.at = 0, -1

    def records(self) -> list[dict[str, Json]]:
        return [orjson.loads(line) for line in self.path.read_bytes().splitlines()]

    async def _act(self, call: AuthorizedCall) -> ToolResult:
        intents = [one["requestId"] for one in self.records() if one.get("phase") == "intent"]
        if call.request_id not in intents or call.request_id in self.sent:
            self.wrong.append(f"{call.request_id} was sent too early, or twice")
        self.sent.add(call.request_id)
        number, answer = self.answers.expect(30)
        self.asked.append(number)
        return await answer

    async def _answer(self, params: Mapping[str, Json]) -> ServerAnswer:
        reply = await self.made.mediator.handle("read", params)
        if isinstance(reply, Answered) and reply.recorded and self._outcomes(params) != 1:
            self.wrong.append(f"{params} is answered before its outcome is written")
        return {"result": {}}

    def _outcomes(self, params: Mapping[str, Json]) -> int:
        wanted = params["arguments"]
        assert isinstance(wanted, dict)
        ended = [one["arguments"] for one in self.records() if one.get("phase") != "intent"]
        return sum(isinstance(one, dict) and one["n"] == wanted["n"] for one in ended)

    def _tell(self, request_id: MessageId, _answer: ServerAnswer) -> None:
        assert isinstance(request_id, int)
        self.told.append(request_id)

    def point(self) -> None:
        """A moment at which the victim may be withdrawn."""
        if self.points == self.at:
            self.requests.cancel(self.victim)
        self.points += 1

    def arrive(self, numbers: tuple[int, ...]) -> None:
        """From a callback of the loop, as when a pipe is read."""
        with self.batch:
            for number in numbers:
                params: dict[str, Json] = {"arguments": {"n": number}}
                self.requests.begin(self.service, number, params, 100)
                self.point()

    def settle(self) -> None:
        """From a callback of the loop: all answers at once."""
        asked, self.asked = self.asked, []
        with self.batch:
            for number in asked:
                self.answers.resolve(number, DONE)
                self.point()

    async def turns(self) -> None:
        for _ in range(_TURNS):
            await checkpoint()
            self.point()

    async def warm(self) -> None:
        """Have a lane for each call."""
        self.at = -1
        numbers = tuple([-number for number in _CALLS])
        await _in_callback(lambda: self.arrive(numbers))
        # On a busy machine a short deadline can pass already here; then all are refused.
        await until(lambda: len(self.asked) + len(self.told) >= len(numbers))
        await _in_callback(self.settle)
        await self.requests.until_idle()
        self.told.clear()
        self.points = 0
        self.disk.writes.clear()

    async def run(self, victim: int, at: int) -> None:
        await self.warm()
        self.victim, self.at = victim, at
        self.disk.is_full = self.fault == "full at intents"
        if self.fault in {"slow", "hanging"}:
            self.disk.gate.clear()
        await _in_callback(lambda: self.arrive(_CALLS))
        await self.turns()
        if self.fault == "slow":
            self.disk.gate.set()
        await until(
            lambda: len(self.asked) + len(self.told) + (0 <= at < self.points) >= len(_CALLS)
        )
        self.disk.is_full = self.fault.startswith("full")
        await _in_callback(self.settle)
        await self.turns()
        while self.asked:
            await _in_callback(self.settle)
        await self.requests.until_idle()

    def check(self) -> None:
        """Nothing is lost, done twice, or out of order."""
        assert self.wrong == []
        withdrawn = {self.victim} if 0 <= self.at < self.points else set()
        assert set(_CALLS) - withdrawn <= set(self.told) <= set(_CALLS)
        assert len(self.told) == len(set(self.told))
        assert self.room.take(64 << 20)
        seen: dict[Json, list[Json]] = {}
        for one in self.records():
            seen.setdefault(one["requestId"], []).append(one.get("phase"))
        for request, phases in seen.items():
            assert phases.count("intent") <= 1
            assert "intent" not in phases[1:]
            assert (
                request in self.sent or self.fault != "none" or "intent" not in phases or withdrawn
            )
        assert self.sent <= seen.keys()
        if self.fault in {"none", "slow"}:
            ended = [phases for phases in seen.values() if phases[-1] != "intent"]
            assert len(ended) == 2 * len(_CALLS)
        self.disk.gate.set()
        self.disk.is_full = False
        self.requests.cancel_all()


async def _in_callback(do: Callable[[], None]) -> None:
    """Where no task runs, as when the loop reads a pipe."""
    done = anyio.Event()

    def run() -> None:
        do()
        done.set()

    asyncio.get_running_loop().call_soon(run)
    await done.wait()


@pytest.mark.requirement("X-8", "X-11")
@pytest.mark.parametrize(
    "fault", ["none", "slow", "hanging", "full at intents", "full at outcomes"]
)
@pytest.mark.parametrize("victim", _CALLS)
async def test_of_calls_that_come_together_any_may_be_withdrawn_at_any_moment(
    fault: Fault, victim: int, tmp_path: Path
) -> None:
    for at in sample(range(_MOST_POINTS), victim):
        disk = Disk()
        session = Session(tmp_path / f"{at}.jsonl", disk, fault)
        try:
            await session.run(victim, at)
            session.check()
            await session.requests.until_ended()
        finally:
            disk.gate.set()
            session.log.close()
        assert verify(session.path).problems == ()
        if session.points <= at:
            break
    else:
        pytest.fail("the calls did not end")


async def test_what_comes_together_is_written_together(tmp_path: Path, disk: Disk) -> None:
    session = Session(tmp_path / "audit.jsonl", disk, "none")
    await session.warm()
    session.disk.writes.clear()
    await _in_callback(lambda: session.arrive(_CALLS))
    await until(lambda: len(session.asked) >= len(_CALLS))
    await _in_callback(session.settle)
    await session.requests.until_idle()
    assert [data.count(b"\n") for data in disk.writes] == [3, 3]
    await session.requests.until_ended()
    session.log.close()
