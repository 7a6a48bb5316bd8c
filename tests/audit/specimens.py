"""Records, logs and secrets for the tests of this folder."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import orjson
from msgspec.structs import replace

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.model.decision import KERNEL, of_record
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from ironcurtain_proxy.model.values import Json
from tests.tables import table

NOON: Final = datetime(2026, 11, 21, 12, 0, 0, 799_000, tzinfo=UTC)


SECRETS: Final[Mapping[str, str]] = table("audit/specimens.secrets", dict[str, str])
"""By what they are."""


def core(secret: str) -> str:
    """The part of a secret that must not be seen anywhere: all but four characters at each end."""
    return secret[4:-4]


RECORD: Final = AuditRecord(
    timestamp=NOON,
    request_id=RequestId(""),
    session="s1",
    server="filesystem",
    tool="read_file",
    arguments={},
    effect="allow",
    rule="read-srv",
    reason="Reading below /srv is allowed",
    decided_by=KERNEL,
    result=ResultSummary(status="success", size=12, sha256="ab" * 32),
    duration_ms=3,
)


_changed: Final[Callable[..., AuditRecord]] = replace


def record(number: int = 1, changes: Mapping[str, object] | None = None) -> AuditRecord:
    """An outcome of its own request; `decided_by` is written as in a record."""
    own = {
        "request_id": f"75b32e3b-0000-4000-8000-{number:012x}",
        "arguments": {"path": f"/srv/{number}.txt"},
    }
    changed = {**own, **(changes or {})}
    if isinstance(by := changes and changes.get("decided_by"), str):
        changed["decided_by"] = of_record(by)
    return _changed(RECORD, **changed)


def intent(number: int = 1, changes: Mapping[str, object] | None = None) -> AuditRecord:
    """What is written before a call is forwarded."""
    return record(number, {"result": None, "duration_ms": 0, **(changes or {})})


def write_log(
    path: Path, count: int, settings: LogSettings | None = None, *, first: int = 1
) -> AuditLog:
    """Write an intent, its outcome, and so on: lines `first` to `first + count - 1`."""
    log = AuditLog.open(path, settings or LogSettings())

    async def write() -> None:
        for number in range(first, first + count):
            await log.record(intent(number) if number % 2 else record(number - 1))

    anyio.run(write)
    log.close()
    return log


def lines_of(path: Path) -> list[dict[str, Json]]:
    """Every line of a file, parsed."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def card(random_source: random.Random) -> str:
    """A card number that passes the Luhn test."""
    digits = [4, *[random_source.randrange(10) for _ in range(14)]]
    doubled = [d if i % 2 else (2 * d if d < 5 else 2 * d - 9) for i, d in enumerate(digits)]
    return "".join(map(str, [*digits, -sum(doubled) % 10]))
