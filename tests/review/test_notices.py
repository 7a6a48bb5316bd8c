"""Notices of questions, to real HTTP servers and a real program."""

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import NamedTuple, cast

import anyio
import anyio.to_thread
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.escalation import Escalation, Ruling, Unreachable
from ironcurtain_proxy.review.open_questions import (
    QUEUE,
    WaitingNotice,
    WaitingNotices,
    desktop,
    ntfy,
    webhook,
)
from ironcurtain_proxy.review.terminal import Channel, Panel
from tests.mailbox.mailbox_fixture import escalation
from tests.program import PATIENCE

pytestmark = pytest.mark.anyio


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Sink(ThreadingHTTPServer):
    """Takes what is posted; answers nothing before `open` is set."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.status = status
        self.received: Queue[Received] = Queue()
        self.open = Event()
        self.open.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sink = cast(Sink, self.server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sink.received.put(Received(self.path, dict(self.headers), body))
        sink.open.wait(PATIENCE)
        self.send_response(sink.status)
        self.send_header("Location", f"{sink.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[Sink]:
    server = Sink()
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.open.set()
    server.shutdown()
    server.server_close()


async def next_of(sink: Sink) -> Received:
    return await anyio.to_thread.run_sync(lambda: sink.received.get(timeout=PATIENCE))


def asked() -> Escalation:
    secret = {"path": "/srv/x", "token": "ghp_" + "a" * 36}
    return replace(
        escalation(arguments=secret), ground=Ground("r", "Reads outside\x1b[2J the workspace")
    )


async def test_each_question_reaches_webhook_and_topic_without_its_arguments(sink: Sink) -> None:
    class Person:
        async def ask(self, escalation: Escalation) -> Ruling:
            return Unreachable()

    ways = [("webhook", webhook(f"{sink.url}/hook?k=1")), ("ntfy", ntfy(f"{sink.url}/t", "tk_1"))]
    notices = WaitingNotices(ways)
    panel = Panel([Channel(Person(), lambda: True)], tell=notices.tell)
    async with anyio.create_task_group() as tasks:
        await tasks.start(notices.run)
        await panel.ask(asked())
        found = {one.path: one for one in [await next_of(sink), await next_of(sink)]}
        tasks.cancel_scope.cancel()
    document = orjson.loads(found["/hook?k=1"].body)
    assert (document["server"], document["tool"]) == ("files", "read_file")
    assert found["/t"].headers["Authorization"] == "Bearer tk_1"
    assert found["/t"].headers["Title"] == "files/read_file waits for you"
    for one in found.values():
        assert b"ghp_" not in one.body
        assert b"\x1b" not in one.body


async def test_a_sink_that_hangs_holds_no_call_and_the_queue_is_bounded(sink: Sink) -> None:
    sink.open.clear()
    notices = WaitingNotices([("webhook", webhook(sink.url))])
    async with anyio.create_task_group() as tasks:
        await tasks.start(notices.run)
        notices.tell(asked())
        await next_of(sink)
        for _ in range(QUEUE + 10):
            notices.tell(asked())
        assert len(notices._queue) == QUEUE
        tasks.cancel_scope.cancel()


async def test_a_redirect_is_not_followed_and_the_address_is_not_logged(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.status = 302
    notices = WaitingNotices([("webhook", webhook(f"{sink.url}/secret-address"))])
    async with anyio.create_task_group() as tasks:
        await tasks.start(notices.run)
        for _ in range(3):
            notices.tell(asked())
        # One after the other: when the third arrives, the answers to the first two were read.
        await next_of(sink)
        await next_of(sink)
        await next_of(sink)
        tasks.cancel_scope.cancel()
    assert sink.received.empty()
    assert caplog.text.count("do not arrive") == 1
    assert "secret-address" not in caplog.text


async def test_the_desktop_is_told_by_a_program_and_no_word_is_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    show = desktop("linux")
    assert show is not None
    await show(WaitingNotice("1", "s", "files", "read", "--urgency=critical $(id)"))
    said = (tmp_path / "said").read_text().splitlines()
    assert said[1:] == ["--", "files/read waits for you", "--urgency=critical $(id)"]
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert desktop("linux") is None
