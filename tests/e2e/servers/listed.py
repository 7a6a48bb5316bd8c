"""A server that lists tools of a file and answers each call: `listed.py FILE NAME`."""

import sys
from pathlib import Path

import orjson

TEXT = {"content": [{"type": "text", "text": "ok"}]}


def main() -> None:
    tools = orjson.loads(Path(sys.argv[1]).read_bytes())[sys.argv[2]]
    for line in sys.stdin:
        message = orjson.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result: object = TEXT
        if message["method"] == "initialize":
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": sys.argv[2], "version": "1"},
            }
        elif message["method"] == "tools/list":
            result = {"tools": tools}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
