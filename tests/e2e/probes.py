"""Each part of MCP as a probe: what is sent under the default policy, and what becomes of it."""

from dataclasses import dataclass, field
from typing import Final

from ironcurtain_proxy.model.values import Json
from tests.e2e.raw_client import Message

HELLO: Final[Message] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "probe", "version": "1"},
}
MODERN: Final[Message] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}},
}
DEMO: Final = "demo://resource/static/document/a.md"
FORM: Final[Message] = {
    "message": "your name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
PAGE: Final[Message] = {
    "mode": "url",
    "message": "log in",
    "url": "https://evil.example/login",
    "elicitationId": "e1",
}
SAMPLE: Final[Message] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "all you know"}}],
    "maxTokens": 10,
}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the agent sends."""

    method: str
    params: Message = field(default_factory=dict)
    answer: str | int = "result"
    """`result`, `refused` (a result that is an error), or the code of an error."""
    rule: str = ""
    """Of the record; empty: the proxy answers of itself, and `docs/protocol.md` says so."""
    reaches: Message | None = None
    """The `params` that the server gets; None: it gets nothing."""
    documented: str = ""
    """Words of `docs/protocol.md`; empty: the method."""


def call(name: str, message: str = "x", **more: Json) -> Message:
    """The `params` of a call."""
    return {"name": name, "arguments": {"message": message}, **more}


ECHO: Final = call("echo")
COMPLETION: Final[Message] = {
    "ref": {"type": "ref/prompt", "name": "args-prompt"},
    "argument": {"name": "city", "value": "B"},
}
AGENT: Final[dict[str, Probe]] = {
    "initialize, again": Probe(method="initialize", params=HELLO),
    "initialize, incomplete": Probe(method="initialize", answer=-32602, rule="invalid-params"),
    "ping": Probe(method="ping"),
    "tools/list": Probe(method="tools/list"),
    "tools/list with a cursor": Probe(
        method="tools/list", params={"cursor": "2"}, answer=-32602, rule="invalid-params"
    ),
    "a call that a rule allows": Probe(
        method="tools/call", params=ECHO, rule="allow-everything-samples", reaches=ECHO
    ),
    "a call that a rule escalates": Probe(
        method="tools/call",
        params={"name": "get-env"},
        answer="refused",
        rule="escalate-everything-environment",
    ),
    "a call of a tool without annotation": Probe(
        method="tools/call", params=call("ask"), answer="refused", rule="missing-annotation"
    ),
    "a call of a tool that is not there": Probe(
        method="tools/call", params=call("nope"), answer="refused", rule="unknown-tool"
    ),
    "arguments against the schema": Probe(
        method="tools/call",
        params={"name": "echo", "arguments": {"message": 5}},
        answer="refused",
        rule="invalid-arguments",
    ),
    "a call of the wrong shape": Probe(
        method="tools/call", params={"name": 5}, answer=-32602, rule="invalid-params"
    ),
    "_meta of a trace and of a vendor": Probe(
        method="tools/call",
        params={**ECHO, "_meta": {"baggage": "a=b", "vendor/key": "x"}},
        rule="allow-everything-samples",
        reaches={**ECHO, "_meta": {"baggage": "a=b"}},
        documented="`_meta`",
    ),
    "the envelope of 2026-07-28": Probe(
        method="tools/call",
        params={**ECHO, "_meta": MODERN},
        rule="allow-everything-samples",
        reaches=ECHO,
        documented="`_meta`",
    ),
    "keys beside the arguments": Probe(
        method="tools/call",
        params={**ECHO, "inputResponses": {"a": 1}, "requestState": "s", "futureParam": 1},
        rule="allow-everything-samples",
        reaches=ECHO,
        documented="`inputResponses`",
    ),
    "a call as a task": Probe(
        method="tools/call",
        params={**ECHO, "task": {"ttl": 1}},
        answer="refused",
        rule="tasks-not-allowed",
        documented="A call with `task` is denied",
    ),
    "logging/setLevel": Probe(
        method="logging/setLevel", params={"level": "info"}, reaches={"level": "info"}
    ),
    "logging/setLevel to no level": Probe(
        method="logging/setLevel", params={"level": "x"}, answer=-32602, rule="invalid-params"
    ),
    "resources/list": Probe(method="resources/list"),
    "resources/templates/list": Probe(method="resources/templates/list"),
    "resources/read that a rule allows": Probe(
        method="resources/read",
        params={"uri": DEMO},
        rule="allow-everything-resources",
        reaches={"uri": DEMO},
    ),
    "resources/read without a rule": Probe(
        method="resources/read", params={"uri": "secret://a"}, answer=-32002, rule="default-deny"
    ),
    "resources/read of a file": Probe(
        method="resources/read",
        params={"uri": "file:///etc/passwd"},
        answer=-32002,
        rule="default-deny",
    ),
    "resources/read of a view": Probe(
        method="resources/read",
        params={"uri": "ui://a/b"},
        answer=-32002,
        rule="undeclared-view",
        documented="`ui://`",
    ),
    "resources/read without a URI": Probe(
        method="resources/read", answer=-32602, rule="invalid-params"
    ),
    "resources/subscribe": Probe(
        method="resources/subscribe",
        params={"uri": DEMO},
        rule="allow-everything-resources",
        reaches={"uri": DEMO},
    ),
    "resources/subscribe without a rule": Probe(
        method="resources/subscribe",
        params={"uri": "secret://a"},
        answer=-32002,
        rule="default-deny",
    ),
    "resources/unsubscribe": Probe(
        method="resources/unsubscribe",
        params={"uri": DEMO},
        rule="allow-everything-resources",
        reaches={"uri": DEMO},
    ),
    "prompts/list": Probe(method="prompts/list"),
    "prompts/get that a rule allows": Probe(
        method="prompts/get",
        params={"name": "simple-prompt"},
        rule="allow-everything-prompts",
        reaches={"name": "simple-prompt"},
    ),
    "prompts/get without annotation": Probe(
        method="prompts/get", params={"name": "other"}, answer=-32602, rule="missing-annotation"
    ),
    "completion/complete that a rule allows": Probe(
        method="completion/complete",
        params=COMPLETION,
        rule="allow-everything-prompts",
        reaches=COMPLETION,
    ),
    "completion/complete of a prompt without annotation": Probe(
        method="completion/complete",
        params={
            "ref": {"type": "ref/prompt", "name": "other"},
            "argument": {"name": "a", "value": ""},
        },
        answer=-32602,
        rule="missing-annotation",
    ),
    **{
        method: Probe(method=method, answer=-32601, rule="not-offered", documented=documented)
        for method, documented in {
            "tasks/list": "`tasks/list`",
            "tasks/get": "`tasks/get`",
            "tasks/result": "`tasks/result`",
            "tasks/cancel": "`tasks/cancel`",
            "server/discover": "",
            "subscriptions/listen": "",
            "vendor/method": "methods of vendors",
            "roots/list": "stands nowhere on this page",
            "elicitation/create": "",
        }.items()
    },
}
"""Requests."""

DROPPED: Final = {
    "notifications/roots/list_changed": "`roots/list_changed` of the agent",
    "notifications/tasks/status": "`tasks/status`",
    "notifications/vendor": "notifications of vendors",
}
"""Notifications of either side that go nowhere, with words of `docs/protocol.md`."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a server does while a call of its tool is under way."""

    questions: list[Message] = field(default_factory=list)
    notifications: list[Message] = field(default_factory=list)
    answer: Message | None = None
    error: Message | None = None
    answered: Json = None
    """The code, or the keys of the result, that the server gets for its question."""
    rule: str = ""
    """Of the record; empty: no policy is asked, and `docs/protocol.md` says so."""
    is_withheld: bool = False
    """The agent is told that the answer asks for something, and so is the record."""
    arrives: str = ""
    """The notification that the agent gets."""
    documented: str = ""
    """Words of `docs/protocol.md`."""


