"""A disk that is full while a person takes a call back, or approves something for later."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.e2e import test_persisted_grants as grants
from tests.e2e.confined_installation import done
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.test_containment import contained, last, shell
from tests.e2e.test_full_timeline_disk import fill

Disk: TypeAlias = Callable[[Path], Path]

person = grants.person


@pytest.fixture
def small_disk() -> Iterator[Disk]:
    """Gives a directory a disk of its own of 8 MiB."""
    with ExitStack() as mounted:

        def mount(place: Path) -> Path:
            words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
            place.mkdir(parents=True, exist_ok=True)
            if os.geteuid() != 0 or subprocess.run(words, check=False).returncode:
                pytest.skip("only root has a disk of its own")
            place.chmod(0o700)
            unmount = ["umount", "--lazy", str(place)]
            mounted.callback(subprocess.run, unmount, check=True)
            return place

        yield mount


@pytest.mark.usefixtures("sandbox")
def test_a_rollback_on_a_full_disk_loses_nothing_and_says_how_it_goes_on(
    installation: Installation, small_disk: Disk
) -> None:
    here = small_disk(installation.workspace)
    names = ("a.bin", "b.bin", "c.bin")
    before = {name: os.urandom(1 << 20) for name in names}
    for name, content in before.items():
        (here / name).write_bytes(content)
    agent, person = contained(installation), Person(installation)
    done(shell(agent, f"cd {here} && for f in *.bin; do echo $f > $f; done"))
    call = str(last(installation)["requestId"])
    agent.close()
    filler = fill(here)
    refused = person.run("rollback", call)
    assert refused.returncode == 1
    assert "No space left on device; what is missing can be put back" in refused.stderr
    for name in names:
        assert (here / name).read_bytes() in {before[name], f"{name}\n".encode()}
    assert sorted(one.name for one in here.iterdir()) == [*names, "filler", "more"]
    filler.unlink()
    taken_back = person.run("rollback", call, "--force")
    assert taken_back.returncode == 0, taken_back.stderr
    assert {name: (here / name).read_bytes() for name in names} == before


def test_an_approval_that_a_full_disk_cannot_keep_holds_for_the_session_and_loses_no_other(
    installation: Installation, person: Person, small_disk: Disk
) -> None:
    small_disk(installation.home / ".ironcurtain")
    grants.configure(installation)
    grants.approve_and_remember(installation, person)
    kept = grants.file(installation).read_bytes()
    (installation.root / "other").mkdir()
    agent = grants.start(installation, person)
    filler = fill(installation.home / ".ironcurtain")
    ask = {"text": str(installation.root / "other/a")}
    call = agent.start_call("ask", dict(ask))
    person.until_asked()
    person.approve("--remember")
    agent.result(call)
    # Nobody is asked a second time in this session.
    assert agent.call("ask", dict(ask)).get("isError") is not True
    assert str(installation.outcomes()[-1]["decidedBy"]).startswith("grant:")
    assert grants.file(installation).read_bytes() == kept
    filler.unlink()
    agent.close()
    said = installation.root.glob("stderr-*.txt")
    warned = [
        one for one in "".join(one.read_text() for one in said).splitlines() if "space" in one
    ]
    assert len(warned) == 1
    assert "grants.json cannot be written: No space left on device" in warned[0]
    # The end of the session tries again.
    assert len(grants.kept(installation)) == 2
