"""The files of pins: shared by proxies, whole, and never believed blindly."""

import multiprocessing
import os
import stat
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from ironcurtain_proxy import private_files
from ironcurtain_proxy.cli import pins as pins_command
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.pins.book import PinsFileError, PinStore
from ironcurtain_proxy.pins.pinned import PinnedPart, ServerPins
from tests.program import PATIENCE

LAUNCH = "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> PinStore:
    return PinStore(tmp_path / "state" / "pins")


def trust(store: PinStore, **tools: Json) -> ServerPins:
    parts = {name: PinnedPart.of(value) for name, value in tools.items()}
    return store.update(LAUNCH, "s", lambda pins: pins.with_first("tools", parts)).pins


def file_of(store: PinStore) -> Path:
    return store.directory / f"{LAUNCH}.json"


def test_what_is_written_is_read_again_and_ours_alone(store: PinStore) -> None:
    written = trust(store, read={"huge": 2**80, "lone": "\ud800"})
    assert store.read(LAUNCH, "s").pins == written
    assert stat.S_IMODE(file_of(store).stat().st_mode) == 0o600


def test_a_server_that_was_never_pinned_has_no_file(store: PinStore) -> None:
    assert store.read(LAUNCH, "s").pins == ServerPins(server="s", launch=LAUNCH)
    assert not store.directory.exists()
    assert list(store.all()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "version": 1}', b"\xff", b"[" * 100_000],
)
def test_a_damaged_file_counts_for_nothing_and_stays(content: bytes, store: PinStore) -> None:
    trust(store, read={})
    file_of(store).write_bytes(content)
    with pytest.raises(PinsFileError):
        store.read(LAUNCH, "s")
    with pytest.raises(PinsFileError):
        trust(store, read={})
    assert file_of(store).read_bytes() == content
    assert isinstance(next(store.all()), PinsFileError)


def test_a_file_of_another_server_is_not_taken_for_this_one(store: PinStore) -> None:
    trust(store, read={})
    other = "cd" * 32
    file_of(store).rename(store.directory / f"{other}.json")
    with pytest.raises(PinsFileError, match="another server"):
        store.read(other, "s")


def test_a_file_that_others_can_write_is_refused(store: PinStore) -> None:
    trust(store, read={})
    file_of(store).chmod(0o666)
    with pytest.raises(PinsFileError, match="can be written by other users"):
        store.read(LAUNCH, "s")


def test_a_link_in_its_place_is_refused(store: PinStore, tmp_path: Path) -> None:
    trust(store, read={})
    file_of(store).rename(tmp_path / "elsewhere.json")
    file_of(store).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(PinsFileError, match="symbolic link"):
        store.read(LAUNCH, "s")


def test_a_full_disk_leaves_what_was_there(
    store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = trust(store, read={})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_files, "write_whole", full)
    with pytest.raises(PinsFileError, match="No space left"):
        trust(store, write={})
    assert store.read(LAUNCH, "s").pins == before


def add(directory: Path, name: str) -> None:
    part = {name: PinnedPart.of({"n": name})}
    PinStore(directory).update(LAUNCH, "s", lambda pins: pins.with_offers("tools", part))


def test_proxies_that_write_at_once_lose_nothing(store: PinStore) -> None:
    trust(store, read={})
    context = multiprocessing.get_context("fork")
    names = [f"t{number}" for number in range(8)]
    writers = [context.Process(target=add, args=(store.directory, name)) for name in names]
    for one in writers:
        one.start()
    for one in writers:
        one.join(PATIENCE)
    assert sorted(store.read(LAUNCH, "s").pins.offered["tools"]) == names


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_said(store: PinStore) -> None:
    trust(store, read={})
    store.directory.chmod(0o500)
    try:
        with pytest.raises(PinsFileError, match="cannot be written"):
            trust(store, write={})
    finally:
        store.directory.chmod(0o700)


def offer(store: PinStore, value: Json) -> None:
    part = {"t": PinnedPart.of(value)}
    store.update(LAUNCH, "s", lambda pins: pins.with_first("tools", {}).with_offers("tools", part))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `ironcurtain-proxy pins ACTION s`, over the files of `store`."""
    monkeypatch.setattr(pins_command, "state_directory", lambda: tmp_path / "state")
    usual = {"server": "s", "part": None, "yes": False, "json": False, "digest": None}
    return lambda action, **said: pins_command.run(Namespace(action=action, **{**usual, **said}))


def test_a_person_is_shown_all_lines_and_accepts_nothing_that_came_meanwhile(
    store: PinStore,
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def agree_late(_question: str) -> bool:
        offer(store, {"x": "EVIL"})
        return True

    offer(store, {"x": [f"line {number}" for number in range(100)]})
    monkeypatch.setattr(pins_command, "_agreed", agree_late)
    assert command("accept") == 1
    said = capsys.readouterr().out
    assert '"line 99"' in said
    assert "nothing was accepted" in said
    assert store.read(LAUNCH, "s").pins.trusted == {"tools": {}}


def test_a_digest_accepts_what_was_shown_with_it_alone(
    store: PinStore, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    offer(store, {"x": [f"line {number}" for number in range(100)]})
    command("diff")
    said = capsys.readouterr().out
    assert '"line 99"' in said
    digest = said.split()[-1]
    offer(store, {"x": "EVIL"})
    assert command("accept", digest=digest) == 1
    assert store.read(LAUNCH, "s").pins.trusted == {"tools": {}}
    offer(store, {"x": [f"line {number}" for number in range(100)]})
    assert command("accept", digest=digest) == 0
    offer(store, {"x": "other"})
    capsys.readouterr()
    assert command("accept", yes=True) == 0
    assert '"x": "other"' in capsys.readouterr().err


@pytest.mark.parametrize("said", [{"server": "S1"}, {"part": ["tool/t"]}])
def test_an_unknown_name_is_answered_with_the_nearest(
    store: PinStore, command: Callable[..., int], said: dict[str, Json]
) -> None:
    offer(store, {"x": 1})
    with pytest.raises(ConfigurationError, match=r'did you mean ("s"|tools/t)\?'):
        command("accept", **said)
