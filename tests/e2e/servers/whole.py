#!/usr/bin/env python3
"""A downstream server with resources, prompts and completions, which asks what it is told to ask.

Speaks MCP over stdio with the standard library alone. `WHOLE` holds, or names a file with, its
lists as JSON (`resources`, `resourceTemplates`, `prompts`, `tools`), what its tool `ask` asks
(`questions`, a list of requests) and what it says of its use (`instructions`). Every line that
arrives is written down in `WHOLE_JOURNAL` before it is acted upon.
"""

import json  # noqa: TID251  the standard library alone
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypedDict

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Message: TypeAlias = dict[str, Json]


class Said(TypedDict, total=False):
    """What the test says of the server."""

    resources: list[Json]
    resourceTemplates: list[Json]
    prompts: list[Json]
    tools: list[Json]
    questions: list[Message]
    notifications: list[Message]
    instructions: str
    early: Message
    page: int
    views: dict[str, str]


WORDS: Final = os.environ.get("WHOLE", "{}")
SAID: Final[Said] = json.loads(WORDS if WORDS.startswith("{") else Path(WORDS).read_text("utf-8"))
JOURNAL: Final = Path(os.environ.get("WHOLE_JOURNAL", os.devnull))
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
    with JOURNAL.open("a", encoding="utf-8") as journal:
        journal.write(line)
    found: Message = json.loads(line)
    return found


def ask() -> Message:
    """Ask the user everything, and give the answers."""
    answers: list[Json] = []
    for number, question in enumerate(SAID.get("questions", [])):
        send({"id": f"q{number}", **question})
        answer = receive()
        while answer.get("id") != f"q{number}":
            answer = receive()
        answers.append(answer.get("result", answer.get("error")))
    return {"content": [{"type": "text", "text": json.dumps(answers)}]}


def initialized(params: Message) -> Message:
    parts: Message = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}}
    said: Message = {"instructions": SAID["instructions"]} if "instructions" in SAID else {}
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {**parts, "completions": {}},
        "serverInfo": {"name": "whole", "version": "1"},
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


def call(params: Message) -> Message:
    if params["name"] == "ask":
        return ask()
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
            given = message.get("params")
            answer = ANSWERS.get(message["method"], nothing)
            result = answer(given if isinstance(given, dict) else {})
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
