"""Resources, prompts, completions and subscriptions: decided, recorded, sent as judged."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import QUICK, Installation, rule
from tests.e2e.raw_client import Message, RawClient, at
from tests.e2e.servers import whole
from tests.tables import table

WHOLE = Path(whole.__file__)
RESOURCES: list[Json] = [
    {"uri": "memo://insights", "name": "insights", "x-vendor": 1},
    {"uri": "memo://hidden/../insights", "name": "dots"},
    {"uri": "secret://key", "name": "key"},
    {"uri": "file:///etc/shadow", "name": "shadow"},
    {"uri": "ui://view/main", "name": "view"},
    {"uri": "ui://view/other", "name": "other"},
]
TOOLS: list[Json] = [
    {
        "name": "ask",
        "inputSchema": {"type": "object"},
        "_meta": {"ui": {"resourceUri": "ui://view/main"}},
    },
    {"name": "notify", "inputSchema": {"type": "object"}},
]
SAID: Message = table("e2e/operations.said", Message)


def add_whole(installation: Installation, name: str, said: Message, **entry: Json) -> None:
    """A server with all parts of the protocol."""
    env: Message = {
        "WHOLE": orjson.dumps(said).decode(),
        "WHOLE_JOURNAL": str(installation.journal_file(name)),
    }
    installation.add_server(name, [*QUICK, str(WHOLE)], env=env, **entry)


def received(installation: Installation, name: str = "whole") -> list[Message]:
    """What the agent's requests became, without the handshake and the lists."""
    lines = installation.journal_file(name).read_bytes().splitlines()
    messages = [orjson.loads(line) for line in lines]
    left_out = ("initialize", "notifications/", "tools/list")
    return [
        one for one in messages if not str(one.get("method", "initialize")).startswith(left_out)
    ]


def asked_for(installation: Installation) -> list[Message]:
    """What reached the server beside the lists, which the first question about a name reads."""
    return [one for one in received(installation) if not str(one["method"]).endswith("/list")]


