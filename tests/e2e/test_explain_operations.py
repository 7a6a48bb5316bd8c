"""`explain` says of operations what `serve` decides."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.installation import QUICK, Installation, rule
from tests.e2e.raw_client import at
from tests.e2e.servers import whole
from tests.program import PROXY

READS = ["memo://insights", "memo://a/../b", "secret://key", "file:///etc/shadow", "no scheme"]
PROMPTS: list[tuple[str, dict[str, Json]]] = [
    ("greet", {"name": "a"}),
    ("open", {"path": "/etc/shadow"}),
    ("greet", {"other": "a"}),
    ("unknown", {}),
]


@pytest.fixture
def served(installation: Installation) -> Installation:
    """A server with resources and prompts, of which some may be used."""
    installation.add_server("whole", [*QUICK, str(Path(whole.__file__))])
    installation.rules = [
        rule("memo", uris={"schemes": [], "patterns": ["memo://*"]}),
        rule("greet", prompt=["greet"]),
    ]
    prompts: list[Json] = [
        {"promptName": "greet", "args": {"name": ["none"]}},
        {"promptName": "open", "args": {"path": ["read-path"]}},
    ]
    entry: Json = {"inputHash": "0", "tools": [], "prompts": prompts}
    installation.write(
        "tool-annotations.json", {"generatedAt": "2026-01-01", "servers": {"whole": entry}}
    )
    return installation


def explained(installation: Installation, *words: str) -> tuple[str, str]:
    installation.write_policy()
    command = [*PROXY, "explain", "whole", *words, "--json"]
    done = program.run(command, installation.environment())
    assert done.returncode == 0, done.stderr
    found = orjson.loads(done.stdout)
    return str(found["decision"]), str(found["rule"])


def test_a_read_is_explained_as_it_is_decided(served: Installation) -> None:
    agent = served.start()
    for uri in READS:
        answer = agent.answer(agent.request("resources/read", {"uri": uri}))
        decision, name = explained(served, "--read", uri)
        assert (decision == "allow") == ("result" in answer), uri
        if "error" in answer:
            assert at(answer, "error", "data", "rule") == name


def test_a_prompt_is_explained_as_it_is_decided(served: Installation) -> None:
    agent = served.start()
    for prompt, arguments in PROMPTS:
        asked = agent.request("prompts/get", {"name": prompt, "arguments": arguments})
        answer = agent.answer(asked)
        given = ["--prompt", prompt, "--args", orjson.dumps(arguments).decode()]
        decision, name = explained(served, *given)
        assert (decision == "allow") == ("result" in answer), prompt
        if "error" in answer:
            assert served.last_decision() == ("deny", name)


def test_an_operation_needs_a_configured_server(served: Installation) -> None:
    served.write_policy()
    command = [*PROXY, "explain", "nobody", "--read", "memo://a"]
    done = program.run(command, served.environment())
    assert (done.returncode, "configured: whole" in done.stderr) == (2, True)


def test_a_prompt_rule_that_would_allow_it_names_the_prompt_alone(served: Installation) -> None:
    served.rules = []
    served.rules = [rule("other", prompt=["other"])]
    served.write_policy()
    command = [*PROXY, "explain", "whole", "--prompt", "greet", "--args", "{}", "--json"]
    (change,) = orjson.loads(program.run(command, served.environment()).stdout)["change"]
    assert change["if"] == {"server": ["whole"], "prompt": ["greet"]}


@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        ("resources/subscribe", {"uri": "memo://insights"}, ("allow", "memo")),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, ("deny", "server-asks")),
    ],
)
def test_any_other_request_is_explained_by_its_method(
    method: str, params: Json, answer: tuple[str, str], served: Installation
) -> None:
    words = ["--method", method, "--params", orjson.dumps(params).decode()]
    assert explained(served, *words) == answer


def test_the_roots_that_a_server_is_told_are_explained(served: Installation) -> None:
    served.write_policy()
    command = [*PROXY, "explain", "whole", "--method", "roots/list"]
    done = program.run(command, served.environment())
    assert f"file://{served.workspace}" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "tasks/get"], "no method that is decided on"),
        (["--method", "resources/read"], "needs a uri"),
        (["--method", "prompts/get", "--prompt", "greet"], "name one"),
        (["--method", "prompts/get", "--params", "["], "--params is not JSON"),
    ],
)
def test_a_request_that_is_none_is_told_as_such(
    words: list[str], told: str, served: Installation
) -> None:
    served.write_policy()
    done = program.run([*PROXY, "explain", "whole", *words], served.environment())
    assert (done.returncode, told in done.stderr) == (2, True)
