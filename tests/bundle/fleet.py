"""A fleet for tests: three persons, a key that signs the time, a repository, and one machine."""

import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ironcurtain_proxy.bundle.repository import Repository
from ironcurtain_proxy.bundle.update import Updated, update
from ironcurtain_proxy.config.policy import policy_files
from ironcurtain_proxy.config.policy.managed import Bundle, find_managed, read_current
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.signing import KeyFile

Content = Mapping[str, str]
FIRST: Content = {
    "policy.yaml": "allow time: get_current_time\n",
    "maximum.yaml": "deny time: {tools: convert_time, reason: Not in this fleet}\n",
}


def key() -> KeyFile:
    return KeyFile(Ed25519PrivateKey.generate())


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  signatures are of the real time


class Fleet:
    """Persons `ada`, `bo` and `cy`, and what they have signed."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ada, self.bo, self.cy, self.ci = key(), key(), key(), key()
        self.directory = place / "repository"
        self.repository = Repository(self.directory)
        self.managed = place / "managed"
        self.managed.mkdir(mode=0o755)

    def begin(self, content: Content = FIRST) -> None:
        persons = [one.public for one in (self.ada, self.bo, self.cy)]
        self.repository.begin(persons, self.ci.public, now())
        for one in (self.ada, self.bo):
            self.repository.sign(one, now(), 24, keys=True)
        self.publish(content)
        self.enrol(self.directory.as_uri())

    def publish(self, content: Content, *, signed: datetime | None = None, hours: int = 24) -> int:
        """Publish a bundle as two persons and the machine sign it."""
        files = self.place / "content"
        shutil.rmtree(files, ignore_errors=True)
        for name, text in content.items():
            (files / name).parent.mkdir(parents=True, exist_ok=True)
            (files / name).write_text(text)
        version = self.repository.propose(files, now())
        for one in (self.ada, self.cy):
            self.repository.sign(one, now(), 24)
        self.sign_time(signed, hours)
        return version

    def sign_time(self, signed: datetime | None = None, hours: int = 24) -> None:
        self.repository.sign(self.ci, signed or now(), hours)

    def enrol(self, source: str) -> None:
        (self.managed / "bundle.json").write_bytes(orjson.dumps({"source": source}))
        root = self.directory / "metadata/1.root.json"
        (self.managed / "bundle-root.json").write_bytes(root.read_bytes())

    def update(self, moment: datetime | None = None) -> Updated:
        return update(self.managed, moment or now())

    def version(self) -> int:
        """The version that `serve` would take, after all its checks."""
        return self.bundle().current.version

    def bundle(self) -> Bundle:
        report = Report()
        found = find_managed(report, self.managed, os.geteuid())
        report.raise_errors()
        assert found is not None
        assert found.bundle is not None
        return found.bundle

    def expire(self) -> None:
        """Let the bundle in force be three days too old."""
        current = read_current(self.managed)
        path = self.managed / "bundle/current.json"
        document = orjson.loads(path.read_bytes())
        document |= {"expires": (now() - timedelta(days=3)).isoformat(), "ends": None}
        assert current.expires > now()
        path.write_bytes(orjson.dumps(document))

    def boots(self) -> None:
        """Let the machine have been started again: its clock alone says how late it is."""
        path = self.managed / "bundle/current.json"
        document = orjson.loads(path.read_bytes())
        document["ends"] = {"boot": "another", "seconds": 1.0}
        path.write_bytes(orjson.dumps(document))

    def is_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this process's machine the fleet's."""
        own = partial(find_managed, directory=self.managed, owner=os.geteuid())
        monkeypatch.setattr(policy_files, "find_managed", own)