def annotate(installation: Installation) -> None:
    """The prompts of the server, and its tools."""
    roles: Message = {"greet": {"name": ["none"]}, "open": {"path": ["read-path"]}}
    prompts: list[Json] = [{"promptName": name, "args": args} for name, args in roles.items()]
    tools: list[Json] = [{"toolName": name, "args": {}} for name in ("ask", "notify")]
    entry: Json = {"inputHash": "0", "tools": tools, "prompts": prompts}
    installation.write(
        "tool-annotations.json", {"generatedAt": "2026-01-01", "servers": {"whole": entry}}
    )


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One installation for the tests that change nothing."""
    built = Installation(tmp_path_factory.mktemp("operations"))
    add_whole(built, "whole", SAID)
    readable = str(built.workspace)
    (built.workspace / "notes.txt").write_text("notes", encoding="utf-8")
    (built.workspace / "link").symlink_to("/etc/passwd")
    built.rules = [
        rule("memo", uris={"schemes": [], "patterns": ["memo://*"]}),
        rule("views", uris={"schemes": ["ui"]}),
        rule("files", paths={"roles": ["read-path"], "within": readable}),
        rule("greet", prompt=["greet"]),
        rule("tools", tool=["ask", "notify"]),
    ]
    annotate(built)
    yield built
    built.end()


@pytest.fixture(scope="module")
def client(module: Installation) -> RawClient:
    """One agent for all of them."""
    return module.start()


def listed(client: RawClient, method: str, key: str, named: str) -> list[Json]:
    """The names of a list."""
    entries = at(client.result(client.request(method)), key)
    assert isinstance(entries, list)
    return [at(entry, named) for entry in entries]


def error(client: RawClient, method: str, params: Message) -> Message:
    """The error of a request that is refused."""
    found = at(client.answer(client.request(method, params)), "error")
    assert isinstance(found, dict)
    return found


def test_only_resources_that_could_be_allowed_are_listed(client: RawClient) -> None:
    uris = listed(client, "resources/list", "resources", "uri")
    assert uris == ["memo://insights", "ui://view/main"]
    assert listed(client, "resources/templates/list", "resourceTemplates", "uriTemplate") == [
        "memo://{name}"
    ]


def test_an_entry_of_a_list_keeps_what_its_server_wrote(client: RawClient) -> None:
    entries = at(client.result(client.request("resources/list")), "resources")
    assert at(entries, 0) == RESOURCES[0]


def test_a_prompt_without_annotation_or_rule_is_not_listed(client: RawClient) -> None:
    assert listed(client, "prompts/list", "prompts", "name") == ["greet"]


@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list", "prompts/list"])
def test_a_cursor_that_nobody_gave_out_is_invalid(method: str, client: RawClient) -> None:
    assert error(client, method, {"cursor": "2"})["code"] == -32602


def test_an_allowed_resource_is_read_and_recorded(client: RawClient, module: Installation) -> None:
    result = client.result(client.request("resources/read", {"uri": "memo://insights"}))
    assert result == {"contents": [{"uri": "memo://insights", "text": "text of memo://insights"}]}
    record = module.outcomes()[-1]
    assert record["toolName"] == "resources/read"
    assert record["arguments"] == {"uri": "memo://insights"}
    assert module.last_decision() == ("allow", "memo")


def test_a_file_is_sent_in_the_spelling_that_was_judged(
    client: RawClient, module: Installation
) -> None:
    spelled = f"FILE://localhost{module.workspace}/sub/../%6eotes.txt"
    client.result(client.request("resources/read", {"uri": spelled}))
    assert received(module)[-1]["params"] == {"uri": f"file://{module.workspace}/notes.txt"}


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/../root/.ssh/id_rsa",
        "file://evil.example/etc/passwd",
        "file:///etc%2fpasswd",
        "FILE:///etc/passwd",
        "file:///etc/passwd%00.txt",
        "file:/etc/passwd",
        "file:etc/passwd",
        "{workspace}/link",
        "file://{workspace}/link",
        "file://{workspace}/../../../../etc/passwd",
        "file://{workspace}\u2215notes.txt/../../x",
        "\u200bfile:///etc/passwd",
        "memo://a/../b",
        "memo://a/%2e%2e/b",
        "memo://insights\n",
        "secret://key",
        "jar:file:///etc/passwd!/x",
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example\\@good.example/",
        "ui://view/other",
        "ui://nobody",
        "no uri at all",
        "",
        "memo:" + "x" * 10_000,
    ],
)
def test_no_trick_with_a_uri_reaches_the_server(
    uri: str, client: RawClient, module: Installation
) -> None:
    before = len(asked_for(module))
    told = error(
        client, "resources/read", {"uri": uri.replace("{workspace}", str(module.workspace))}
    )
    assert told["code"] == -32002
    assert len(asked_for(module)) == before
    assert module.last_decision()[0] == "deny"


def test_a_resource_that_is_not_there_is_denied_as_one_that_is_hidden(client: RawClient) -> None:
    hidden = error(client, "resources/read", {"uri": "secret://key"})
    missing = error(client, "resources/read", {"uri": "secret://nix"})
    assert hidden == missing


def test_a_view_is_read_where_a_listed_tool_declares_it(client: RawClient) -> None:
    result = client.result(client.request("resources/read", {"uri": "ui://view/main"}))
    assert at(result, "contents", 0, "uri") == "ui://view/main"


def test_a_prompt_gets_its_arguments_and_its_answer_passes_unchanged(
    client: RawClient, module: Installation
) -> None:
    params: Message = {"name": "greet", "arguments": {"name": "Ada"}, "inputResponses": {"a": 1}}
    result = client.result(client.request("prompts/get", params))
    sent: Message = {"name": "greet", "arguments": {"name": "Ada"}}
    assert received(module)[-1]["params"] == sent
    assert at(result, "messages", 1, "content", "resource", "uri") == "file:///etc/shadow"
    assert module.outcomes()[-1]["toolName"] == "prompts/get greet"
    assert module.outcomes()[-1]["withheld"] == ["inputResponses"]


def test_what_a_prompt_embeds_is_not_read_by_it(client: RawClient) -> None:
    client.result(client.request("prompts/get", {"name": "greet"}))
    assert error(client, "resources/read", {"uri": "file:///etc/shadow"})["code"] == -32002


def test_the_argument_of_a_prompt_is_judged_as_a_path(
    client: RawClient, module: Installation
) -> None:
    inside: Message = {"name": "open", "arguments": {"path": "notes.txt"}}
    client.result(client.request("prompts/get", inside))
    assert at(received(module)[-1], "params", "arguments", "path") == (
        f"{module.workspace}/notes.txt"
    )
    outside: Message = {"name": "open", "arguments": {"path": "/etc/passwd"}}
    assert error(client, "prompts/get", outside)["code"] == -32602


@pytest.mark.parametrize(
    "params",
    [
        {"name": "unknown"},
        {"name": "nobody has it"},
        {"name": "greet", "arguments": {"other": "x"}},
        {"name": "greet", "arguments": {"name": 5}},
    ],
)
def test_a_prompt_that_nobody_described_is_denied(
    params: Message, client: RawClient, module: Installation
) -> None:
    before = len(asked_for(module))
    assert error(client, "prompts/get", params)["code"] == -32602
    assert len(asked_for(module)) == before


def test_a_completion_is_judged_as_what_it_completes(
    client: RawClient, module: Installation
) -> None:
    greet: Message = {
        "ref": {"type": "ref/prompt", "name": "greet", "x": 1},
        "argument": {"name": "name", "value": "A"},
    }
    client.result(client.request("completion/complete", greet))
    assert received(module)[-1]["params"] == {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": "A"},
    }
    others: list[Message] = [
        {"type": "ref/prompt", "name": "unknown"},
        {"type": "ref/resource", "uri": "secret://{name}"},
    ]
    for reference in others:
        params: Message = {"ref": reference, "argument": {"name": "name", "value": "k"}}
        assert error(client, "completion/complete", params)["code"] == -32602
    path: Message = {
        "ref": {"type": "ref/prompt", "name": "open"},
        "argument": {"name": "path", "value": "/etc/pass"},
    }
    assert error(client, "completion/complete", path)["code"] == -32602


def test_news_come_of_subscribed_resources_alone(client: RawClient, module: Installation) -> None:
    assert error(client, "resources/subscribe", {"uri": "secret://key"})["code"] == -32002
    client.result(client.request("resources/subscribe", {"uri": "memo://insights"}))
    client.call("notify")
    client.notification("notifications/prompts/list_changed")
    assert [at(one, "params", "uri") for one in updates(client)] == ["memo://insights"]
    assert len(client.notifications("notifications/resources/list_changed")) == 1
    client.result(client.request("resources/unsubscribe", {"uri": "memo://insights"}))
    client.call("notify")
    client.call("ask")
    assert len(updates(client)) == 1


def updates(client: RawClient) -> list[Message]:
    return client.notifications("notifications/resources/updated")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {}),
        ("resources/subscribe", {"uri": 5}),
        ("prompts/get", {"name": "greet", "arguments": []}),
        ("completion/complete", {"ref": {"type": "ref/other"}, "argument": {}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}}),
    ],
)
def test_a_request_of_the_wrong_shape_is_invalid(
    method: str, params: Message, client: RawClient
) -> None:
    assert error(client, method, params)["code"] == -32602


def test_names_carry_their_server_where_there_are_several(installation: Installation) -> None:
    for name in ("one", "two"):
        add_whole(installation, name, SAID, annotations="whole")
    installation.rules = [
        rule("memo", uris={"schemes": ["memo", "ui"]}),
        rule("greet", prompt=["greet"]),
        rule("tools", tool=["ask", "notify"]),
    ]
    annotate(installation)
    client = installation.start()
    assert listed(client, "resources/list", "resources", "uri") == [
        *["one+memo://insights", "one+memo://hidden/../insights", "ui://one+view/main"],
        *["two+memo://insights", "two+memo://hidden/../insights", "ui://two+view/main"],
    ]
    assert listed(client, "prompts/list", "prompts", "name") == ["one__greet", "two__greet"]
    tool = next(tool for tool in client.tools() if tool["name"] == "two__ask")
    assert at(tool, "_meta", "ui", "resourceUri") == "ui://two+view/main"
    read = client.result(client.request("resources/read", {"uri": "two+memo://insights"}))
    assert at(read, "contents", 0, "uri") == "two+memo://insights"
    assert [one["method"] for one in received(installation, "one")] == ["resources/list"] * 3 + [
        "prompts/list"
    ] * 2
    prompt = client.result(client.request("prompts/get", {"name": "one__greet"}))
    assert at(prompt, "messages", 1, "content", "resource", "uri") == "one+file:///etc/shadow"
    client.result(client.request("resources/subscribe", {"uri": "two+memo://insights"}))
    client.call("two__notify")
    client.call("one__notify")
    client.notification("notifications/resources/updated")
    assert [at(one, "params", "uri") for one in updates(client)] == ["two+memo://insights"]
    assert error(client, "resources/read", {"uri": "memo://insights"})["code"] == -32002
