"""Directories that a server is let into for one call: told before it, withdrawn after it."""

import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream.roots import ServerRoots, retry_while_outside, says_outside
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.errors import ServerUnavailableError
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, PathValue
from ironcurtain_proxy.model.server import ServerSpec, ToolResult
from ironcurtain_proxy.model.values import Json, RealPath, file_uri
from tests.downstream.scripted_servers import OPTIONS, a_call, run, running, text
from tests.program import until

pytestmark = pytest.mark.anyio

# --- the book of roots -----------------------------------------------------------------------


def roots_of(*base: str) -> ServerRoots:
    return ServerRoots(lambda: [{"uri": file_uri(path), "name": "sandbox"} for path in base])


def test_a_directory_is_open_until_the_last_call_that_needs_it_has_ended() -> None:
    """G18."""
    roots = roots_of("/work")
    first, second = roots.open(["/etc", "/etc"]), roots.open(["/etc", "/usr"])
    assert (first, second) == (("/etc",), ("/etc", "/usr"))
    assert roots.opened() == ("/etc", "/usr")
    roots.close(first)
    assert roots.opened() == ("/etc", "/usr")
    roots.close(second)
    assert roots.listing() == [{"uri": "file:///work", "name": "sandbox"}]


def test_a_root_is_percent_encoded_and_says_why_it_is_there() -> None:
    """G18."""
    roots = roots_of("/work")
    roots.open(["/a b/ü%20#?"])
    assert roots.listing()[1:] == [
        {"uri": "file:///a%20b/%C3%BC%2520%23%3F", "name": "escalation-approved"}
    ]


def test_what_lies_in_a_known_root_is_not_opened_again() -> None:
    roots = roots_of("/work space")
    assert roots.open(["/work space", "/work space/sub", "/work", "/work spaces"]) == (
        "/work",
        "/work spaces",
    )
    assert roots_of("/").open(["/etc"]) == ()


def test_a_server_that_is_told_of_no_roots_keeps_to_its_own_arguments() -> None:
    roots = roots_of()
    assert roots.open(["/etc"]) == ()
    assert roots.listing() == []


def a_result(said: object, *, is_error: object = True) -> ToolResult:
    return ToolResult(result={"content": said, "isError": is_error})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(a_result([{"type": "text", "text": "Access DENIED - x"}]), True, id="denied"),
        pytest.param(
            a_result([{}, {"text": 1}, {"text": "path Outside Allowed Directories"}]),
            True,
            id="outside",
        ),
        pytest.param(a_result([{"text": "no such file"}]), False, id="another error"),
        pytest.param(
            a_result([{"text": "access denied"}], is_error=False), False, id="a file that says so"
        ),
        pytest.param(
            a_result([{"text": "access denied"}], is_error="true"), False, id="no boolean"
        ),
        pytest.param(a_result("access denied"), False, id="no list"),
        pytest.param(a_result(["access denied"]), False, id="no objects"),
        pytest.param(ToolResult(error={"message": "access denied"}), False, id="a protocol error"),
    ],
)
def test_a_refusal_for_want_of_a_root_is_told_from_everything_else(
    answer: ToolResult, expected: bool
) -> None:
    assert says_outside(answer) is expected


# --- servers ---------------------------------------------------------------------------------

SERVER: Final = """
import json, sys, threading, time
how = json.loads(sys.argv[1])
roots, seen, calls, late = [], [], [], []
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
def ask():
    send(id=f"roots-{len(seen)}", method="roots/list")
def use(listing):
    time.sleep(how.get("slow", 0))
    roots[:] = [root["uri"] for root in listing]
    if how.get("applies_twice"):
        if len(listing) > 1:
            late[:] = [list(roots)]
        elif late:
            roots[:] = late.pop()
for line in sys.stdin:
    message = json.loads(line)
    method, request = message.get("method"), message.get("id")
    if method == "initialize":
        send(id=request, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                                 "serverInfo": {"name": "roots", "version": "1"}})
    elif method == "notifications/initialized" and how.get("asks", True):
        ask()
    elif method == "notifications/roots/list_changed":
        seen.append("changed")
        if how.get("asks", True) and not how.get("asks_once"):
            ask()
    elif method is None:
        listing = message["result"]["roots"]
        seen.append([root["uri"] for root in listing])
        threading.Thread(target=use, args=(listing,)).start()
    elif method == "tools/list":
        send(id=request, result={"tools": [{"name": "read"}, {"name": "seen"}, {"name": "hang"}]})
    elif method == "tools/call" and message["params"]["name"] == "seen":
        send(id=request, result={"content": [
            {"type": "text", "text": json.dumps({"seen": seen, "calls": calls})}]})
    elif method == "tools/call" and message["params"]["name"] == "read":
        wanted = message["params"]["arguments"]["uri"]
        ok = wanted in roots
        calls.append(ok)
        send(id=request, result={"isError": not ok, "content": [
            {"type": "text", "text": "read" if ok else "Access denied - outside"}]})
"""

