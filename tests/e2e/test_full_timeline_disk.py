"""A disk that is full where the timeline keeps its copies, while the workspace lies on another."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.confined_installation import done, refused
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.test_containment import contained, last, shell, why_asked

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def disk(installation: Installation) -> Iterator[Path]:
    """The directory of the timelines, on a disk of its own."""
    place = installation.home / ".ironcurtain/timeline"
    place.mkdir(parents=True)
    place.parent.chmod(0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root has a disk of its own")
    place.chmod(0o700)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leave no block free."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize))
    with pytest.raises(OSError, match="No space"):
        (disk / "more").write_bytes(b"x")
    return filler


def test_a_full_disk_of_the_timeline_asks_about_what_ran_unasked_before(
    installation: Installation, disk: Path
) -> None:
    here = installation.workspace
    (here / "old.bin").write_bytes(os.urandom(100_000))
    old = (here / "old.bin").read_bytes()
    agent, person = contained(installation), Person(installation)
    done(shell(agent, f"cd {here} && rm old.bin"))
    first = str(last(installation)["requestId"])
    assert last(installation)["decidedBy"] == "containment"
    filler = fill(disk)
    # A person or another program makes it: there is no copy of it.
    new = os.urandom(100_000)
    (here / "new.bin").write_bytes(new)
    refused(shell(agent, f"cd {here} && rm new.bin"))
    assert (here / "new.bin").read_bytes() == new
    assert last(installation)["decidedBy"] != "containment"
    assert "space" in why_asked(installation)
    refused(agent.call("write", {"path": str(here / "new.bin"), "text": "x"}))
    refused(agent.call("remove", {"path": str(here / "new.bin")}))
    assert (here / "new.bin").read_bytes() == new
    done(shell(agent, f"cd {here} && ls"))
    filler.unlink()
    done(shell(agent, f"cd {here} && rm new.bin"))
    second = str(last(installation)["requestId"])
    assert last(installation)["decidedBy"] == "containment"
    for call in (second, first):
        taken_back = person.run("rollback", call)
        assert taken_back.returncode == 0, taken_back.stderr
    assert [(here / name).read_bytes() for name in ("old.bin", "new.bin")] == [old, new]


def test_a_disk_of_the_timeline_that_is_full_from_the_start_holds_nothing(
    installation: Installation, disk: Path
) -> None:
    file = installation.workspace / "file"
    file.write_text("kept")
    fill(disk)
    agent = contained(installation)
    refused(shell(agent, f"cd {installation.workspace} && rm file"))
    refused(agent.call("remove", {"path": str(file)}))
    assert file.read_text() == "kept"
    assert last(installation)["decidedBy"] != "containment"
