"""What cannot be recorded is not carried out; what was carried out unrecorded is said to be so."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, text, texts

DENIED = "DENIED: the call cannot be recorded, so it is not carried out"
PAGE = 4096


class Fault(Protocol):
    """A way to keep the audit log from growing."""

    directory: Path

    def begin(self, agent: RawClient) -> None:
        """From now on it cannot grow."""
        ...

    def end(self, agent: RawClient) -> None:
        """Now it could again."""
        ...


class FullDisk:
    """A disk of its own, filled to the last byte."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ballast = directory / "ballast"

    def begin(self, agent: RawClient) -> None:
        with suppress(OSError), self.ballast.open("ab", buffering=0) as file:
            while file.write(b"x" * PAGE):
                pass

    def end(self, agent: RawClient) -> None:
        self.ballast.unlink()


class SizeLimit:
    """A limit on the size of the files the proxy may write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin(self, agent: RawClient) -> None:
        size = sum(file.stat().st_size for file in self.directory.glob("audit.jsonl"))
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (size + 10, -1))

    def end(self, agent: RawClient) -> None:
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (-1, -1))


@pytest.fixture(params=["full disk", "size limit"])
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fault]:
    directory = tmp_path / "disk"
    directory.mkdir()
    if request.param == "size limit":
        yield SizeLimit(directory)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a disk of its own can only be had by root")
    try:
        yield FullDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture
def recorded(scripted: Installation, fault: Fault) -> Installation:
    """An installation whose audit log lies where the fault strikes."""
    scripted.audit = fault.directory / "audit.jsonl"
    return scripted


def test_without_room_for_its_record_a_call_is_not_forwarded(
    recorded: Installation, fault: Fault
) -> None:
    agent = recorded.start()
    agent.call("answer", {"text": "before"})
    fault.begin(agent)
    refused = agent.call("answer", {"text": "x" * 2 * PAGE})
    assert refused["isError"] is True
    assert texts(refused)[0] == DENIED
    assert len(recorded.received()) == 1
    # The log has a gap from here on: room alone does not mend that.
    fault.end(agent)
    assert text(agent.call("answer", {"text": "after"})) == DENIED
    assert len(recorded.received()) == 1


def test_a_call_that_was_sent_and_could_not_be_recorded_says_so(
    recorded: Installation, fault: Fault, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    agent = recorded.start()
    request = agent.start_call("fifo", {"name": str(fifo)})
    with fifo.open("w", encoding="utf-8") as gate:
        # Opening it took until the server had opened the other end: the call is under way.
        fault.begin(agent)
        if isinstance(fault, FullDisk):
            # The last page of the log has room for a short line still.
            agent.call("forbidden", {"text": "x" * 2 * PAGE})
        gate.write("the result")
    result = texts(agent.result(request))
    assert result[0] == "the result"
    assert "executed, not recorded" in result[1]
    assert text(agent.call("answer", {"text": "later"})) == DENIED
    fault.end(agent)
    agent.close()
    again = recorded.start()
    agent_saw = str(recorded.records()[0]["requestId"])
    again.close()
    assert agent_saw in recorded.verify_audit().stdout


def test_the_log_of_a_full_disk_is_sound_up_to_the_gap(
    recorded: Installation, fault: Fault
) -> None:
    agent = recorded.start()
    agent.call("answer", {"text": "before"})
    fault.begin(agent)
    agent.call("answer", {"text": "x" * 2 * PAGE})
    fault.end(agent)
    agent.close()
    again = recorded.start()
    assert text(again.call("answer", {"text": "again"})) == "again"
    again.close()
    assert recorded.verify_audit().returncode == 0


def test_a_log_that_has_stopped_is_said_once_and_not_with_every_call(
    recorded: Installation, fault: Fault
) -> None:
    agent = recorded.start()
    agent.call("answer", {"text": "before"})
    fault.begin(agent)
    for _ in range(15):
        agent.call("answer", {"text": "x" * 2 * PAGE})
    fault.end(agent)
    agent.close()
    said = agent.errors.read_text(encoding="utf-8")
    assert agent.process.returncode == 0
    assert "no call is forwarded any more" in said
    assert len(said.splitlines()) <= 3
    assert "Traceback" not in said
