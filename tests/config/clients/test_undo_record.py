"""Whatever stops a change in the middle, a client's file is whole and can be put back."""

import errno
from pathlib import Path

import pytest

from ironcurtain_proxy.config.clients import plan
from ironcurtain_proxy.config.clients.plan import read_undo_record, undo
from ironcurtain_proxy.errors import ConfigurationError
from tests.config.clients.samples import SAMPLES, install
from tests.config.clients.test_samples import NOW, Here, here

__all__ = ["here"]

CURSOR = next(sample for sample in SAMPLES if sample.client == "cursor")


def test_a_full_disk_leaves_file_and_record_as_they_were(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = install(here.home, here.workspace, CURSOR)
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(plan, "exchange", full)
    with pytest.raises(OSError, match="No space"):
        here.apply()
    assert file.read_bytes() == before
    assert read_undo_record(here.state).entries == ()
    assert [one.name for one in (here.state / "clients").iterdir()] == ["journal.json"]


def test_a_process_killed_before_the_change_leaves_nothing_to_undo(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = install(here.home, here.workspace, CURSOR)
    before = file.read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(plan, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            here.apply()
    (result,), rest = undo(here.state, read_undo_record(here.state))
    assert result.state == "same"
    assert file.read_bytes() == before
    assert rest.entries == ()


def test_a_file_that_changed_since_it_was_read_is_not_changed(here: Here) -> None:
    file = install(here.home, here.workspace, CURSOR)
    changed = here.change()
    file.write_text("{}")
    with pytest.raises(OSError, match="changed meanwhile"):
        plan.change(here.state, read_undo_record(here.state), changed, NOW)
    assert file.read_text() == "{}"


def test_a_link_to_the_file_stays_a_link_and_modes_stay(here: Here) -> None:
    file = install(here.home, here.workspace, CURSOR)
    there = here.home / "dotfiles.json"
    file.rename(there)
    file.symlink_to(there)
    there.chmod(0o640)
    before = there.read_bytes()
    here.apply()
    assert file.is_symlink()
    assert there.stat().st_mode & 0o777 == 0o640
    undo(here.state, read_undo_record(here.state))
    assert there.read_bytes() == before
    assert file.is_symlink()


def test_copies_are_for_the_user_alone(here: Here) -> None:
    install(here.home, here.workspace, CURSOR)
    here.apply()
    directory = here.state / "clients"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in directory.iterdir()} == {0o600}


def test_two_changes_of_a_file_are_undone_in_turn(here: Here) -> None:
    file = install(here.home, here.workspace, CURSOR)
    before = file.read_bytes()
    here.apply()
    file.write_text(file.read_text().replace('"secret"', '"new": {"command": "n"}, "secret"'))
    here.apply()
    assert '"SERVER_FILTER": "git,linear,asks,new"' in file.read_text()
    results, rest = undo(here.state, read_undo_record(here.state))
    assert [one.state for one in results] == ["restored", "merged"]
    assert rest.entries == ()
    names = {one.name for table in here.found().tables for one in table.taken}
    assert names == {"git", "linear", "asks", "new"}
    assert before != file.read_bytes()


DAMAGED = {
    "empty": b"",
    "torn": b"{",
    "another form": b"[]",
    "incomplete": b'{"version": 1}',
    "another version": b'{"version": 2, "clients": []}',
    "no UTF-8": b'{"version": 1, "written": {"a": "\xff"}}',
    "nested without end": b'{"x":' + b"[" * 100_000,
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_said_and_not_overwritten(here: Here, raw: bytes) -> None:
    file = here.state / "clients/journal.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(raw)
    with pytest.raises(ConfigurationError, match=r"journal\.json"):
        read_undo_record(here.state)
    assert file.read_bytes() == raw


def test_a_copy_that_is_gone_is_said(here: Here) -> None:
    file = install(here.home, here.workspace, CURSOR)
    journal = here.apply()
    (here.state / "clients" / journal.entries[0].backup).unlink()
    after = file.read_bytes()
    (result,), _ = undo(here.state, journal)
    assert (result.state, result.why) == ("refused", "its copy is gone")
    assert file.read_bytes() == after


def test_a_file_that_is_gone_is_not_made_again(here: Here) -> None:
    file = install(here.home, here.workspace, CURSOR)
    journal = here.apply()
    file.unlink()
    (result,), _ = undo(here.state, journal)
    assert (result.state, result.why) == ("refused", "it is gone")
    assert not file.exists()
    assert isinstance(result.backup, Path)
