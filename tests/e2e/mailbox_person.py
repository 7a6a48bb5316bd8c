"""Somebody who answers at the escalation directory."""

import os
import subprocess
from pathlib import Path

import orjson

from tests import program
from tests.e2e.installation import Installation
from tests.e2e.raw_client import Message
from tests.program import PROXY, wait_until


class Person:
    """Someone at the escalation directory, with the original's files or with our commands."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.directory = installation.root / "escalations"

    def requests(self) -> list[Path]:
        return sorted(self.directory.glob("request-*.json")) if self.directory.is_dir() else []

    def until_asked(self, count: int = 1) -> list[Message]:
        wanted = f"{count} questions"
        found = wait_until(lambda: so if len(so := self.requests()) >= count else [], wanted)
        return [orjson.loads(path.read_bytes()) for path in found]

    def answer(self, answer: object, *, raw: bytes | None = None) -> None:
        """As a session of the original does: a file beside the request."""
        identifier = self.until_asked()[0]["escalationId"]
        file = self.directory / f"response-{identifier}.json"
        temporary = file.with_suffix(".json.tmp")
        temporary.write_bytes(raw if raw is not None else orjson.dumps(answer))
        temporary.rename(file)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(*arguments, "--dir", str(self.directory))

    def approve(self, *options: str) -> None:
        """Approve each request that waits, by its id."""
        for asked in self.until_asked():
            done = self.command("approve", str(asked["escalationId"]), *options)
            assert done.returncode == 0, done.stderr

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of ours, for the same user."""
        environment = {**os.environ, "HOME": str(self.installation.home)}
        return program.run([*PROXY, *arguments], environment)

    def is_tidy(self) -> bool:
        left = [p.name for p in self.directory.iterdir()] if self.directory.is_dir() else []
        return [name for name in left if name.startswith(("request-", "response-"))] == []