BASE: Final = "file:///work"


def roots_server(**how: object) -> ServerSpec:
    return ServerSpec(
        name="one",
        annotations="one",
        command=sys.executable,
        args=("-I", "-S", "-c", SERVER, orjson.dumps(how).decode()),
    )


@asynccontextmanager
async def behind(spec: ServerSpec, base: str = BASE) -> AsyncIterator[DownstreamServers]:
    async with running(spec) as servers:
        servers.hooks.roots = lambda _: [{"uri": base, "name": "sandbox"}]
        # What it was told before the hook was set is out of date.
        await servers.notify_roots_changed("one")
        yield servers


async def told(servers: DownstreamServers) -> dict[str, list[object]]:
    said: dict[str, list[object]] = orjson.loads(text(await servers.forward(a_call("seen"))))
    return said


async def withdrawn(servers: DownstreamServers) -> bool:
    return (await told(servers))["seen"][-1] == [BASE]


async def is_refused_now(servers: DownstreamServers, call: AuthorizedCall) -> bool:
    return is_refused(await servers.forward(call))


async def read(servers: DownstreamServers, path: str) -> ToolResult:
    return await servers.forward(a_call("read", {"uri": file_uri(path)}), roots=[path])


async def test_a_server_has_asked_for_its_roots_before_the_call_and_loses_them_after_it() -> None:
    """G18."""
    async with behind(roots_server()) as servers:
        async with servers.open_roots("one", ["/etc"]):
            assert (await told(servers))["seen"][-1] == [BASE, "file:///etc"]
        await until(lambda: withdrawn(servers))
        assert (await told(servers))["calls"] == []


async def test_a_root_is_withdrawn_from_a_server_that_applies_an_older_list_last() -> None:
    """G18: two lists that it reads at once end in any order."""
    async with behind(roots_server(applies_twice=True)) as servers:
        assert text(await read(servers, "/etc")) == "read"
        call = a_call("read", {"uri": "file:///etc"})
        await until(lambda: withdrawn(servers))
        await until(lambda: is_refused_now(servers, call))


async def test_a_call_is_sent_again_until_the_server_uses_what_it_was_told() -> None:
    """G28: and nobody waits longer than need be."""
    async with behind(roots_server(slow=0.03)) as servers:
        assert text(await read(servers, "/etc")) == "read"
        calls = (await told(servers))["calls"]
    assert calls[-1] is True
    assert 1 < len(calls) <= 6


async def test_a_success_that_speaks_of_a_refusal_is_asked_for_again_only_if_it_reads() -> None:
    """Npm's `read_multiple_files` succeeds, whatever became of each file."""
    outside = a_result([{"text": "/etc/x: Error - path outside allowed directories"}], is_error=0)
    sent: list[str] = []

    async def send() -> ToolResult:
        sent.append("sent")
        return outside if len(sent) < 3 else a_result([{"text": "read"}], is_error=False)

    async def tell_again() -> None:
        sent.append("told")

    assert text(await retry_while_outside(send, tell_again, only_reads=True)) == "read"
    assert sent == ["sent", "told", "sent"]
    sent.clear()
    assert await retry_while_outside(send, tell_again) == outside
    assert sent == ["sent"]


async def test_a_call_that_needs_nothing_new_is_sent_once_even_if_it_is_refused() -> None:
    async with behind(roots_server()) as servers:
        answer = await servers.forward(a_call("read", {"uri": "x"}), roots=["/work/sub"])
        assert text(answer).startswith("Access denied")
        answer = await servers.forward(a_call("read", {"uri": "x"}))
        assert (await told(servers))["calls"] == [False, False]


async def test_a_server_that_goes_on_refusing_gets_the_last_word() -> None:
    async with behind(roots_server()) as servers:
        answer = await servers.forward(a_call("read", {"uri": "file:///other"}), roots=["/etc"])
        assert text(answer).startswith("Access denied")
        assert (await told(servers))["calls"] == [False] * 6


async def test_a_server_that_never_asked_for_roots_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ironcurtain_proxy.downstream.supervisor._TELL_ROOTS", 1000)
    async with behind(roots_server(asks=False)) as servers:
        async with servers.open_roots("one", ["/etc"]):
            assert (await told(servers))["seen"] == ["changed", "changed"]
        assert (await told(servers))["seen"] == ["changed"] * 3


async def test_a_server_that_stopped_asking_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ironcurtain_proxy.downstream.supervisor._TELL_ROOTS", 0.05)
    async with behind(roots_server(asks_once=True)) as servers:
        async with servers.open_roots("one", ["/etc"]):
            pass
        monkeypatch.setattr("ironcurtain_proxy.downstream.supervisor._TELL_ROOTS", 1000)
        async with servers.open_roots("one", ["/usr"]):
            pass


