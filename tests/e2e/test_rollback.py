"""A conditional approval on a real, confined server: snapshot, watch, and back."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.json import Json
from tests.e2e.confined_installation import PATH, use_default_sandbox
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import RawClient, at, texts
from tests.e2e.real_servers import npm_server

pytestmark = [
    pytest.mark.requirement("B-61", "B-62", "B-63", "B-64"),
    pytest.mark.usefixtures("sandbox"),
]


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory neither in the workspace nor below /tmp: writing there is of medium risk."""
    made = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def start(installation: Installation, elsewhere: Path, **server: Json) -> RawClient:
    scratch = installation.root / "scratch"
    scratch.mkdir()
    installation.add_server("filesystem", npm_server("filesystem", str(scratch), str(elsewhere)))
    use_default_sandbox(installation, "filesystem")
    entry = installation.servers["filesystem"]
    assert isinstance(entry, dict)
    writable: list[Json] = [str(scratch), str(elsewhere)]
    entry["sandbox"] = {"filesystem": {"allowWrite": writable}}
    entry.update(server)
    installation.variables["PATH"] = PATH
    installation.annotations["filesystem"] = {
        "write_file": {"path": ["write-path"], "content": ["none"]},
    }
    installation.rules = [rule("ask", "escalate", "a reviewer must agree", tool=["write_file"])]
    state = installation.home / ".ironcurtain"
    state.mkdir(mode=0o700)
    engine: Json = {"enabled": True, "night_mode": {"enabled": False}}
    (state / "config.json").write_bytes(orjson.dumps({"auto_confirm": engine}))
    agent = installation.start()
    for number in range(3):
        # A session of which nothing is known is not trusted with more.
        answer = agent.call("write_file", {"path": str(scratch / f"{number}"), "content": "x"})
        assert "isError" not in answer, texts(answer)
    return agent


def test_what_was_approved_with_safeguards_can_be_taken_back(
    installation: Installation, elsewhere: Path
) -> None:
    kept = elsewhere / "kept.txt"
    kept.write_text("before")
    agent = start(installation, elsewhere)
    end = time.monotonic() + 30
    number = 0
    # How a session does is looked at every half second: until then it is not known to do well.
    while "isError" in agent.call("write_file", {"path": str(kept), "content": f"after {number}"}):
        assert kept.read_text() == "before"
        assert time.monotonic() < end, installation.outcomes()[-1]
        number += 1
    assert kept.read_text() == f"after {number}"
    outcome = installation.outcomes()[-1]
    assert at(outcome, "engine", "action") == "conditional"
    assert at(outcome, "engine", "safeguards") == ["sandbox", "rollback", "logging", "monitoring"]
    assert outcome["sandboxed"] is True
    assert outcome["changed"] == [str(kept)]
    effects = outcome["sideEffects"]
    assert isinstance(effects, dict)
    assert effects["complete"] is True
    restored = Person(installation).run("rollback", str(outcome["snapshot"]))
    assert restored.returncode == 0, restored.stderr
    assert kept.read_text() == "before"


def test_without_a_sandbox_there_is_no_conditional_approval(
    installation: Installation, elsewhere: Path
) -> None:
    kept = elsewhere / "kept.txt"
    kept.write_text("before")
    agent = start(installation, elsewhere, sandbox=False)
    answer = agent.call("write_file", {"path": str(kept), "content": "after"})
    assert "no approval channel available" in texts(answer)[0]
    assert kept.read_text() == "before"


def test_what_cannot_be_held_is_not_approved(installation: Installation, elsewhere: Path) -> None:
    huge = elsewhere / "huge"
    with huge.open("wb") as file:
        file.truncate(65 << 20)
    agent = start(installation, elsewhere)
    answer = agent.call("write_file", {"path": str(huge), "content": "after"})
    assert "no approval channel available" in texts(answer)[0]
    assert huge.stat().st_size == 65 << 20
