#!/usr/bin/env python3
"""A downstream server with resources, prompts and completions, which asks what it is told to ask.

Speaks MCP over stdio with the standard library alone. `WHOLE` holds, or names a file with, its
lists as JSON (`resources`, `resourceTemplates`, `prompts`, `tools`), what its tool `ask` asks
(`questions`, a list of requests) and what it says of its use (`instructions`). Its tool `echo` does
what `scripts` says of its argument `message`. Every line that arrives is written down in
`WHOLE_JOURNAL` before it is acted upon.
"""

# Many tests start it: what is imported at once is half of the start.
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from tests.e2e.servers import quick_json as json
else:  # as a program of its own
    import quick_json as json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final, TypeAlias, TypedDict

    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
    Message: TypeAlias = dict[str, Json]

    class Script(TypedDict, total=False):
        """What one call of `echo` does."""

        notifications: list[Message]
        questions: list[Message]
        answer: Message
        error: Message

    class Said(TypedDict, total=False):
        """What the test says of the server."""

        resources: list[Json]
        resourceTemplates: list[Json]
        prompts: list[Json]
        tools: list[Json]
        questions: list[Message]
        notifications: list[Message]
        instructions: str
        title: str
        early: Message
        page: int
        views: dict[str, str]
        scripts: dict[str, Script]


def said(words: str) -> Said:
    if not words.startswith("{"):
        with open(words, encoding="utf-8") as file:  # noqa: PTH123  see above
            words = file.read()
    return json.loads(words)  # type: ignore[return-value]


SAID: Final = said(os.environ.get("WHOLE", "{}"))
TITLE: Final[Message] = {"title": SAID["title"]} if "title" in SAID else {}
JOURNAL: Final = os.environ.get("WHOLE_JOURNAL", os.devnull)
TOOLS: Final[list[Json]] = [
    {"name": name, "inputSchema": {"type": "object", "properties": {}}}
    for name in ("ask", "notify", "idle")
]


def send(message: Message) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive() -> Message:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    with open(JOURNAL, "a", encoding="utf-8") as journal:  # noqa: PTH123
        journal.write(line)
    return json.loads(line)


def ask(questions: list[Message], name: str = "q") -> Message:
    """Ask the user everything, and give the answers."""
    answers: list[Json] = []
    for number, question in enumerate(questions):
        send({"id": f"{name}{number}", **question})
        answer = receive()
        while answer.get("id") != f"{name}{number}":
            answer = receive()
        answers.append(answer.get("result", answer.get("error")))
    return {"content": [{"type": "text", "text": json.dumps(answers)}]}


def initialized(params: Message) -> Message:
    parts: Message = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}}
    said: Message = {"instructions": SAID["instructions"]} if "instructions" in SAID else {}
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {**parts, "completions": {}, "logging": {}},
        "serverInfo": {"name": "whole", "version": "1", **TITLE},
        **said,
    }


def page(key: str, entries: list[Json], params: Message) -> Message:
    """A few entries at a time."""
    start, size = int(str(params.get("cursor", 0))), SAID.get("page", 2)
    more: Message = {"nextCursor": str(start + size)} if start + size < len(entries) else {}
    return {key: entries[start : start + size], **more}


def read(params: Message) -> Message:
    text = SAID.get("views", {}).get(str(params["uri"]), f"text of {params['uri']}")
    return {"contents": [{"uri": params["uri"], "text": text}]}


def prompt(params: Message) -> Message:
    embedded: Json = {"type": "resource", "resource": {"uri": "file:///etc/shadow", "text": "x"}}
    said: Json = {"type": "text", "text": json.dumps(params, sort_keys=True)}
    return {"messages": [{"role": "user", "content": one} for one in (said, embedded)]}


def complete(params: Message) -> Message:
    return {"completion": {"values": [json.dumps(params, sort_keys=True)]}}


def echo(message: str) -> Message:
    script = SAID.get("scripts", {}).get(message, {})
    for notification in script.get("notifications", []):
        send(notification)
    if "error" in script:
        return {"error": script["error"]}
    answers = ask(script.get("questions", []), f"{message} ")
    return {"result": script.get("answer", answers)}


def call(params: Message) -> Message:
    if params["name"] == "ask":
        return ask(SAID.get("questions", []))
    if params["name"] == "notify":
        for notification in SAID.get("notifications", []):
            send(notification)
    return {}


def nothing(_: Message) -> Message:
    return {}


ANSWERS: Final[Mapping[Json, Callable[[Message], Message]]] = {
    "initialize": initialized,
    "tools/list": lambda _: {"tools": SAID.get("tools", TOOLS)},
    "tools/call": call,
    "resources/list": lambda given: page("resources", SAID.get("resources", []), given),
    "resources/templates/list": lambda given: page(
        "resourceTemplates", SAID.get("resourceTemplates", []), given
    ),
    "resources/read": read,
    "prompts/list": lambda given: page("prompts", SAID.get("prompts", []), given),
    "prompts/get": prompt,
    "completion/complete": complete,
}


def main() -> None:
    while True:
        message = receive()
        if message.get("method") == "notifications/initialized" and "early" in SAID:
            send({"id": "early", **SAID["early"]})
        if "id" in message and "method" in message:
            params = message.get("params")
            given = params if isinstance(params, dict) else {}
            answer = ANSWERS.get(message["method"], nothing)
            arguments = given.get("arguments")
            if given.get("name") == "echo" and isinstance(arguments, dict):
                send({"id": message["id"], **echo(str(arguments.get("message")))})
            else:
                send({"id": message["id"], "result": answer(given)})


if __name__ == "__main__":
    main()
