"""A server that stands still goes on for every message, and stands still again after it."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec import Struct

from ironcurtain_proxy.downstream.connection import Connection
from ironcurtain_proxy.downstream.conversation import Listeners, Standing
from ironcurtain_proxy.downstream.notifications import UnusableMessages
from ironcurtain_proxy.downstream.process import ServerProcess, spawn
from ironcurtain_proxy.downstream.session_log import SessionLog
from ironcurtain_proxy.errors import CallTimedOutError
from ironcurtain_proxy.jsonrpc.pipes import open_wire
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.sandbox.standstill import Standstill
from tests.e2e.confined_installation import require_sandbox
from tests.program import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap"),
]

SERVER = """
import json, os, sys, threading, time
if os.fork() == 0:
    while True:
        open("beats", "a").write("x")
        time.sleep(0.001)
def say(message): os.write(1, json.dumps(message).encode() + b"\\n")
def answer(id, method):
    while method == "slow" and not os.path.exists("answer"): time.sleep(0.001)
    say({"jsonrpc": "2.0", "id": id, "result": {}})
for line in sys.stdin:
    message = json.loads(line)
    with open("log", "a") as log: log.write(message.get("method", "an answer") + "\\n")
    if message.get("method") == "asks":
        say({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
    elif "method" in message and "id" in message:
        threading.Thread(target=answer, args=(message["id"], message["method"])).start()
"""


class Served(Struct):
    """A server in a namespace of its own, with a process that it left."""

    connection: Connection
    still: Standstill
    process: ServerProcess
    place: Path

    def beats(self) -> int:
        with suppress(FileNotFoundError):
            return (self.place / "beats").stat().st_size
        return 0

    def log(self) -> list[str]:
        return (self.place / "log").read_text().split("\n")[:-1]

    async def stands(self) -> None:
        """Wait until it stands still, and see that it does."""
        await until(lambda: self.still.is_standing)
        before = self.beats()
        for _ in range(10):
            await anyio.sleep(0.005)
            assert self.beats() == before


@asynccontextmanager
async def served(place: Path) -> AsyncIterator[Served]:
    require_sandbox()
    process = spawn(
        ServerSpec(name="s", annotations="s", command="bwrap"),
        environment={"PATH": os.environ["PATH"]},
        cwd=str(place),
        argv=[
            *(
                "bwrap",
                "--die-with-parent",
                "--unshare-pid",
                "--dev-bind",
                "/",
                "/",
                "--proc",
                "/proc",
                "--",
            ),
            *(sys.executable, "-I", "-S", "-c", SERVER),
        ],
    )
    still = Standstill(process.pid, 4096)
    wire = await open_wire(*process.take_wire())
    listeners = Listeners(
        tools_changed=lambda: None, logged=lambda _: anyio.lowlevel.checkpoint(), roots=list
    )
    dropped = UnusableMessages("s", (), SessionLog(None))
    connection = Connection("s", wire, listeners, dropped, 1 << 20, Standing(still))
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(connection.run)
            group.start_soon(connection.standing.run)
            await connection.request("tools/call", {}, 60)
            yield Served(connection, still, process, place)
            group.cancel_scope.cancel()
    finally:
        still.finish([])
        process.end(0)


async def test_every_kind_of_message_reaches_a_server_that_stands_still(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.connection.standing.require()
        await one.stands()
        for method in ("tools/call", "tools/list", "ping", "logging/setLevel"):
            await one.connection.request(method, {}, 60)
            await one.stands()
        (tmp_path / "answer").unlink(missing_ok=True)
        with pytest.raises(CallTimedOutError):
            await one.connection.request("slow", {}, 0.1)
        await one.connection.standing.require()
        assert one.log()[-1] == "notifications/cancelled"
        await one.stands()
        one.connection.note_roots_changed()
        await one.stands()
        assert one.log()[-1] == "notifications/roots/list_changed"
        one.connection.notify("asks")
        await one.stands()
        one.connection.notify("again")
        await one.stands()
        assert one.log()[-3:] == ["asks", "an answer", "again"]


async def test_a_server_with_a_call_under_way_runs_until_its_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as one, anyio.create_task_group() as group:
        group.start_soon(one.connection.request, "slow", {}, 60)
        await one.connection.request("tools/call", {}, 60)
        await one.connection.standing.require()
        before = one.beats()
        await until(lambda: one.beats() != before)
        assert not one.still.is_standing
        (tmp_path / "answer").touch()
        await one.stands()


async def test_what_a_person_approved_goes_on_until_the_next_contained_call(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.connection.standing.require()
        await one.connection.request("tools/call", {}, 60)
        one.connection.standing.release()
        before = one.beats()
        await until(lambda: one.beats() != before)
        await one.connection.request("tools/call", {}, 60)
        assert not one.still.is_standing
        await one.connection.standing.require()
        await one.stands()


async def test_the_processes_of_a_server_that_nobody_contained_are_never_stopped(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as one:
        for _ in range(3):
            await one.connection.request("tools/call", {}, 60)
        before = one.beats()
        await until(lambda: one.beats() >= before + 100)
        assert not one.still.is_standing
