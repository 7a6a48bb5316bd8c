"""`explain`, `decide` and a replay of the log judge every operation as a running proxy does."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import anyio
import orjson
import pytest

from ironcurtain_proxy.cli.decide import Kernel
from ironcurtain_proxy.cli.explain import rehearsed_operation
from ironcurtain_proxy.config.policy.engine_file import load_engine
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.crossing import on_the_wire, operation_of
from ironcurtain_proxy.model.decision import Ground, effect_of
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.wiring.suggesting import Replaying
from tests.e2e.installation import Installation, rule
from tests.e2e.probes import FORM, PAGE, SAMPLE, call
from tests.e2e.raw_client import Message, RawClient, at
from tests.e2e.test_operations import add_whole

Request: TypeAlias = tuple[str, Message]
Answer: TypeAlias = tuple[str, str]
"""What was decided, and by which rule."""

CAPABLE: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}
TOOL: Message = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
}
HOST = "auth.example.com"
QUESTIONS: list[Request] = [
    ("elicitation/create", FORM),
    ("elicitation/create", {**FORM, "message": "your password?"}),
    ("elicitation/create", {**PAGE, "url": f"https://{HOST}/login"}),
    ("elicitation/create", PAGE),
    ("elicitation/create", {"mode": "other", "message": "x"}),
    ("sampling/createMessage", SAMPLE),
    ("sampling/createMessage", {**SAMPLE, "maxTokens": 100_000}),
    ("sampling/createMessage", {**SAMPLE, "tools": [{"name": "t"}]}),
]
PROMPTS: list[Json] = [
    {"promptName": "greet", "args": {"name": ["none"]}},
    {"promptName": "open", "args": {"path": ["read-path"]}},
    {"promptName": "fetch", "args": {"url": ["fetch-url"]}},
]


class Town:
    """A generated configuration of one server, and requests in it."""

    def __init__(self, installation: Installation, seed: int) -> None:
        self.installation = installation
        self.dice = random.Random(seed)  # noqa: S311  not a secret
        self.ask = self.dice.sample(["form", "url", "sampling", "sampling-tools"], 2)
        scripts: dict[str, Json] = {
            f"question {number}": {"questions": [{"method": method, "params": params}]}
            for number, (method, params) in enumerate(QUESTIONS)
        }
        said: Message = {"tools": [TOOL], "scripts": scripts}
        place: Json = [str(installation.root)]
        hosts: Json = {"allowedDomains": [HOST]}
        sandbox: Json = {"network": hosts, "filesystem": {"allowWrite": place}}
        add_whole(installation, "whole", said, ask=[*self.ask], sandbox=sandbox)
        installation.rules = [*self._rules(), rule("tools", tool=["echo"])]
        tools: Json = [{"toolName": "echo", "args": {"message": ["none"]}}]
        entry: Json = {"inputHash": "0", "tools": tools, "prompts": PROMPTS}
        installation.write(
            "tool-annotations.json", {"generatedAt": "2026-01-01", "servers": {"whole": entry}}
        )
        engine: Message = {
            "allowedDirectory": str(installation.workspace),
            "home": str(installation.home),
            "domainAllowlists": {"whole": [HOST]},
            "ask": {"whole": [*self.ask]},
        }
        installation.write("engine.json", engine)
        (installation.workspace / "notes.txt").write_text("notes", encoding="utf-8")
        (installation.workspace / "out").symlink_to("/srv/elsewhere")

    def _rules(self) -> Iterator[Message]:
        dice, workspace = self.dice, str(self.installation.workspace)
        conditions: list[Message] = [
            {"uris": {"schemes": ["memo"]}},
            {"uris": {"patterns": ["memo://insights*", "demo://*/a"]}},
            {"uris": {"schemes": ["ui", "demo"]}},
            {"operations": ["resources/read"]},
            {"operations": ["prompts/get"]},
            {"operations": ["elicitation/create"]},
            {"operations": ["sampling/createMessage"]},
            {"prompt": ["greet", "open"]},
            {"prompt": ["fetch"]},
            {"paths": {"roles": ["read-path"], "within": workspace}},
            {"paths": {"roles": ["read-path"], "within": "/srv"}},
            {"domains": {"roles": ["fetch-url"], "allowed": ["example.com"]}},
            {"roles": ["read-path", "fetch-url", "resource-uri"]},
            {"server": ["other"]},
        ]
        for number, condition in enumerate(dice.sample(conditions, 6)):
            effect = dice.choice(("allow", "allow", "escalate", "deny"))
            yield rule(f"rule-{number}", effect, **condition)

    def requests(self, count: int) -> Iterator[Request]:
        """Requests of an agent."""
        for _ in range(count):
            kind = self.dice.choice(("read", "subscribe", "prompt", "prompt", "complete"))
            if kind == "prompt":
                name, given = self._prompt()
                yield "prompts/get", {"name": name, "arguments": {**given}}
            elif kind == "complete":
                yield "completion/complete", self._completion()
            else:
                yield f"resources/{kind}", {"uri": self.dice.choice(self._uris())}

    def _prompt(self) -> tuple[str, dict[str, Json]]:
        paths: list[Json] = ["notes.txt", "/etc/hosts", "/srv/x", "", "out/x"]
        urls: list[Json] = ["https://example.com/a", "http://127.0.0.1/", "no url"]
        some: list[tuple[str, dict[str, Json]]] = [
            ("greet", {"name": "Ada"}),
            ("greet", {"other": "Ada"}),
            ("open", {"path": self.dice.choice(paths)}),
            ("fetch", {"url": self.dice.choice(urls)}),
            ("nobody", {}),
        ]
        return self.dice.choice(some)

    def _completion(self) -> Message:
        name, given = self._prompt()
        if self.dice.random() < 0.5 and given:
            argument, value = next(iter(given.items()))
            reference: Message = {"type": "ref/prompt", "name": name}
        else:
            argument, value = "name", "ins"
            template = self.dice.choice(("memo://{name}", "demo://{name}/a", "secret://{name}"))
            reference = {"type": "ref/resource", "uri": template}
        return {"ref": reference, "argument": {"name": argument, "value": value}}

    def _uris(self) -> list[str]:
        workspace = self.installation.workspace
        return [
            *("memo://insights", "MEMO://insights/x", "memo://a/../b", "demo://x/a", "secret://k"),
            *(f"file://{workspace}/notes.txt", f"file://{workspace}/out/x", "file:///etc/hosts"),
            *("file:///srv/%61", "https://example.com/x", "http://169.254.169.254/", "no uri"),
        ]


@pytest.fixture(params=range(4))
def town(installation: Installation, request: pytest.FixtureRequest) -> Town:
    """One of some configurations."""
    return Town(installation, int(request.param))


def served(town: Town, client: RawClient, asked: Request) -> Answer:
    """What the proxy recorded of a request."""
    before = len(town.installation.outcomes())
    client.answer(client.request(*asked))
    (record,) = town.installation.outcomes()[before:]
    return decision_in(record)


def served_question(town: Town, client: RawClient, number: int) -> Answer:
    """What the proxy recorded of a server's question, which the client's user declines."""
    before = len(town.installation.outcomes())
    request = client.request("tools/call", call("echo", f"question {number}"))
    seen = {orjson.dumps(one.get("id")) for one in client.arrived if "method" in one}
    found = client.until(
        lambda one: (
            one.get("id") == request
            or ("id" in one and "method" in one and orjson.dumps(one["id"]) not in seen)
        ),
        "answer or question",
    )
    if "method" in found:
        client.send({"jsonrpc": "2.0", "id": found["id"], "result": {"action": "decline"}})
    client.answer(request)
    records = town.installation.outcomes()[before:]
    (record,) = [one for one in records if one["toolName"] == QUESTIONS[number][0]]
    return decision_in(record)


def decision_in(record: Message) -> Answer:
    found = at(record, "policyDecision")
    return str(at(found, "status")), str(at(found, "rule"))


def explained(town: Town, asked: Request) -> Answer:
    """What `explain` says."""
    settings = load_settings(town.installation.environment())
    known = on_the_wire("whole", *asked)
    assert not isinstance(known, Ground)
    loaded = load_policy(settings)
    operation = operation_of(known, RequestId("explained"))
    judged = rehearsed_operation(operation, {"whole": "whole"}, settings, loaded).certain.judged
    return effect_of(judged.decision), judged.decision.ground.rule


def decided(town: Town, asked: Request) -> Answer:
    """What `decide` says."""
    engine = load_engine(town.installation.generated, town.installation.home)
    decision = Kernel.of(engine, check_schemas=True).decide_request("whole", *asked)
    return effect_of(decision), decision.ground.rule


def replayed(town: Town) -> list[tuple[Answer, Answer]]:
    """What the log says of each record, and what it is decided now."""
    settings = load_settings(town.installation.environment())
    replaying = Replaying(settings, load_policy(settings), town.installation.environment())
    found: list[tuple[Answer, Answer]] = []
    for record in town.installation.outcomes():
        given = record["arguments"]
        assert isinstance(given, dict)
        tool = str(record["toolName"])
        if "argumentsDigest" not in record:
            one = anyio.run(replaying.call, "whole", tool, given)
            ground = one.judged.decision.ground
            found.append((decision_in(record), (one.effect, ground.rule)))
    return found


def test_every_operation_is_explained_and_decided_as_it_was_served(town: Town) -> None:
    client = town.installation.launch()
    client.initialize(capabilities=CAPABLE)
    effects: Counter[str] = Counter()
    for asked in town.requests(40):
        answer = served(town, client, asked)
        assert explained(town, asked) == answer, asked
        assert decided(town, asked) == answer, asked
        effects[answer[0]] += 1
    for number, asked in enumerate(QUESTIONS):
        answer = served_question(town, client, number)
        assert explained(town, asked) == answer, asked
        assert decided(town, asked) == answer, asked
    assert effects["allow"]
    assert effects["deny"]
    for recorded, again in replayed(town):
        assert recorded == again
