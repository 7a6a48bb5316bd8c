"""A storm of denied calls fills no disk, and every call of it is recorded or counted."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.records import BURST_BYTES
from ironcurtain_proxy.audit.verify import verify
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from tests.audit.specimens import intent, lines_of, record
from tests.program import until

pytestmark = pytest.mark.anyio

STORM = 2000


def denied(number: int, changes: Mapping[str, object] | None = None) -> AuditRecord:
    """A call that the kernel refused, with as much in it as an agent likes."""
    own = {
        "effect": "deny",
        "rule": "protected-path",
        "reason": "x" * 20_000,
        "arguments": {"path": "/" + "y" * 60_000, "more": ["z" * 3000] * 20},
        "result": ResultSummary(status="denied", error="x" * 20_000),
        "context": (("refusedBy", "policy"),),
    }
    return record(number, {**own, **(changes or {})})


def told(path: Path) -> tuple[int, int]:
    """How many calls have a line of their own, and how many were counted."""
    lines = lines_of(path)
    counts = [line["count"] for line in lines if line.get("phase") == "counted"]
    return len(lines) - len(counts), sum(count for count in counts if isinstance(count, int))


async def test_a_storm_of_denied_calls_is_counted_but_not_what_comes_between(
    tmp_path: Path,
) -> None:
    """Other calls, and what people decide, have their own lines, and the log stays small."""
    log = AuditLog.open(tmp_path / "audit.jsonl")
    storm = denied(1)
    for _ in range(STORM):
        await log.record(storm)
    await log.record(intent(7001))
    await log.record(record(7001))
    await log.record(denied(7002, {"decided_by": "human"}))
    await log.record(denied(7003, {"context": (("waitedMs", 400),)}))
    log.close()
    ids = [line["requestId"] for line in lines_of(log.path) if line.get("phase") != "counted"]
    for number, lines in ((7001, 2), (7002, 1), (7003, 1)):
        assert ids.count(record(number).request_id) == lines
    alone, counted = told(log.path)
    assert alone + counted == STORM + 4
    assert counted > 0
    assert log.path.stat().st_size < 2 * BURST_BYTES
    assert verify(log.path).problems == ()
    last = lines_of(log.path)[-1]
    assert last["of"] == [
        {
            "serverName": "filesystem",
            "toolName": "read_file",
            "rule": "protected-path",
            "refusedBy": "policy",
            "count": last["count"],
        }
    ]


async def test_counts_are_written_while_the_log_is_open(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl")
    storm = denied(1)
    sent = 0
    while told(log.path)[1] == 0:
        for _ in range(200):
            await log.record(storm)
        sent += 200
    await log.record(storm)
    await until(lambda: sum(told(log.path)) >= sent + 1)  # a timer of the log's
    log.close()
    assert sum(told(log.path)) == sent + 1
    assert verify(log.path).problems == ()


async def test_a_denied_call_is_a_short_line_with_digests_of_what_was_cut(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl")
    await log.record(denied(1))
    await log.record(denied(2, {"arguments": {f"k{n}": "ö\x01" * 200 for n in range(5000)}}))
    await log.record(denied(3, {"arguments": {"n": [10**600] * 4000}}))
    await log.record(denied(4, {"tool": "t" * 100_000}))
    log.close()
    lines = log.path.read_bytes().splitlines()
    assert max(map(len, lines)) < 40 * 1024
    first = orjson.loads(lines[0])
    assert "sha256" in first["arguments"]["path"]
    assert first["argumentsDigest"]["size"] > 100_000
    assert verify(log.path).problems == ()


@pytest.mark.parametrize("digits", [300, 307, 308, 309, 400, 615, 5000])
async def test_no_number_that_an_agent_sends_makes_the_log_look_edited(
    tmp_path: Path, digits: int
) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl")
    await log.record(intent(1, {"arguments": {"n": [10**digits - 1, -(10**digits)] * 2000}}))
    log.close()
    assert verify(log.path).problems == ()
