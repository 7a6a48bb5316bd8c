"""A log of one of fifty machines that was changed is found without that machine."""

import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import orjson
import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from ironcurtain_proxy.audit.records import GENESIS, Link, digest_of, seal
from ironcurtain_proxy.audit.shipping import Shipper
from ironcurtain_proxy.audit.verify import (
    HEADS_SUFFIX,
    ROOTS_NAME,
    LogHead,
    SignedRoot,
    check_roots,
    counts_of,
    hours_of,
    hours_to_sign,
    hours_to_sign_again,
    merkle_root,
    publish,
    root_of,
)
from tests import program
from tests.audit.test_shipping import cut, edited, record, reordered, rewritten

NAMES = [f"m{number:02}" for number in range(50)]
GUILTY = "m17"
SHARE = "fleet"
CHANGES: list[Callable[[Path], None]] = [edited, cut, reordered, rewritten, Path.unlink]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fifty machines have sent and published in an hour that is signed. They are gone."""
    place = tmp_path_factory.mktemp("machines")
    share = place / SHARE
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)  # noqa: TID251
    for name in NAMES:
        log = place / name / "audit.jsonl"
        log.parent.mkdir()
        lines, _ = seal([record(number, client=name) for number in range(8)], GENESIS)
        log.write_bytes(lines)
        team = share / f"team-{name[-1]}"
        shipper = Shipper(machine=name, style="records", to=team)
        assert shipper.ship(log) == 8
        for one in (Link(4, digest_of(lines.splitlines()[3])), shipper.last(log)):
            publish(share / f"{name}{HEADS_SUFFIX}", _head(name, one.seq, one.digest, hour))
        shutil.rmtree(log.parent)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / "ci")]
    subprocess.run(argv, check=True)
    assert "signed 1 root" in _audit(place, "root", SHARE, "--key", "ci").stdout
    return place


@pytest.fixture
def copied(fleet: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(fleet, tmp_path / "machines")


def _head(machine: str, seq: int, digest: str, at: datetime) -> LogHead:
    return LogHead(machine=machine, log="audit.jsonl", seq=seq, digest=digest, at=at)


def _audit(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of somebody who has the directory alone."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(place)}
    return program.run([*program.PROXY, "audit", *arguments], environment, place)


def _verify(place: Path) -> tuple[int, list[str]]:
    done = _audit(place, "verify", SHARE, "--heads", SHARE, "--root-key", "ci.pub")
    return done.returncode, [one for one in done.stdout.splitlines() if "PROBLEM" in one]


def _at(file: Path) -> datetime:
    return decode(file.read_bytes().splitlines()[0], type=LogHead).at


def _body(line: bytes) -> bytes:
    fields = orjson.loads(line)
    return orjson.dumps({name: fields[name] for name in fields if name not in {"seq", "prev"}})


def _guilty(place: Path) -> Path:
    return place / SHARE / f"team-{GUILTY[-1]}" / f"{GUILTY}.audit.jsonl.jsonl"


def test_what_fifty_machines_have_sent_is_whole(fleet: Path) -> None:
    assert _verify(fleet) == (0, [])


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_log_of_one_of_fifty_machines_is_found_by_the_heads(
    copied: Path, change: Callable[[Path], None]
) -> None:
    log = _guilty(copied)
    change(log)
    found, problems = _verify(copied)
    assert found == 1
    assert problems
    # No other machine is accused.
    assert {name for name in NAMES if any(name in one for one in problems)} == {GUILTY}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_found_by_the_roots_though_its_heads_fit_the_changed_log(
    copied: Path, change: Callable[[Path], None]
) -> None:
    log, file = _guilty(copied), copied / SHARE / f"{GUILTY}{HEADS_SUFFIX}"
    at = _at(file)
    change(log)
    file.unlink()
    if log.exists():
        lines, last = seal([_body(one) for one in log.read_bytes().splitlines()], GENESIS)
        log.write_bytes(lines)
        publish(file, _head(GUILTY, last.seq, last.digest, at))
    found, problems = _verify(copied)
    assert found == 1
    assert any("changed, added or dropped" in one for one in problems)


def test_roots_that_are_all_removed_are_missed(copied: Path) -> None:
    (copied / SHARE / ROOTS_NAME).unlink()
    found, problems = _verify(copied)
    assert found == 1
    assert any("have no root" in one for one in problems)


def test_a_log_without_any_head_is_not_called_whole(copied: Path) -> None:
    """Whoever removes its heads cuts its end off, and nothing else says where that was."""
    (copied / SHARE / f"{GUILTY}{HEADS_SUFFIX}").unlink()
    cut(_guilty(copied))
    done = _audit(copied, "verify", str(_guilty(copied)), "--heads", SHARE)
    assert done.returncode == 1
    assert f"no head of {_guilty(copied)} was published" in done.stdout


def test_a_machine_neither_accuses_another_one_nor_hides_its_heads(copied: Path) -> None:
    """Each may write its own file alone."""
    at = _at(own := copied / SHARE / f"{GUILTY}{HEADS_SUFFIX}")
    with own.open("ab") as file:
        for head in (_head("m03", 8, "0" * 64, at), _head("m03", 99, "0" * 64, at)):
            file.write(encode(head) + b"\n")
    found, problems = _verify(copied)
    assert found == 1
    assert len(problems) == 2
    assert all(f"{GUILTY}{HEADS_SUFFIX} has a head of another machine" in one for one in problems)


def test_each_root_looks_at_the_heads_of_its_hour_alone() -> None:
    """After a month there are thousands of roots, over millions of heads."""

    class Watched(dict[datetime, list[LogHead]]):
        def values(self) -> NoReturn:
            raise AssertionError("all heads are read again")

        items = values

    hour = datetime(2026, 11, 28, 10, tzinfo=UTC)
    india = timezone(timedelta(hours=5, minutes=30))
    heads = [
        LogHead(machine="m", log="audit.jsonl", seq=n, digest="0" * 64, at=moment)
        for n, moment in enumerate([hour, hour + timedelta(hours=1), hour.astimezone(india)])
    ]
    hours = Watched(hours_of(heads))
    assert [*hours] == [hour, hour + timedelta(hours=1)]
    roots = [
        SignedRoot(root=root_of(own, at), key="k", signature="00", counts=counts_of(own))
        for at, own in hours_of(heads).items()
    ]
    now = hour + timedelta(days=1)
    assert check_roots(hours, roots, lambda _: True, now) == []
    assert hours_to_sign(hours, roots[1:], now) == [hour]
    hours[hour].append(replace(heads[0], seq=9))
    assert hours_to_sign_again(hours, roots) == [hour]


def test_a_tree_of_one_leaf_is_not_the_tree_of_two() -> None:
    assert merkle_root([b"a"]) == sha256(b"\0a").digest()
    two = sha256(b"\1" + merkle_root([b"a"]) + merkle_root([b"b"])).digest()
    assert merkle_root([b"a", b"b"]) == two
    roots = {merkle_root([bytes([n]) for n in range(size)]) for size in range(20)}
    assert len(roots) == 20


def test_the_root_of_an_hour_covers_the_last_record_also_where_a_clock_went_back() -> None:
    hour = datetime(2026, 11, 28, 10, tzinfo=UTC)
    heads = [
        LogHead(machine="m", log="audit.jsonl", seq=seq, digest=f"{seq}" * 64, at=hour + at)
        for seq, at in ((1, timedelta(minutes=50)), (2, timedelta(minutes=10)))
    ]
    assert root_of(heads, hour) == root_of(heads[1:], hour) != root_of(heads[:1], hour)
