"""Real processes behind `DownstreamServers`: what they send, how they fail, and what is left."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream.starting import DownstreamOptions
from ironcurtain_proxy.errors import CallTimedOutError, DownstreamError, ServerUnavailableError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from tests.downstream.scripted_servers import (
    OPTIONS,
    a_call,
    family,
    is_alive,
    running,
    scripted,
    text,
    text_of,
)
from tests.program import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-33")]


async def test_a_result_comes_back_as_the_server_sent_it_and_meta_reaches_the_server() -> None:
    async with running() as servers:
        meta: dict[str, Json] = {"x/y": 12345678901234567890123, "f": 1.0}
        answer = await servers.forward(a_call("echo", {"text": "hi"}, _meta=meta))
    assert answer.result == {
        "content": [{"type": "text", "text": "hi"}],
        "_meta": meta,
        "unknown": 1.0,
    }
    assert isinstance(answer.result["unknown"], float)


async def test_a_server_that_lives_and_hears_nothing_is_started_again() -> None:
    """It was said to be ready, and every call found that it is not running."""
    async with running() as servers:
        assert await text_of(servers, "deaf") == "deaf"
        first = servers.status()["one"].pid
        with pytest.raises(ServerUnavailableError):
            await servers.forward(a_call("echo"))
        await until(lambda: servers.status()["one"].pid not in {first, None})
        await until(lambda: servers.status()["one"].state == "ready")
        assert await text_of(servers, "echo", {"text": "hi"}) == "hi"


async def test_an_error_comes_back_as_the_server_sent_it() -> None:
    async with running() as servers:
        answer = await servers.forward(a_call("fail"))
    assert answer.error == {"code": -32099, "message": "no", "data": {"x": 1.0}}
    assert answer.result is None


async def test_all_pages_of_tools_are_listed_as_they_came() -> None:
    """G26."""
    async with running(scripted("one", {"pages": 4}), scripted("two")) as servers:
        tools = await servers.tools()
    assert list(tools) == ["one", "two"]
    assert [tool.name for tool in tools["one"]] == ["echo", "added", "page_1", "page_2", "page_3"]
    assert tools["one"][0].raw == {"name": "echo", "inputSchema": {"type": "object"}, "x": 1.0}


async def test_a_server_whose_pages_go_in_circles_keeps_its_tools(tmp_path: Path) -> None:
    log = tmp_path / "session.log"
    options = replace(OPTIONS, session_log=log)
    async with running(scripted("one", {"circle": True}), options=options) as servers:
        assert "echo" in [tool.name for tool in (await servers.tools())["one"]]
        assert await text_of(servers, "echo", {"text": "hi"}) == "hi"
    assert "names one that came before" in log.read_text("utf-8")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("Server listens on port 3000\n", 'it printed "Server listens on port 3000"'),
        ("Content-Length: 52\r\n\r\n", "which frames messages for editors"),
        ('"hello"\n', 'it printed ""hello""'),
        ("key hunter2hunter2\n", 'it printed "key ***'),
    ],
)
async def test_what_a_server_prints_instead_of_messages_is_said(printed: str, said: str) -> None:
    babble = scripted("one", {"deaf": True, "prints": printed}, credentials={"K": "hunter2hunter2"})
    early = replace(OPTIONS, start_deadline=0.5)
    async with running(babble, options=early) as servers:
        await until(lambda: said in servers.status()["one"].error)
    late = replace(OPTIONS, initialize_timeout=0.5)
    async with running(babble, options=late) as servers:
        # On a busy machine a start may be given up before it prints; it is tried again.
        both = {"did not answer within 0.5 s", said}
        await until(lambda: all(one in servers.status()["one"].error for one in both))


async def test_what_is_printed_during_a_call_is_said_when_its_time_is_over() -> None:
    options = replace(OPTIONS, call_timeout=0.5)
    async with running(options=options) as servers:

        async def is_said() -> bool:
            with pytest.raises(CallTimedOutError) as caught:
                await servers.forward(a_call("raw", {"bytes": "oops\n"}))
            return 'it printed "oops"' in str(caught.value)

        await until(is_said)


async def test_a_fast_call_does_not_wait_for_a_slow_one_on_the_same_server() -> None:
    """G27."""
    order: list[str] = []
    async with running() as servers:

        async def call(tool: str, arguments: Mapping[str, Json]) -> None:
            order.append(text(await servers.forward(a_call(tool, arguments))))

        async with anyio.create_task_group() as group:
            group.start_soon(call, "sleep", {"seconds": 0.3})
            await anyio.wait_all_tasks_blocked()
            group.start_soon(call, "echo", {"text": "fast"})
    assert order == ["fast", "slept"]


async def test_progress_reaches_only_the_call_it_is_about_unchanged_and_before_the_result() -> None:
    heard: list[tuple[str, Json]] = []
    async with running(scripted("one"), scripted("two")) as servers:

        async def call(server: str, token: Json, claimed: Json) -> None:
            async def listen(params: object) -> None:
                assert isinstance(params, dict)
                assert params["vendor"] == [1]
                heard.append((server, params["progress"]))

            call = a_call("progress", {"token": claimed}, server, _meta={"progressToken": token})
            await servers.forward(call, listen)
            heard.append((server, "result"))

        await call("one", "t", None)
        # The other server speaks of a call that is not its own, and one of another type.
        async with anyio.create_task_group() as group:
            group.start_soon(call, "one", 7, "t")
            group.start_soon(call, "two", 8, 7)
    assert heard[:4] == [("one", step) for step in (1, 2.5, 12345678901234567890123, "result")]
    assert sorted(heard[4:]) == [("one", "result"), ("two", "result")]


async def test_a_listener_that_fails_costs_nobody_the_result() -> None:
    async def listen(params: object) -> None:
        raise RuntimeError("the agent is gone")

    async with running() as servers:
        answer = await servers.forward(a_call("progress", _meta={"progressToken": 1}), listen)
        assert text(answer) == "done"
        assert await text_of(servers, "echo", {"text": "on"}) == "on"


async def test_a_hanging_call_ends_at_its_deadline_and_the_server_is_told() -> None:
    options = replace(OPTIONS, call_timeout=0.2)
    async with running(options=options) as servers:
        with pytest.raises(CallTimedOutError, match=r'server "one" did not answer within 0\.2 s'):
            await servers.forward(a_call("nothing"))
        told: list[dict[str, Json]] = []

        async def is_told() -> bool:
            with suppress(CallTimedOutError):  # this one, on a busy machine
                told[:] = orjson.loads(await text_of(servers, "cancelled"))
            return bool(told)

        await until(is_told)
    assert isinstance(told[0]["requestId"], int)
    assert told[0]["reason"] == "the deadline has passed"


async def test_a_cancelled_call_is_cancelled_at_the_server_and_its_late_answer_dropped() -> None:
    async with running() as servers:
        async with anyio.create_task_group() as group:
            group.start_soon(text_of, servers, "sleep", {"seconds": 0.3})
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        [told] = orjson.loads(await text_of(servers, "cancelled"))
        assert told["reason"] == "the caller has cancelled"
        assert await text_of(servers, "sleep", {"seconds": 0.4}) == "slept"


async def test_a_second_answer_to_one_call_is_dropped() -> None:
    async with running() as servers:
        assert await text_of(servers, "twice") == "first"
        assert await text_of(servers, "echo", {"text": "next"}) == "next"


async def test_a_crash_fails_the_call_at_once_and_the_server_comes_back_with_its_tools() -> None:
    async with running(scripted("one"), scripted("two")) as servers:
        changes: list[int] = []

        async def changed(_: bool) -> None:
            changes.append(len((await servers.tools())["one"]))

        servers.hooks.on_tools_changed = changed
        with pytest.raises(ServerUnavailableError, match="ended before it"):
            await servers.forward(a_call("crash"))
        with pytest.raises(ServerUnavailableError, match='"one" is not running; it is being rest'):
            await servers.forward(a_call("echo"))
        assert await text_of(servers, "echo", {"text": "still"}, "two") == "still"
        await until(lambda: bool(changes))
        assert changes == [2]
        assert await text_of(servers, "echo", {"text": "back"}) == "back"
        assert servers.status()["one"].starts == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param('{"id":ID,"result":{"x":NaN}}\n', id="NaN"),
        pytest.param('{"id":ID,"result":{"x":\n', id="cut off"),
        pytest.param('{"id":ID,"result":[]}\n', id="a result that is no object"),
        pytest.param('{"id":ID}\n', id="neither result nor error"),
        pytest.param('{"id":ID,"result":{},"error":{"code":1}}\n', id="both"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error_at_once(answer: str) -> None:
    async with running() as servers:
        with pytest.raises(DownstreamError, match="cannot be read"):
            await servers.forward(a_call("raw", {"bytes": answer}))
        assert await text_of(servers, "echo", {"text": "on"}) == "on"


async def test_what_a_server_may_ask_is_answered_and_nothing_else() -> None:
    async with running(scripted("one"), scripted("two")) as servers:
        servers.hooks.roots = lambda server: [{"uri": f"file:///{server}", "name": "w"}]
        answers = [
            orjson.loads(await text_of(servers, "ask", {"method": method}))
            for method in ("ping", "roots/list", "sampling/createMessage", "elicitation/create")
        ]
        other = orjson.loads(await text_of(servers, "ask", {"method": "roots/list"}, "two"))
    refusal = {"code": -32601, "message": "Method not found"}
    assert answers == [
        {"jsonrpc": "2.0", "id": "q", "result": {}},
        {"jsonrpc": "2.0", "id": "q", "result": {"roots": [{"uri": "file:///one", "name": "w"}]}},
        {"jsonrpc": "2.0", "id": "q", "error": refusal},
        {"jsonrpc": "2.0", "id": "q", "error": refusal},
    ]
    assert other["result"] == {"roots": [{"uri": "file:///two", "name": "w"}]}


async def test_log_messages_are_passed_on_raw_with_the_servers_name() -> None:
    heard: list[tuple[str, object]] = []

    async def log(server: str, params: object) -> None:
        heard.append((server, params))

    async with running() as servers:
        servers.hooks.on_log = log
        params: Json = {"level": "info", "data": {"n": 1.0}}
        await text_of(servers, "tell", {"method": "notifications/message", "params": params})
    assert heard == [("one", params)]


async def test_a_log_level_reaches_servers_that_have_logging_also_after_a_restart() -> None:
    talkative = scripted("one", {"capabilities": {"logging": {}}})
    async with running(talkative, scripted("two")) as servers:
        await servers.set_log_level("debug")
        assert orjson.loads(await text_of(servers, "cancelled")) == [{"level": "debug"}]
        assert orjson.loads(await text_of(servers, "cancelled", server="two")) == []
        with pytest.raises(ServerUnavailableError):
            await servers.forward(a_call("crash"))
        await until(lambda: servers.status()["one"].state == "ready")
        assert orjson.loads(await text_of(servers, "cancelled")) == [{"level": "debug"}]


async def test_tools_that_change_are_listed_again_and_announced() -> None:
    async with running() as servers:
        changed = anyio.Event()

        async def note(_: bool) -> None:
            changed.set()

        servers.hooks.on_tools_changed = note
        await text_of(servers, "tools", {"name": "new"})
        await changed.wait()
        names = [tool.name for tool in (await servers.tools())["one"]]
    assert names == ["echo", "added", "new"]


@pytest.mark.requirement("C-34")
async def test_servers_that_do_not_start_are_left_out_and_the_rest_go_on() -> None:
    missing = ServerSpec(name="missing", annotations="missing", command="no-such-command-here")
    nowhere = scripted("nowhere", cwd="/no/such/directory")
    docker = ServerSpec(
        name="docker", annotations="d", command="docker", args=("run", "-e", "GITHUB_TOKEN", "i")
    )
    async with running(missing, nowhere, docker, scripted()) as servers:
        tools = await servers.tools()
        errors = {name: status.error for name, status in servers.status().items()}
        assert [name for name, listed in tools.items() if listed] == ["one"]
        with pytest.raises(ServerUnavailableError, match='server "missing" is not running'):
            await servers.forward(a_call("echo", server="missing"))
        with pytest.raises(ServerUnavailableError, match='there is no server "other"'):
            await servers.forward(a_call("echo", server="other"))
        assert await text_of(servers, "echo", {"text": "on"}) == "on"
    why = 'server "missing" ended: its command was not found: no-such-command-here'
    assert errors["missing"].startswith(why)
    assert errors["nowhere"].endswith("its working directory does not exist")
    assert "GITHUB_TOKEN, which is not set" in errors["docker"]


async def test_a_missing_script_is_not_blamed_on_the_shell_that_is_there() -> None:
    bare = ServerSpec(name="bare", annotations="b", command="bash", args=("./no-such-script",))
    async with running(bare) as servers:
        await servers.tools()
        error = servers.status()["bare"].error
    why = "it exited with status 127, as where a file is not found or cannot be run: bash"
    assert why in error
    assert "its command was not found" not in error


async def test_a_server_that_never_answers_initialize_is_given_up() -> None:
    options = DownstreamOptions(initialize_timeout=0.3)
    async with running(scripted("deaf", {"deaf": True}), options=options) as servers:
        assert servers.status()["deaf"].state == "failed"
        assert "did not answer within 0.3 s" in servers.status()["deaf"].error


async def test_a_server_that_does_not_answer_initialize_holds_nobody_up() -> None:
    options = DownstreamOptions(start_deadline=0.2)
    async with running(scripted("deaf", {"deaf": True}), scripted(), options=options) as servers:
        await until(lambda: servers.status()["one"].state == "ready")
        assert await text_of(servers, "echo", {"text": "on"}) == "on"
        assert servers.status()["deaf"].state == "starting"


async def test_a_call_waits_longer_than_a_list_and_hears_why_its_server_is_missing() -> None:
    options = DownstreamOptions(start_deadline=0.0, call_start_deadline=0.2)
    async with running(scripted("deaf", {"deaf": True}), options=options) as servers:
        assert await servers.tools() == {"deaf": ()}
        assert "is still starting: call again" in await servers.until_started("deaf")
    gone = replace(scripted("gone"), command="no-such-command-here")
    options = DownstreamOptions(start_deadline=0.0)
    async with running(scripted(), gone, options=options) as servers:
        said = await servers.until_started("gone")
        assert "did not start, and is tried again. The reason, for the user: it " in said
        (why,) = servers.missing()
        assert why == (
            "The server gone did not start, so its tools are missing: "
            "it ended: its command was not found: no-such-command-here."
        )
        with pytest.raises(ServerUnavailableError, match="not running: it ended: its command"):
            await servers.entries("gone", "resources/list", ("resources", "uri"))
        assert await servers.until_started("one") == ""
        assert await text_of(servers, "echo", {"text": "on"}) == "on"


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_call_waits_for_the_next_start_of_a_server_whose_first_ones_failed(
    failures: int, tmp_path: Path
) -> None:
    runs, spec = tmp_path / "runs", scripted()
    failing = f'echo >> {runs}; [ "$(wc -l < {runs})" -gt {failures} ] || exit 1; exec "$@"'
    spec = replace(spec, command="sh", args=("-c", failing, "sh", spec.command, *spec.args))
    async with running(spec) as servers:
        await servers.until_settled("one")
        assert servers.tools_now() == {"one": ()}, "a list does not wait for it"
        assert await servers.until_started("one") == ""
        assert await text_of(servers, "echo", {"text": "on"}) == "on"


async def test_tools_waits_no_longer_than_the_start_deadline_and_late_comers_are_announced(
    tmp_path: Path,
) -> None:
    late = scripted("late", {"die_once": f"{tmp_path}/marker"})
    async with running(late, scripted()) as servers:
        announced = anyio.Event()

        async def note(_: bool) -> None:
            announced.set()

        servers.hooks.on_tools_changed = note
        await announced.wait()
        assert len((await servers.tools())["late"]) == 2
    options = DownstreamOptions(start_deadline=0.2)
    async with running(scripted("deaf", {"deaf": True}), scripted(), options=options) as servers:
        assert (await servers.tools())["deaf"] == ()
        assert servers.status()["deaf"].state == "starting"


async def test_closing_ends_all_servers_and_all_that_they_have_started() -> None:
    """G38."""
    stubborn = scripted("one", {"stubborn": True, "children": True})
    async with running(stubborn, scripted("two", {"children": True})) as servers:
        await until(lambda: len(family(servers)) == 2 * 5)
        pids = family(servers)
    assert not [pid for pid in pids if is_alive(pid)]
    assert {status.state for status in servers.status().values()} == {"stopped"}


async def test_an_error_names_the_server_and_neither_its_arguments_nor_its_environment() -> None:
    secret = "s3cr3t-in-argv"  # noqa: S105  a made-up one
    spec = ServerSpec(
        name="one",
        annotations="one",
        command="/bin/false",
        args=(secret,),
        env={"API_KEY": secret},
        credentials={"TOKEN": secret},
    )
    async with running(spec) as servers:
        with pytest.raises(ServerUnavailableError) as caught:
            await servers.forward(a_call("echo"))
        assert secret not in str(caught.value) + servers.status()["one"].error


async def test_what_goes_out_is_what_was_judged_and_the_agents_other_params_as_they_came() -> None:
    async with running() as servers:
        call = a_call("params", {"judged": "/w/a"}, extra=[1.0], _meta={"k": 1})
        bare = replace(a_call("params"), params={"name": "one__params"})
        sent = [orjson.loads(text(await servers.forward(which))) for which in (call, bare)]
    assert list(sent[0].items()) == [
        ("name", "params"),
        ("arguments", {"judged": "/w/a"}),
        ("extra", [1.0]),
        ("_meta", {"k": 1}),
    ]
    assert sent[1] == {"name": "params"}
