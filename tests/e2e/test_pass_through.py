"""What is not for us to judge passes unchanged, and at once."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message, RawClient, at, text
from tests.e2e.servers.scripted import SHOWN, TOOLS

ODD_TOOLS = (
    '{"tools":[{"zeta":[1,1.0,1e2,-0.0,0.1],"name":"echo","title":"Echo \\u00e9","inputSchema":'
    '{"type":"object","x-order":{"b":1,"a":2},"properties":{"text":{"type":"string","maxLength":'
    '1e3,"default":null}},"$schema":"http://json-schema.org/draft-07/schema#"},"outputSchema":'
    '{"type":"object"},"annotations":{"readOnlyHint":true,"vendor":9007199254740993},'
    '"_meta":{"a/b":[]},"description":"","icons":[]}]}'
)


def spelled(value: Json) -> bytes:
    """The value as text: equal texts have equal keys, in equal order, and equal numbers."""
    return orjson.dumps(value)


@pytest.mark.requirement("C-3", "C-1")
def test_a_tool_is_listed_as_its_server_describes_it(
    installation: Installation, tmp_path: Path
) -> None:
    """G26."""
    file = tmp_path / "tools.json"
    file.write_text(ODD_TOOLS, encoding="utf-8")
    installation.add_scripted(env={"SCRIPTED_TOOLS": str(file)})
    installation.allow_scripted()
    tools: list[Json] = [*installation.start().tools()]
    assert spelled(tools) == spelled(at(orjson.loads(ODD_TOOLS), "tools"))


def test_every_page_of_a_long_list_is_shown(installation: Installation) -> None:
    """G26."""
    installation.add_scripted(env={"SCRIPTED_PAGE": "3"})
    installation.allow_scripted()
    assert installation.start().tool_names() == list(SHOWN)
    assert installation.start(SHOW_DENIED_TOOLS="true").tool_names() == list(TOOLS)


def test_the_servers_own_result_comes_back_with_everything_in_it(agent: RawClient) -> None:
    """G26."""
    line = (
        '{"zz":1,"content":[{"type":"text","text":"t","annotations":{"priority":0.5},"_meta":{"k":1}}'
        ',{"type":"resource_link","uri":"x://y","name":"n","unknown":[]},{"type":"new-kind"}],'
        '"structuredContent":{"b":[1,1.0,-0.0,1e2],"a":{"":null}},"_meta":{"v/w":true},"isError":false}'
    )
    assert spelled(agent.call("raw", {"line": line})) == spelled(orjson.loads(line))


def test_a_number_of_any_size_keeps_its_digits(agent: RawClient) -> None:
    number = "123456789012345678901234567890"
    agent.call("raw", {"line": f'{{"content":[],"structuredContent":{{"n":{number}}}}}'})
    assert number.encode() in agent.lines[-1]


def test_an_error_result_of_the_server_is_passed_back_as_it_is(agent: RawClient) -> None:
    line = '{"isError":true,"content":[{"type":"text","text":"no such city"}]}'
    assert spelled(agent.call("raw", {"line": line})) == spelled(orjson.loads(line))


def test_a_json_rpc_error_of_the_server_is_passed_back_as_it_is(agent: RawClient) -> None:
    line = '{"code":-32099,"message":"ask again","data":{"z":1,"a":[1.0]}}'
    answer = agent.answer(agent.start_call("error", {"line": line}))
    assert spelled(answer["error"]) == spelled(orjson.loads(line))


def test_the_arguments_and_the_trace_of_a_call_reach_the_server_unchanged(agent: RawClient) -> None:
    """G26."""
    meta: Json = {"tracestate": "a=1,b=2", "progressToken": "t"}
    given: Message = {"text": " spaces\tand é ", "list": [1, 1.0, {"b": 1, "a": []}]}
    result = agent.call("echo", given, _meta=meta)
    received = orjson.loads(text(result))
    assert spelled(received["arguments"]) == spelled(given)
    assert received["_meta"] == meta
    assert received["name"] == "echo"


@pytest.mark.parametrize("token", ["a token", 7], ids=["text", "number"])
def test_progress_arrives_before_the_answer_under_the_agents_token(
    token: str | int, agent: RawClient
) -> None:
    request = agent.start_call("progress", {"times": 3}, _meta={"progressToken": token})
    agent.result(request)
    steps = [
        message
        for message in agent.notifications("notifications/progress")
        if at(message, "params", "progressToken") == token
    ]
    assert [at(step, "params", "progress") for step in steps] == [1, 2, 3]
    assert all(type(at(step, "params", "progress")) is int for step in steps)
    places = [agent.arrived.index(step) for step in steps]
    assert max(places) < agent.arrived.index(agent.answer(request))


def test_a_cancelled_call_is_cancelled_at_the_server_and_recorded(scripted: Installation) -> None:
    agent = scripted.start()
    request = agent.start_call("hold", {"key": "k"})
    agent.notification("notifications/message")
    agent.notify("notifications/cancelled", {"requestId": request, "reason": "enough"})
    assert text(agent.call("answer", {"text": "after"})) == "after"
    assert b"notifications/cancelled" in scripted.journal_file().read_bytes()
    withdrawn, after = scripted.outcomes()
    assert at(withdrawn, "toolName") == "hold"
    assert at(withdrawn, "result", "status") == "error"
    assert at(after, "toolName") == "answer"
    assert request not in [
        message["id"] for message in agent.arrived if "result" in message and "id" in message
    ]


def test_a_fast_call_is_answered_while_a_slow_one_is_under_way(agent: RawClient) -> None:
    """G27."""
    slow = agent.start_call("hold", {"key": "slow"})
    fast = [agent.start_call("answer", {"text": f"fast {turn}"}) for turn in range(20)]
    for request in fast:
        agent.result(request)
    assert slow not in agent.order()
    agent.call("release", {"key": "slow"})
    assert text(agent.result(slow)) == "held until now"


def test_new_tools_of_a_server_are_announced_and_can_be_used(installation: Installation) -> None:
    installation.add_scripted("one")
    installation.variables["PINS"] = "off"
    installation.add_scripted("scripted", {**_plain(), "added": {"text": ["none"]}})
    installation.allow_scripted("one", "scripted")
    agent = installation.start()
    assert "scripted__added" not in agent.tool_names()
    agent.call("scripted__change", {"add": "added"})
    agent.notification("notifications/tools/list_changed")
    assert "scripted__added" in agent.tool_names()
    assert "one__answer" in agent.tool_names()
    received = orjson.loads(text(agent.call("scripted__added", {"text": "new"})))
    assert received["arguments"] == {"text": "new"}


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_new_tool_that_nobody_annotated_is_listed_where_that_is_asked_for_and_denied(
    is_shown: bool, scripted: Installation
) -> None:
    scripted.variables["PINS"] = "off"
    agent = scripted.start(SHOW_DENIED_TOOLS=str(is_shown).lower())
    agent.call("change", {"add": "surprise"})
    agent.notification("notifications/tools/list_changed")
    assert ("surprise" in agent.tool_names()) is is_shown
    result = agent.call("surprise", {"text": "x"})
    assert result["isError"] is True
    assert scripted.last_decision()[0] == "deny"
    assert "surprise" not in [at(params, "name") for params in scripted.received()]


def test_log_messages_of_a_server_reach_the_agent(agent: RawClient) -> None:
    agent.call("log", {"text": "a word from below"})
    assert agent.until(
        lambda message: (
            message.get("method") == "notifications/message"
            and at(message, "params", "data") == "a word from below"
        ),
        "log message",
    )


def test_a_server_that_asks_for_roots_is_told_the_workspace(
    agent: RawClient, shared: Installation
) -> None:
    answer = orjson.loads(text(agent.call("roots")))
    assert [root["uri"] for root in answer["roots"]] == [shared.workspace.as_uri()]


@pytest.mark.parametrize(
    "content", ["{workspace}", "{workspace}-other", "file://{workspace}/a", "/workspace/a"]
)
def test_the_text_of_a_result_is_never_rewritten(
    content: str, agent: RawClient, shared: Installation
) -> None:
    """G25."""
    given = content.format(workspace=shared.workspace)
    assert text(agent.call("answer", {"text": given})) == given


def _plain() -> dict[str, dict[str, list[str]]]:
    return {tool: {name: ["none"] for name in given} for tool, given in TOOLS.items()}
