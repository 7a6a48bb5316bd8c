"""A reviewer for the load test: approves, says when it was asked, and dies when it is told to.

    python bench_engine_manager.py ASKED_FILE KILL_FILE

Once KILL_FILE exists it ends at its next question, without an answer, and so does each later start.
"""

import os
import sys
import time
from pathlib import Path

import orjson


def main() -> None:
    """Answer until the proxy ends, or this reviewer is to be dead."""
    asked, kill = Path(sys.argv[1]), Path(sys.argv[2])
    with os.fdopen(int(os.environ["IRONCURTAIN_REVIEWER_TOKEN_FD"])) as pipe:
        token = pipe.read()
    with asked.open("a", encoding="ascii") as log:
        for line in sys.stdin.buffer:
            question = orjson.loads(line)
            if question["type"] != "review":
                continue
            if kill.exists():
                os._exit(1)
            log.write(f"{question['id']} {time.time():.6f}\n")  # noqa: TID251  the bench has no clock
            log.flush()
            answer = {
                "id": question["id"],
                "decision": "approve",
                "argumentsHash": question["argumentsHash"],
                "reviewer": "bench",
                "token": token,
            }
            sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