def question(method: str, params: Message, answered: Json, rule: str, documented: str) -> Asked:
    """A request of a server."""
    asked: Message = {"method": method, "params": params}
    return Asked(questions=[asked], answered=answered, rule=rule, documented=documented)


def notification(method: str, params: Message, arrives: str = "", documented: str = "") -> Asked:
    """A notification of a server."""
    said: Message = {"method": method, "params": params}
    return Asked(notifications=[said], arrives=arrives, documented=documented)


_NEWS: Final = "notifications/resources/updated"
SERVER: Final[dict[str, Asked]] = {
    "sampling": question("sampling/createMessage", SAMPLE, -32601, "server-asks", "`sampling`"),
    "sampling with tools": question(
        "sampling/createMessage",
        {**SAMPLE, "tools": [{"name": "t"}]},
        -32601,
        "client-cannot-ask",
        "`sampling-tools`",
    ),
    "a form": question("elicitation/create", FORM, -32601, "server-asks", "`form`"),
    "a page": question("elicitation/create", PAGE, -32601, "structural-server-question", "`url`"),
    "roots/list": question("roots/list", {}, ["roots"], "", "`roots/list`: answered"),
    "ping": question("ping", {}, [], "", "`ping`: answered"),
    "a method of a vendor": question("vendor/ask", {}, -32601, "not-offered", "Others: `-32601`"),
    "tasks/get": question("tasks/get", {"taskId": "1"}, -32601, "not-offered", "Others: `-32601`"),
    "an error that sends to a page": Asked(
        error={"code": -32042, "message": "log in", "data": {"elicitations": [PAGE]}},
        is_withheld=True,
        documented="An answer that asks",
    ),
    "an answer that needs input": Asked(
        answer={"resultType": "input_required", "inputRequests": {}, "requestState": "s"},
        is_withheld=True,
        documented="An answer that asks",
    ),
    "an answer that is a task": Asked(
        answer={"task": {"taskId": "1", "status": "working"}},
        is_withheld=True,
        documented="An answer that asks",
    ),
    "an answer of an unknown type": Asked(
        answer={"resultType": "other", "content": []},
        is_withheld=True,
        documented="An answer that asks",
    ),
    "a log message": notification(
        "notifications/message",
        {"level": "info", "data": "x"},
        arrives="notifications/message",
        documented="log messages",
    ),
    "resources/list_changed": notification(
        "notifications/resources/list_changed",
        {},
        arrives="notifications/resources/list_changed",
        documented="`list_changed`",
    ),
    "prompts/list_changed": notification(
        "notifications/prompts/list_changed",
        {},
        arrives="notifications/prompts/list_changed",
        documented="`list_changed`",
    ),
    "tools/list_changed although nothing did": notification(
        "notifications/tools/list_changed",
        {},
        arrives="notifications/tools/list_changed",
        documented="`list_changed`",
    ),
    "tasks/status of a server": notification(
        "notifications/tasks/status", {"taskId": "1"}, documented="`tasks/status`"
    ),
    "a notification of a vendor": notification(
        "notifications/vendor", {}, documented="notifications of vendors"
    ),
    "an answer that nobody asked for": Asked(
        notifications=[{"id": 4711, "result": {"content": []}}],
        documented="answers that nobody waits for",
    ),
    "news of what nobody subscribed to": notification(
        _NEWS, {"uri": "demo://other"}, documented="`resources/updated` of other resources"
    ),
    "a page that nobody was shown": notification(
        "notifications/elicitation/complete",
        {"elicitationId": "e1"},
        documented="`elicitation/complete` of other pages",
    ),
    "progress of a call of somebody else's": notification(
        "notifications/progress",
        {"progressToken": "nobody", "progress": 1},
        documented="progress of no call under way",
    ),
}
"""What servers send of their own accord."""
