"""A server that lists tools of a file and answers each call: `listed.py FILE NAME`."""

import json  # noqa: TID251  runs where nothing else is installed
import sys
from pathlib import Path

TEXT = {"content": [{"type": "text", "text": "ok"}]}


def main() -> None:
    tools = json.loads(Path(sys.argv[1]).read_bytes())[sys.argv[2]]
    for line in sys.stdin:
        message = json.loads(line)
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
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
