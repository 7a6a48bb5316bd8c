"""The proxy that refuses every host, and knows which were asked for."""

import socket

import anyio
import pytest
from anyio.to_thread import run_sync

from ironcurtain_proxy.downstream.gate import Gate
from tests.program import PATIENCE

pytestmark = pytest.mark.anyio


def nothing(_host: str) -> bool:
    """No host is forbidden."""
    return False


def say(port: int, *parts: bytes) -> bytes:
    """What the gate answers to these parts, one after another."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as end:
        for part in parts:
            end.sendall(part)
            heard += end.recv(4096)
    return heard


@pytest.mark.parametrize(
    ("parts", "host"),
    [
        ((b"CONNECT a.example:443 HTTP/1.1\r\nHost: other\r\n\r\n",), "a.example"),
        ((b"GET http://B.example./x HTTP/1.1\r\n\r\n",), "b.example"),
        ((b"GET http://me:secret@c.example/x HTTP/1.1\r\n\r\n",), "c.example"),
        ((b"POST https://10.0.0.1:8080 HTTP/1.1\r\n\r\n",), "10.0.0.1"),
        ((b"\x05\x01\x00", b"\x05\x01\x00\x03\x09d.example\x00\x50"), "d.example"),
        ((b"\x05\x01\x00", b"\x05\x01\x00\x01\x0a\x00\x00\x02\x00\x50"), "10.0.0.2"),
        ((b"nothing that is known\r\n\r\n",), ""),
    ],
)
async def test_a_host_is_refused_and_known(parts: tuple[bytes, ...], host: str) -> None:
    gate = Gate.open()
    async with anyio.create_task_group() as group:
        group.start_soon(gate.run)
        heard = await run_sync(say, gate.port, *parts)
        group.cancel_scope.cancel()
    assert b"403" in heard or heard[2:4] == b"\x05\x02"
    assert gate.asked_since(0, nothing) == host
    assert gate.asked_since(gate.count, nothing) == ""


async def test_a_forbidden_host_is_refused_and_is_no_reason_to_ask() -> None:
    gate = Gate.open()
    async with anyio.create_task_group() as group:
        group.start_soon(gate.run)
        for host in (b"telemetry.example", b"wanted.example"):
            heard = await run_sync(say, gate.port, b"CONNECT " + host + b":443 HTTP/1.1\r\n\r\n")
            assert b"403" in heard
        group.cancel_scope.cancel()
    assert gate.asked_since(0, lambda host: host == "telemetry.example") == "wanted.example"
    assert gate.asked_since(0, lambda host: True) == ""


async def test_what_is_no_request_does_not_stop_the_gate() -> None:
    gate = Gate.open()
    async with anyio.create_task_group() as group:
        group.start_soon(gate.run)
        with socket.create_connection(("127.0.0.1", gate.port), PATIENCE):
            pass
        for junk in (b"\x05", b"\x05\x01\x00\x05\x01", b"\x00" * 9000):
            with socket.create_connection(("127.0.0.1", gate.port), PATIENCE) as end:
                await run_sync(end.sendall, junk)
        await run_sync(say, gate.port, b"CONNECT last.example:1 HTTP/1.1\r\n\r\n")
        group.cancel_scope.cancel()
    assert gate.asked_since(0, nothing) == "last.example"
