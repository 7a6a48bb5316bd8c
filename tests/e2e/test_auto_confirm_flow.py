"""The whole flow of the auto-confirm engine in one session, on either database."""

from collections import Counter
from itertools import count
from pathlib import Path
from time import sleep

import orjson
import pytest
import sqlalchemy as sa

from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import PATH, require_sandbox, use_default_sandbox
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, texts
from tests.e2e.real_servers import npm_server
from tests.e2e.test_auto_confirm import ROLES, manager, tools
from tests.fakes import FakeClock

pytestmark = pytest.mark.worker("postgresql")

OUTSIDE = "/srv/elsewhere"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, installation: Installation) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{installation.root}/store.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


class Flow:
    """A fleet's proxy: a confined real server, another one, and two managers."""

    def __init__(self, installation: Installation, store_url: str) -> None:
        require_sandbox()
        self.installation = installation
        self.store_url = store_url
        places = [str(installation.workspace)]
        installation.add_server("fs", npm_server("filesystem", *places))
        use_default_sandbox(installation, "fs")
        entry = installation.servers["fs"]
        assert isinstance(entry, dict)
        writable: list[Json] = [*places]
        entry["sandbox"] = {"filesystem": {"allowWrite": writable}}
        installation.add_scripted("files", ROLES, tools=tools())
        installation.annotations["filesystem"] = {
            "read_text_file": {"path": ["read-path"], "head": ["none"], "tail": ["none"]},
            "write_file": {"path": ["write-path"], "content": ["none"]},
        }
        installation.rules = [rule("ask", "escalate", "a reviewer must agree", tool=[*ROLES])]
        installation.variables["PATH"] = PATH
        state = installation.home / ".ironcurtain"
        state.mkdir(mode=0o700)
        engine: Json = {
            "enabled": True,
            "night_mode": {"enabled": False},
            "safety_rules": [{"pattern": "file_edit_in_project", "action": "conditional"}],
            "escalation_timeout_minutes": 0.05,
            "store": {"url": store_url},
            "reviewers": [
                manager("architect_manager", "by_name"),
                manager("claude_code_high_level", "deciding", "approve"),
            ],
        }
        asked: Json = {"interceptor": {"approvalPolicy": "all"}}
        configured: Json = {"auto_confirm": engine, "security": asked}
        (state / "config.json").write_bytes(orjson.dumps(configured))
        self.agent: RawClient = installation.start()

    def write(self, path: Path, content: str) -> Message:
        return self.agent.call("fs__write_file", {"path": str(path), "content": content})

    def read(self, name: str) -> Message:
        return self.agent.call(
            "fs__read_text_file", {"path": str(self.installation.workspace / name)}
        )

    def written(self, path: Path, content: str) -> Message:
        """What became of a write."""
        self.write(path, content)
        return self.installation.outcomes()[-1]

    def of_medium_risk(self) -> Path:
        """A file of which a failure before and its name make an edit of medium risk."""
        assert "isError" in self.read("none.txt")
        kept = self.installation.workspace / "production" / "kept.txt"
        kept.parent.mkdir()
        kept.write_text("before")
        return kept

    def delete(self, name: str) -> Message:
        """What becomes of a call that no engine approves."""
        self.agent.call("files__delete_file", {"path": f"{OUTSIDE}/{name}"})
        return self.installation.outcomes()[-1]

    def recorded(self) -> Counter[str]:
        """How many calls were decided by what kind of party, by the record."""
        return Counter(
            str(one["decidedBy"]).partition(":")[0] for one in self.installation.outcomes()
        )

    def stored(self) -> Counter[str]:
        """How many interactions ended how, by the store."""
        with open_store(self.store_url, self.installation.root / "none", FakeClock()) as store:
            query = sa.text("SELECT status FROM claude_interactions")
            return Counter(store.read(lambda c: [row.status for row in c.execute(query)]))


@pytest.mark.requirement("B-1", "B-45", "B-60", "B-127", "B-62", "B-65", "B-66", "B-119", "B-168")
def test_one_session_through_approve_deny_timeout_with_fallback_and_rollback(
    installation: Installation, store_url: str
) -> None:
    flow = Flow(installation, store_url)
    for number in range(3):
        (installation.workspace / f"{number}.txt").write_text("x")
        assert "isError" not in flow.read(f"{number}.txt")
    assert installation.outcomes()[-1]["decidedBy"] == "engine:safety-rule"

    kept = flow.of_medium_risk()
    # How a session does is looked at every half second: until then a manager is asked.
    attempts = count()
    conditional = flow.written(kept, f"after {next(attempts)}")
    while at(conditional, "engine", "action") != "conditional":
        sleep(0.1)
        kept.write_text("before")
        conditional = flow.written(kept, f"after {next(attempts)}")
    assert kept.read_text() != "before"
    restored = Person(installation).run("rollback", str(conditional["requestId"]))
    assert restored.returncode == 0, restored.stderr
    assert kept.read_text() == "before"

    assert flow.delete("approve")["decidedBy"] == "reviewer:architect_manager"
    denied = flow.delete("deny")
    assert (denied["decidedBy"], at(denied, "result", "status")) == (
        "reviewer:architect_manager",
        "denied",
    )
    silent = flow.delete("silence")
    assert silent["decidedBy"] == "reviewer:claude_code_high_level"
    deleted = [at(one, "arguments", "path") for one in installation.received("files")]
    assert deleted == [f"{OUTSIDE}/approve", f"{OUTSIDE}/silence"]

    flow.agent.close()
    ends = flow.recorded()
    denials = 1
    assert flow.stored() == {
        "auto_approved": ends["engine"],
        "approved": ends["reviewer"] - denials,
        "rejected": denials,
    }
    shown = Person(installation).run("metrics", "--json")
    assert orjson.loads(shown.stdout)["interactions"] == sum(ends.values()), shown.stderr
    assert not (installation.home / ".ironcurtain/interactions.db").exists()
    assert installation.verify_audit().returncode == 0


@pytest.mark.requirement("X-17")
def test_a_flood_of_risky_calls_holds_up_nobody(installation: Installation) -> None:
    flow = Flow(installation, f"sqlite:///{installation.root}/store.db")
    flood = [
        flow.agent.start_call("files__delete_file", {"path": f"{OUTSIDE}/silence-{n}"})
        for n in range(40)
    ]
    (installation.workspace / "safe.txt").write_text("x")
    assert "isError" not in flow.read("safe.txt")
    # Each of the flood has an answer, and most of them at once: they were too many.
    answers = [flow.agent.result(one) for one in flood]
    kinds = Counter(texts(one)[0].partition(":")[0] for one in answers if one.get("isError"))
    assert sum(kinds.values()) >= 30, kinds
    assert len(installation.received("files")) == 40 - sum(kinds.values())
    assert flow.delete("approve")["decidedBy"] == "reviewer:architect_manager"
