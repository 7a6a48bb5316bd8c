"""An MCP server that is killed by its first call."""

import os
import signal

from tests.auto_confirm.reviewers.managers.calls import calls


def main() -> None:
    for _ in calls():
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