async def test_calls_at_the_same_time_share_what_they_need() -> None:
    async with behind(roots_server()) as servers:
        async with servers.open_roots("one", ["/etc"]):
            before = (await told(servers))["seen"].count("changed")
            async with servers.open_roots("one", ["/etc"]):
                pass
            after = await told(servers)
        assert after["seen"].count("changed") == before
        assert after["seen"][-1] == [BASE, "file:///etc"]


async def test_many_calls_at_once_all_get_through_and_leave_nothing_open() -> None:
    async with behind(roots_server(slow=0.01)) as servers:
        said: list[str] = []

        async def one(number: int) -> None:
            said.append(text(await read(servers, f"/d{number % 5}")))

        async with anyio.create_task_group() as tasks:
            for number in range(25):
                tasks.start_soon(one, number)
        assert said == ["read"] * 25
        await until(lambda: withdrawn(servers))


async def test_a_call_that_is_cancelled_leaves_nothing_open() -> None:
    async with behind(roots_server()) as servers:
        with anyio.move_on_after(0.2):
            await servers.forward(a_call("hang"), roots=["/etc"])
        await until(lambda: withdrawn(servers))


async def test_a_server_that_is_not_there_is_said_so() -> None:
    async with running(roots_server()) as servers:
        with pytest.raises(ServerUnavailableError):
            async with servers.open_roots("other", ["/etc"]):
                pass
        with pytest.raises(ServerUnavailableError):
            await servers.forward(a_call("read", server="other"), roots=["/etc"])


# --- npm's filesystem server -----------------------------------------------------------------

NPM: Final = (
    Path(__file__).parents[2] / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
)


def npm_filesystem(workspace: Path) -> ServerSpec:
    node = shutil.which("node")
    if node is None or not NPM.exists():
        pytest.skip("npm's server-filesystem is not installed: run scripts/setup")
    return ServerSpec(
        name="one", annotations="filesystem", command=node, args=(str(NPM), str(workspace))
    )


@asynccontextmanager
async def npm_with_workspace(tmp_path: Path) -> AsyncIterator[tuple[DownstreamServers, Path]]:
    workspace, outside = tmp_path / "work", tmp_path / "out side"
    workspace.mkdir()
    outside.mkdir()
    (workspace / "in.txt").write_text("inside", encoding="utf-8")
    (outside / "a.txt").write_text("secret", encoding="utf-8")
    servers = DownstreamServers((npm_filesystem(workspace),), OPTIONS)
    servers.hooks.roots = lambda _: [{"uri": file_uri(str(workspace)), "name": "sandbox"}]
    servers.start_processes()
    async with anyio.create_task_group() as group:
        await group.start(run, servers)
        await servers.tools()
        try:
            yield servers, outside
        finally:
            group.cancel_scope.cancel()


async def test_npms_filesystem_server_lets_an_approved_call_through_and_no_other(
    tmp_path: Path,
) -> None:
    """G18, G28."""
    async with npm_with_workspace(tmp_path) as (servers, outside):
        arguments: Mapping[str, Json] = {"path": str(outside / "a.txt")}
        call = a_call("read_text_file", arguments)
        assert is_refused(await servers.forward(call))
        for _ in range(20):
            assert text(await servers.forward(call, roots=[str(outside)])) == "secret"
        both: Mapping[str, Json] = {
            "paths": [str(outside / "a.txt"), str(tmp_path / "work/in.txt")]
        }
        several = await servers.forward(
            a_call("read_multiple_files", both), roots=[str(outside), str(tmp_path / "work")]
        )
        assert "secret" in text(several)
        assert "inside" in text(several)
        inside: Mapping[str, Json] = {"path": str(tmp_path / "work/in.txt")}
        assert text(await servers.forward(a_call("read_text_file", inside))) == "inside"
        # It takes up the withdrawal in its own time.
        await until(lambda: is_refused_now(servers, call))


def is_refused(answer: ToolResult) -> bool:
    return says_outside(answer)


@pytest.mark.parametrize("is_told", [True, False])
async def test_npms_filesystem_server_lets_through_what_a_rule_allows(
    tmp_path: Path, *, is_told: bool
) -> None:
    """A rule may name one file, which the server takes for no root, or no directory at all."""
    async with npm_with_workspace(tmp_path) as (servers, outside):
        file = outside / "a.txt"
        told = [tmp_path / "work", *[file] * is_told]
        servers.hooks.roots = lambda _: [{"uri": file_uri(str(one)), "name": "a"} for one in told]
        value = PathValue(str(file), RealPath.from_text(str(file)))
        fact = ArgumentFact("path", ("read-path",), (value,))
        call = a_call("read_text_file", {"path": str(file)})
        request = AccessRequest(
            server="filesystem",
            tool=call.tool,
            annotated=True,
            has_arguments=True,
            arguments=(fact,),
        )
        allowed = replace(call, request=request)
        assert text(await servers.forward(allowed)) == "secret"
        await until(lambda: is_refused_now(servers, call))
