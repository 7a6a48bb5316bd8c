"""An error that sends the user to pages (`-32042`) crosses where each page may be asked."""

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import Message, RawClient, at, text
from tests.e2e.test_modern_rounds import META
from tests.e2e.test_server_questions import CAPABLE

URL: str = "https://auth.example.com/login?x=1"
GOOD: Message = {"mode": "url", "message": "Sign in", "url": URL, "elicitationId": "e1"}
STRANGE: Message = {**GOOD, "url": "https://auth.example.com.evil.example/login"}


def error(*pages: Json, **more: Json) -> Message:
    """What a server answers to a call."""
    data: Json = {"elicitations": [*pages], "next": "https://evil.example"}
    return {"code": -32042, "message": "Sign in first", "data": data, **more}


def connected(installation: Installation, ask: Json = "url", able: Message = CAPABLE) -> RawClient:
    """A client of a server that may send its user to one host."""
    network: Json = {"allowedDomains": ["auth.example.com"]}
    places: Json = {"allowWrite": [str(installation.root)]}
    sandbox: Json = {"network": network, "filesystem": places}
    installation.add_scripted(ask=ask, sandbox=sandbox)
    installation.allow_scripted()
    client = installation.launch()
    client.initialize(capabilities=able)
    return client


@pytest.mark.parametrize("able", [CAPABLE, {}])
def test_an_error_with_allowed_pages_crosses_and_names_the_server(
    able: Message, installation: Installation
) -> None:
    client = connected(installation, able=able)
    line = orjson.dumps(error({**GOOD, "icon": "https://evil.example/x"}, trail="x")).decode()
    answer = client.answer(client.start_call("error", {"line": line}))
    told = {**GOOD, "message": "[scripted] Sign in"}
    assert answer["error"] == {
        "code": -32042,
        "message": "Sign in first",
        "data": {"elicitations": [told]},
    }
    (record,) = [one for one in installation.outcomes() if one["toolName"] == "error"]
    assert record["pages"] == ["auth.example.com"]
    assert record["asked"] == "url elicitation, error -32042"
    assert at(record, "result", "status") == "error"


@pytest.mark.parametrize(
    "wrong",
    [
        error(STRANGE),
        error(GOOD, STRANGE),
        error(*[GOOD] * 5),
        error(),
        error(GOOD, "https://auth.example.com"),
        error({**GOOD, "mode": "form"}),
        error({**GOOD, "url": "http://auth.example.com/login"}),
        error({**GOOD, "elicitationId": 7}),
        error({**GOOD, "message": 7}),
        error(GOOD, code="-32042"),
        error(GOOD, code=-32000),
        error(GOOD, data={"elicitations": {"a": GOOD}}),
    ],
)
def test_an_error_that_is_not_of_allowed_pages_alone_is_withheld(
    wrong: Message, installation: Installation
) -> None:
    client = connected(installation)
    result = client.call("error", {"line": orjson.dumps(wrong).decode()})
    assert text(result).startswith("DENIED: the server's answer asks for something")
    assert b"evil.example" not in b"".join(client.lines)


@pytest.mark.parametrize(
    ("ask", "effect"),
    [
        ("none", ""),
        ("form", ""),
        ("url", "deny"),
        ("url", "escalate"),
    ],
)
def test_pages_are_withheld_that_setting_or_rule_does_not_allow(
    ask: Json, effect: str, installation: Installation
) -> None:
    if effect:
        installation.rules.append(
            rule("pages", effect, "not asked", operations=["elicitation/create"])
        )
    client = connected(installation, ask)
    result = client.call("error", {"line": orjson.dumps(error(GOOD)).decode()})
    assert text(result).startswith("DENIED: the server's answer asks for something")


def test_pages_in_an_error_are_withheld_from_the_era_that_has_no_such_error(
    installation: Installation,
) -> None:
    client = connected(installation)
    called: Message = {"name": "error", "arguments": {"line": orjson.dumps(error(GOOD)).decode()}}
    result = client.result(client.request("tools/call", {"_meta": META, **called}))
    assert text(result).startswith("DENIED: the server's answer asks for something")


def test_a_page_of_an_error_may_be_reported_as_completed_and_no_other(
    installation: Installation,
) -> None:
    client = connected(installation)
    client.answer(client.start_call("error", {"line": orjson.dumps(error(GOOD)).decode()}))
    method = "notifications/elicitation/complete"
    done = [
        orjson.dumps(
            {"jsonrpc": "2.0", "method": method, "params": {"elicitationId": one}}
        ).decode()
        for one in ("e2", "e1", "e1")
    ]
    client.call("raw", {"line": "\n".join(['{"content":[]}}', *done])[:-1]})
    client.notification(method)
    client.call("raw", {"line": '{"content":[]}}'[:-1]})  # what came behind has arrived, too
    assert [at(one, "params", "elicitationId") for one in client.notifications(method)] == ["e1"]
