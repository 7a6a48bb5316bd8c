"""The configuration of every known client is found, understood, changed and put back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ironcurtain_proxy.config.clients.entries import CLIENTS
from ironcurtain_proxy.config.clients.finding import ClientFile, find
from ironcurtain_proxy.config.clients.plan import (
    FileChange,
    OwnStart,
    UndoRecord,
    change,
    changes,
    movings,
    read_undo_record,
    undo,
)
from ironcurtain_proxy.config.clients.text_format import table_at
from tests.config.clients.samples import SAMPLES, Sample, install

START = OwnStart(command="/opt/bin/ironcurtain-proxy", args=())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.client)


@dataclass(frozen=True)
class Here:
    home: Path
    workspace: Path

    @property
    def state(self) -> Path:
        return self.home / ".ironcurtain"

    def found(self) -> ClientFile:
        (file,) = find(self.home, self.workspace, {}).files
        return file

    def change(self) -> FileChange:
        (changed,), refused = changes(movings([self.found()], {}, {}), START)
        assert not refused
        return changed

    def apply(self) -> UndoRecord:
        return change(self.state, read_undo_record(self.state), self.change(), NOW)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    (tmp_path / "home/project").mkdir(parents=True)
    return Here(tmp_path / "home", tmp_path / "home/project")


def test_there_is_a_sample_of_each_client() -> None:
    assert [sample.client for sample in SAMPLES] == [client.id for client in CLIENTS]


@each_sample
def test_servers_that_can_move_are_told_from_those_that_stay(sample: Sample, here: Here) -> None:
    install(here.home, here.workspace, sample)
    file = here.found()
    assert file.client.id == sample.client
    assert {one.name for table in file.tables for one in table.taken} == sample.taken
    left = {one.name: one.why for table in file.tables for one in table.left}
    assert left.keys() == sample.left.keys()
    for name, part in sample.left.items():
        assert part in left[name]


@each_sample
def test_only_the_servers_that_move_change(sample: Sample, here: Here) -> None:
    install(here.home, here.workspace, sample)
    changed = here.change()
    before, after = (changed.file.form.parse(text) for text in (changed.file.text, changed.after))
    for table in changed.file.tables:
        old, new = (table_at(document, table.place) or {} for document in (before, after))
        going = {one.name for one in table.taken}
        ours = [name for name in new if name.startswith("ironcurtain")]
        assert {name: value for name, value in new.items() if name not in ours} == {
            name: value for name, value in old.items() if name not in going
        }
        assert len(ours) == bool(going)
        for part in (old, new):
            part.clear()
    assert before == after


@each_sample
def test_undo_gives_back_every_byte(sample: Sample, here: Here) -> None:
    file = install(here.home, here.workspace, sample)
    before = file.read_bytes()
    journal = here.apply()
    assert b"/opt/bin/ironcurtain-proxy" in file.read_bytes()
    (result,), rest = undo(here.state, journal)
    assert result.state == "restored"
    assert file.read_bytes() == before
    assert rest.entries == ()
    assert [one.name for one in (here.state / "clients").iterdir()] == ["journal.json"]


@each_sample
def test_undo_keeps_what_the_user_changed_since(sample: Sample, here: Here) -> None:
    file = install(here.home, here.workspace, sample)
    before = here.found()
    journal = here.apply()
    added = {"json": "\n// mine\n", "toml": "\n[mine]\nx = 1\n", "yaml": "\nmine: 1\n"}
    file.write_text(file.read_text() + added[journal.entries[0].format])
    (result,), _ = undo(here.state, journal)
    assert result.state == "merged"
    assert file.read_text().endswith(added[journal.entries[0].format])
    after = here.found()
    assert [table.taken for table in after.tables] == [table.taken for table in before.tables]
    assert [table.left for table in after.tables] == [table.left for table in before.tables]


@each_sample
def test_undo_refuses_where_the_entry_of_the_proxy_was_changed(sample: Sample, here: Here) -> None:
    file = install(here.home, here.workspace, sample)
    journal = here.apply()
    file.write_text(file.read_text().replace("/opt/bin/ironcurtain-proxy", "/mine"))
    changed = file.read_bytes()
    (result,), rest = undo(here.state, journal)
    assert result.state == "refused"
    assert "not there as it was written" in result.why
    assert file.read_bytes() == changed
    assert result.backup is not None
    assert result.backup.exists()
    assert rest == journal


@each_sample
def test_a_torn_file_is_not_understood_and_stays(sample: Sample, here: Here) -> None:
    file = install(here.home, here.workspace, sample)
    whole = file.read_text()
    for end in range(1, len(whole), 7):
        file.write_text(whole[:end])
        found = find(here.home, here.workspace, {})
        for one in found.files:
            # What is left of TOML or YAML may be whole. Then it is changed as it is.
            changed, _ = changes(movings([one], {}, {}), START)
            for what in changed:
                assert what.file.form.parse(what.after) != what.file.form.parse(what.file.text)
        if sample.file.endswith(".json") and whole[:end].strip():
            assert [bad.path for bad in found.unusable] == [file] or end > len(whole.rstrip()) - 1


@each_sample
def test_windows_line_ends_stay(sample: Sample, here: Here) -> None:
    file = install(here.home, here.workspace, sample)
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    before = file.read_bytes()
    journal = here.apply()
    assert file.read_bytes().count(b"\n") == file.read_bytes().count(b"\r\n")
    undo(here.state, journal)
    assert file.read_bytes() == before
