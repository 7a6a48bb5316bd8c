"""Machines with a proxy and a relay, persons with keys, and a server of PostgreSQL."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import program
from tests.auto_confirm.store.conftest import postgres_url
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.program import PATIENCE, PROXY

__all__ = ["postgres_url"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs these files, with one server of PostgreSQL; they start many processes."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.worker("postgresql"))
            item.add_marker(pytest.mark.timeout(400))


class Machine(Person):
    """A machine whose calls need the signatures of two persons, and its relay."""

    def __init__(self, installation: Installation, url: str) -> None:
        super().__init__(installation)
        self.url = url
        self.relays: list[program.Forked | subprocess.Popen[bytes]] = []
        installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
        installation.rules = [rule("asked", "escalate", "two must agree", tool=["ask"])]
        installation.variables["ESCALATION_DIR"] = str(self.directory)
        installation.variables["ESCALATION_MODE"] = "held"
        installation.variables["ESCALATION_HOLD_AFTER_SECONDS"] = "600"
        installation.variables["ESCALATION_TIMEOUT_SECONDS"] = "600"

    def joins(self, name: str, *options: str) -> Path:
        """Let a person with a new key approve here."""
        key = self.installation.root / name
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]
        subprocess.run(argv, check=True)
        done = self.run("reviewers", "add", name, f"{key}.pub", "--risk", "critical", *options)
        assert done.returncode == 0, done.stderr
        return key

    def relay(self) -> "program.Forked | subprocess.Popen[bytes]":
        """Start the relay."""
        argv = [*PROXY, "relay", "--database", self.url, "--dir", str(self.directory)]
        environment = {**os.environ, "HOME": str(self.installation.home)}
        with (self.installation.root / "relay.log").open("ab") as errors:
            relay = program.start(argv, environment, errors, Path.cwd())
        self.relays.append(relay)
        return relay

    def there(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of a person elsewhere, who has the database alone."""
        home = self.installation.root / "elsewhere"
        home.mkdir(exist_ok=True)
        return self._run(home, *arguments, "--database", self.url)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine."""
        return self._run(self.installation.home, *arguments)

    def _run(self, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(home)}
        return program.run([*PROXY, *arguments], environment, timeout=PATIENCE)

    def end(self) -> None:
        """End the relays."""
        for relay in self.relays:
            relay.kill()
            relay.wait()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An empty installation of the test's own."""
    built = Installation(tmp_path)
    yield built
    built.end()


@pytest.fixture
def machine(installation: Installation, postgres_url: str) -> Iterator[Machine]:
    """A machine that has not started yet."""
    found = Machine(installation, postgres_url)
    yield found
    found.end()
