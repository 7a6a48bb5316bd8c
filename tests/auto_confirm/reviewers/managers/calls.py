"""What a program here needs to be an MCP server that says what it likes."""

from collections.abc import Iterator, Mapping

import orjson

from tests.auto_confirm.reviewers.managers.conversation import Line, lines, send

TOOL: Line = {"name": "review", "inputSchema": {"type": "object"}}


def respond(message: Line, result: object) -> None:
    say({"id": message["id"], "result": result})


def say(message: Mapping[str, object]) -> None:
    send(orjson.dumps({"jsonrpc": "2.0", **message}))


def greet(message: Line) -> None:
    respond(message, {"protocolVersion": "2025-11-25", "capabilities": {}})


def calls() -> Iterator[Line]:
    """The calls."""
    return (message for message in messages() if message["method"] == "tools/call")


def messages() -> Iterator[Line]:
    """The calls and the notifications, once hands are shaken."""
    for message in lines():
        match message.get("method"):
            case "initialize":
                greet(message)
            case "tools/list":
                respond(message, {"tools": [TOOL]})
            case str():
                yield message
            case _:
                pass  # an answer


def question_of(call: Line) -> Line:
    params = call["params"]
    assert isinstance(params, dict)
    question = params["arguments"]
    assert isinstance(question, dict)
    return question


def answer(call: Line, token: str, /, **changes: object) -> None:
    """Approve, but for the changes; a change to None leaves the key out."""
    respond(call, {"structuredContent": fields(call, token, **changes)})


def fields(call: Line, token: str, /, **changes: object) -> Line:
    question = question_of(call)
    made: Line = {
        "id": question["id"],
        "decision": "approve",
        "argumentsHash": question["argumentsHash"],
        "reviewer": "model-7",
        "token": token,
        "note": "seen",
        **changes,
    }
    return {key: value for key, value in made.items() if value is not None}
