"""What stays closed, whatever a server's entry says and wherever it lies."""

import stat
import sys
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import BLOCKED, HOSTILE, add_hostile, done, folder, refused
from tests.e2e.hidden_files import CANARY, HIDDEN, LONE, furnish
from tests.e2e.installation import Installation
from tests.e2e.raw_client import text

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.mark.requirement("A-73", "C-13")
def test_an_escalation_directory_in_the_workspace_cannot_be_written_or_moved_away(
    single: Installation,
) -> None:
    directory = single.workspace / "deep/deeper/escalations"
    directory.mkdir(parents=True)
    (directory / "notes.txt").write_text("notes")
    single.variables["ESCALATION_DIR"] = str(directory)
    agent = single.start()
    for source in (directory, directory.parent, directory.parent.parent):
        target = str(single.workspace / "moved")
        agent.call("rename", {"source": str(source), "target": target})
    agent.call("write", {"path": str(directory / "response-1.json"), "text": "{}"})
    assert directory.is_dir(), [str(one) for one in single.workspace.rglob("*")]
    assert [one.name for one in directory.iterdir()] == ["notes.txt"]
    assert (directory / "notes.txt").read_text() == "notes"


@pytest.mark.requirement("A-73", "C-13")
def test_allow_write_of_everything_does_not_open_what_is_hidden(installation: Installation) -> None:
    furnish(installation)
    add_hostile(
        installation, "hostile", sandbox={"filesystem": {"allowWrite": [str(installation.root)]}}
    )
    agent = installation.start()
    done(agent.call("write", {"path": str(installation.root / "anywhere.txt"), "text": "x"}))
    for place in HIDDEN.values():
        file = installation.root / place
        before = file.read_bytes()
        assert CANARY not in text(agent.call("read", {"path": str(file)}))
        top = installation.root / Path(place).parts[0]
        agent.call("rename", {"source": str(top), "target": f"{top}-moved"})
        agent.call("append", {"path": str(file), "text": "injected"})
        agent.call("write", {"path": str(file.parent / "injected.json"), "text": "x"})
        agent.call("remove", {"path": str(file)})
        assert file.exists(), f"{place} is gone"
        assert file.read_bytes() == before
        if file.name not in LONE:
            assert not (file.parent / "injected.json").exists()


OURS: Final = tuple(
    [
        place
        for place in HIDDEN.values()
        if not place.startswith(("home/.ssh", "home/.aws", "home/.gnupg"))
    ]
)
"""What no entry opens; its own keys the operator may open."""


@pytest.mark.requirement("A-73", "C-13")
@pytest.mark.parametrize("key", ["allowRead", "allowWrite", "denyRead"])
def test_no_entry_opens_what_is_ours(installation: Installation, key: str) -> None:
    """R-31."""
    furnish(installation)
    files = [installation.root / place for place in OURS]
    named: list[Json] = [str(place) for file in files for place in (file, file.parent)]
    add_hostile(
        installation, "hostile", sandbox={"filesystem": {key: [] if key == "denyRead" else named}}
    )
    agent = installation.start()
    opened: list[str] = []
    for file in files:
        before = file.read_bytes()
        if CANARY in text(agent.call("read", {"path": str(file)})):
            opened.append(f"{file} was read")
        agent.call("append", {"path": str(file), "text": "injected"})
        beside = file.parent / "injected.json"
        agent.call("write", {"path": str(beside), "text": "x"})
        if file.read_bytes() != before:
            opened.append(f"{file} was changed")
        if beside.exists() and file.name not in LONE:
            opened.append(f"{beside} was made")
    assert not opened, "\n".join(opened)


@pytest.mark.requirement("C-13")
def test_keys_that_are_not_there_yet_cannot_be_put_there(installation: Installation) -> None:
    add_hostile(
        installation, "hostile", sandbox={"filesystem": {"allowWrite": [str(installation.home)]}}
    )
    installation.variables["SANDBOX_POLICY"] = "enforce"
    agent = installation.start()
    keys = installation.home / ".ssh"
    agent.call("symlink", {"source": str(installation.workspace), "target": str(keys)})
    agent.call("rename", {"source": str(installation.workspace), "target": str(keys)})
    agent.call("write", {"path": str(keys / "authorized_keys"), "text": "x"})
    assert not (keys / "authorized_keys").exists()
    assert not keys.is_symlink()


@pytest.mark.requirement("C-12")
def test_no_file_of_the_sandbox_s_own_stays_in_the_workspace(single: Installation) -> None:
    (single.workspace / "mine.txt").write_text("mine")
    agent = single.start()
    done(agent.call("write", {"path": str(single.workspace / "made.txt"), "text": "x"}))
    during = {one.name for one in single.workspace.iterdir()}
    assert during == {"mine.txt", "made.txt"}
    agent.close()
    assert {one.name for one in single.workspace.iterdir()} == {"mine.txt", "made.txt"}


@pytest.mark.requirement("C-9")
def test_a_command_whose_path_needs_quoting_is_run(installation: Installation) -> None:
    program = folder(installation, "a $(touch injected); 'dir'") / 'run "it" & more'
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HOSTILE} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    add_hostile(installation, "hostile")
    configured = installation.servers["hostile"]
    assert isinstance(configured, dict)
    configured |= {"command": str(program), "args": ["a b", ""]}
    installation.variables["SANDBOX_POLICY"] = "enforce"
    agent = installation.start()
    assert orjson.loads(done(agent.call("argv"))) == ["a b", ""]
    refused(agent.call("write", {"path": str(installation.root / "outside"), "text": "x"}))


@pytest.mark.parametrize("name", ["t" * 120, "a b,c:d"], ids=["long", "signs"])
def test_a_temporary_directory_of_any_name_costs_no_server_its_sandbox(
    single: Installation, name: str
) -> None:
    """A socket's path holds 107 bytes, and socat reads a comma as the beginning of an option."""
    single.variables["TMPDIR"] = str(folder(single, name))
    agent = single.start()
    outside = single.root / "outside.txt"
    assert BLOCKED in refused(agent.call("write", {"path": str(outside), "text": "x"}))
    assert not outside.exists()
