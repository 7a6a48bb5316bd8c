"""The modern server over standard input and output, without the handshake.

It refuses `initialize`, as servers without it do, and leaves the rest to a process of
`modern_server.py`, which the arguments start. It imports nothing large itself.
"""

import json  # noqa: TID251  a program of its own
import subprocess
import sys


def main() -> None:
    """Answer `initialize`, and hand on all other lines."""
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "initialize":
                error = {"code": -32601, "message": "Method not found"}
                answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
                sys.stdout.write(json.dumps(answer) + "\n")
                sys.stdout.flush()
            else:
                process.stdin.write(line)
                process.stdin.flush()
        process.stdin.close()


if __name__ == "__main__":
    main()
