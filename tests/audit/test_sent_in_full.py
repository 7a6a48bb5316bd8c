"""What keeps records from being sent, or leads them elsewhere: damage, races, and other people."""

import os
import shutil
from pathlib import Path
from typing import BinaryIO

import orjson
import pytest

from ironcurtain_proxy.audit import files, shipping
from ironcurtain_proxy.audit.files import MAX_LINE, lock_path
from ironcurtain_proxy.audit.known_logs import note_log
from ironcurtain_proxy.audit.records import GENESIS
from ironcurtain_proxy.audit.shipping import Shipper
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.private_files import opened
from tests.audit.test_shipping import ASKED, MACHINE, Machine, numbers, receiving, seq_of
from tests.e2e.raw_client import at


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_line_that_is_too_long_keeps_no_later_record_away(machine: Machine) -> None:
    machine.write(2)
    with machine.log.open("ab") as file:
        file.write(b"x" * (2 * MAX_LINE) + b"\n")
    machine.write(2)
    assert "sent 4 records" in machine.ship().stdout
    machine.rotate()
    machine.write(1)
    machine.ship()
    assert numbers(machine.copy) == [1, 2, 3, 4, 5]


def test_a_log_that_is_rotated_while_it_is_read_loses_no_record(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipper = Shipper(machine=MACHINE, style="records", to=machine.copy.parent)
    machine.write(3)
    shipper.ship(machine.log)
    machine.rotate()
    machine.write(3)

    def rotated_meanwhile(path: Path) -> BinaryIO:
        if path == machine.log and machine.count == 6:
            machine.rotate()
            machine.write(2)
        return opened(path)

    monkeypatch.setattr(files, "opened", rotated_meanwhile)
    # Where the function was imported by name, before it read by what others read by.
    monkeypatch.setattr(shipping, "opened", rotated_meanwhile, raising=False)
    shipper.ship(machine.log)
    assert numbers(machine.copy) == [*range(1, 9)]


@pytest.mark.parametrize(
    "note", [{"seq": "1"}, {"seq": 3, "offset": -9}, {"offset": 1 << 63}, None]
)
def test_a_damaged_note_keeps_no_other_log_from_being_sent(machine: Machine, note: Json) -> None:
    machine.log = machine.home / ".ironcurtain/audit.jsonl"
    machine.log.parent.mkdir(mode=0o700)
    machine.write(3)
    inode = machine.log.stat().st_ino
    shutil.copy(machine.log, machine.log.with_name("audit.jsonl.4711"))
    damaged = orjson.dumps({**note, "inode": inode}) if isinstance(note, dict) else b"\xff"
    machine.log.with_name("audit.jsonl.shipped").write_bytes(damaged)
    heads = ("--heads", str(machine.share))
    done = machine.run("audit", "ship", "--to", str(machine.copy.parent), *heads)
    assert done.returncode == 1
    assert "audit.jsonl.shipped is damaged: remove it to send all again" in done.stderr
    assert "Traceback" not in done.stderr
    assert numbers(machine.copy.with_name(f"{MACHINE}.audit.jsonl.4711.jsonl")) == [1, 2, 3]


def test_two_logs_of_one_file_name_are_two_at_the_receiver(machine: Machine) -> None:
    """One is in the state directory, the other where a project's variable says."""
    state = machine.home / ".ironcurtain"
    machine.log = state / "audit.jsonl"
    machine.log.parent.mkdir(mode=0o700)
    machine.write(3)
    machine.log = machine.home / "project/audit.jsonl"
    machine.log.parent.mkdir()
    machine.last = GENESIS
    machine.write(2, **ASKED)
    lock_path(machine.log).touch(mode=0o600)
    note_log(state, machine.log)
    share = str(machine.share)
    with receiving() as (receiver, address):
        machine.run("audit", "ship", "--to", address, "--format", "ocsf")
        assert len({str(at(one, "metadata", "uid")) for one in receiver.lines}) == 5
    for _ in range(2):
        done = machine.run("audit", "ship", "--to", str(machine.copy.parent), "--heads", share)
        assert done.returncode == 0
    assert numbers(machine.copy) == [1, 2, 3]
    assert len([*machine.copy.parent.iterdir()]) == 2
    for where in ((), (share,)):
        told = machine.run("audit", "verify", *where, "--heads", share)
        assert (told.returncode, "5 lines in 2 logs" in told.stdout) == (0, True)
    told = machine.run("report", "--fleet", share, "--json")
    rules = {one["name"]: one["calls"] for one in orjson.loads(told.stdout)["rules"]}
    assert rules == {"allow-git": 3, "ask-push": 2}


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_others_put_into_the_shared_directory_leads_to_no_file_of_ours(
    machine: Machine, kind: str
) -> None:
    machine.write(3)
    own = machine.home / "authorized_keys"
    own.write_text("ssh-ed25519 AAAA without an end")
    heads = machine.share / f"{MACHINE}.heads.jsonl"
    machine.copy.parent.mkdir(parents=True)
    for path in (machine.copy, heads):
        path.symlink_to(own) if kind == "link" else os.mkfifo(path)
    assert machine.ship("--heads", str(machine.share)).returncode == 1
    machine.copy.unlink()
    done = machine.ship("--heads", str(machine.share))
    assert (done.returncode, "no heads are published" in done.stderr) == (1, True)
    assert own.read_text() == "ssh-ed25519 AAAA without an end"
    assert numbers(machine.copy) == [1, 2, 3]


def test_a_second_sender_of_a_log_sends_nothing_between_the_first_ones_records(
    machine: Machine,
) -> None:
    machine.write(1200)
    told: list[str] = []
    with receiving() as (receiver, address):
        to_ocsf = ("--to", address, "--format", "ocsf")
        receiver.on_post = lambda: told.extend([] if told else [machine.ship(*to_ocsf).stderr])
        assert "sent 1200 records" in machine.ship(*to_ocsf).stdout
        assert "another `audit ship` is sending it" in told[0]
        assert [seq_of(one, "ocsf") for one in receiver.lines] == [*range(1, 1201)]


@pytest.mark.parametrize("number", ["2", 2])
def test_a_collector_that_takes_a_part_gets_the_records_again(
    machine: Machine, number: str | int
) -> None:
    machine.write(3)
    with receiving() as (receiver, address):
        to_otlp = ("--to", address, "--format", "otlp")
        receiver.said = {"rejectedLogRecords": number, "errorMessage": "quota\x1b[31m"}
        done = machine.ship(*to_otlp)
        assert (done.returncode, "refused 2 records: quota" in done.stderr) == (1, True)
        assert "\x1b" not in done.stderr
        receiver.said = {"rejectedLogRecords": "0", "errorMessage": "a warning"}
        assert "sent 3 records" in machine.ship(*to_otlp).stdout
