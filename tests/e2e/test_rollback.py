"""A conditional approval on a real, confined server: a point, a look, and back."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import PATH, use_default_sandbox
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, texts
from tests.e2e.real_servers import npm_server
from tests.program import PATIENCE

pytestmark = [
    pytest.mark.requirement("B-61", "B-62", "B-63", "B-64"),
    pytest.mark.usefixtures("sandbox"),
]


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory that is not below /tmp."""
    made = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def start(installation: Installation, *others: Path, **server: Json) -> RawClient:
    """A session that does well, but for one call that failed."""
    places = [str(place) for place in (installation.workspace, *others)]
    installation.add_server("filesystem", npm_server("filesystem", *places))
    use_default_sandbox(installation, "filesystem")
    entry = installation.servers["filesystem"]
    assert isinstance(entry, dict)
    writable: list[Json] = [*places]
    entry["sandbox"] = {"filesystem": {"allowWrite": writable}}
    entry.update(server)
    installation.variables["PATH"] = PATH
    installation.annotations["filesystem"] = {
        "read_text_file": {"path": ["read-path"], "head": ["none"], "tail": ["none"]},
        "write_file": {"path": ["write-path"], "content": ["none"]},
    }
    asking = rule("ask", "escalate", "a person must agree", tool=["write_file", "read_text_file"])
    installation.rules = [asking]
    state = installation.home / ".ironcurtain"
    state.mkdir(mode=0o700, exist_ok=True)
    engine: Json = {
        "enabled": True,
        "night_mode": {"enabled": False},
        "safety_rules": [{"pattern": "file_edit_in_project", "action": "conditional"}],
    }
    asked: Json = {"interceptor": {"approvalPolicy": "all"}}
    configured: Json = {
        "auto_confirm": engine,
        "security": asked,
        "containment": {"max_bytes": 2 << 20},
    }
    (state / "config.json").write_bytes(orjson.dumps(configured))
    agent = installation.start()
    for number in range(9):
        # A session of which nothing is known is not trusted with more.
        notes = installation.workspace / f"{number}.txt"
        notes.write_text("x")
        answer = agent.call("read_text_file", {"path": str(notes)})
        assert "isError" not in answer, texts(answer)
    failing = agent.call("read_text_file", {"path": str(installation.workspace / "none.txt")})
    assert "isError" in failing
    return agent


def of_medium_risk(installation: Installation) -> Path:
    """A file that is not edited without a condition."""
    production = installation.workspace / "production"
    production.mkdir()
    kept = production / "kept.txt"
    kept.write_text("before")
    return kept


def written_at_medium_risk(
    agent: RawClient, installation: Installation, path: Path, content: str = "after"
) -> Message:
    """What becomes of a write, as soon as the failure before it is known."""
    end = time.monotonic() + PATIENCE
    # How a session does is looked at every half second.
    while True:
        path.write_text("before")
        answer = agent.call("write_file", {"path": str(path), "content": content})
        outcome = installation.outcomes()[-1]
        if "risk" not in outcome:
            assert "no approval channel available" in texts(answer)[0]
            return outcome
        if at(outcome, "engine", "band") == "MEDIUM":
            return outcome
        assert time.monotonic() < end, outcome


def approved_on_conditions(agent: RawClient, installation: Installation, path: Path) -> Message:
    """A write that is approved on conditions, once both are known: what went well, and what failed.

    Until then it is approved without any, or not at all.
    """
    end = time.monotonic() + PATIENCE
    for attempt in itertools.count():
        path.write_text("before")
        # Each with another text: what is repeated too often is stopped by the circuit breaker.
        given: Message = {"path": str(path), "content": "after" + " " * attempt}
        agent.call("write_file", given)
        outcome = installation.outcomes()[-1]
        if "risk" in outcome and at(outcome, "engine", "band") == "MEDIUM":
            assert at(outcome, "engine", "action") == "conditional"
            return outcome
        assert time.monotonic() < end, outcome
    raise AssertionError


def test_what_was_approved_with_safeguards_can_be_taken_back(installation: Installation) -> None:
    kept = of_medium_risk(installation)
    agent = start(installation)
    outcome = approved_on_conditions(agent, installation, kept)
    assert kept.read_text().rstrip() == "after"
    assert at(outcome, "engine", "safeguards") == ["sandbox", "rollback", "logging", "monitoring"]
    assert outcome["sandboxed"] is True
    assert outcome["changed"] == ["changed production/kept.txt"]
    assert "sideEffects" not in outcome
    restored = Person(installation).run("rollback", str(outcome["requestId"]))
    assert restored.returncode == 0, restored.stderr
    assert kept.read_text() == "before"


def test_without_a_sandbox_there_is_no_conditional_approval(installation: Installation) -> None:
    kept = of_medium_risk(installation)
    agent = start(installation, sandbox=False)
    outcome = written_at_medium_risk(agent, installation, kept)
    assert at(outcome, "result", "status") == "denied"
    assert kept.read_text() == "before"


def test_outside_the_workspace_there_is_no_conditional_approval(
    installation: Installation, elsewhere: Path
) -> None:
    kept, well = elsewhere / "kept.txt", of_medium_risk(installation)
    agent = start(installation, elsewhere)
    approved_on_conditions(agent, installation, well)
    outcome = written_at_medium_risk(agent, installation, kept)
    assert at(outcome, "result", "status") == "denied"
    assert kept.read_text() == "before"


def test_what_cannot_be_held_is_not_approved(installation: Installation) -> None:
    well = of_medium_risk(installation)
    huge = well.with_name("huge")
    huge.write_bytes(os.urandom(1 << 20))
    agent = start(installation)
    approved_on_conditions(agent, installation, well)
    answer = agent.call("write_file", {"path": str(huge), "content": "after"})
    assert "no approval channel available" in texts(answer)[0]
    assert huge.stat().st_size == 1 << 20
