"""What `doctor` and `status` say of the engine's store."""

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.auto_confirm.store.store import open_store
from ironcurtain_proxy.cli import main
from tests.auto_confirm.store.specimens import auto_approved
from tests.fakes import FakeClock

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("IRONCURTAIN_CONFIG", "MCP_SERVERS_CONFIG", "ESCALATION_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    state = tmp_path / ".ironcurtain"
    state.mkdir(mode=0o700)
    return state


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def configure(state: Path, **store: object) -> None:
    settings = {"auto_confirm": {"enabled": True, "store": store}}
    (state / "config.json").write_bytes(orjson.dumps(settings))


def line(text: str, name: str) -> str:
    (found,) = [one for one in text.splitlines() if f" {name} " in one or one.startswith(name)]
    return found


def corrupt(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)


def test_a_store_that_is_no_database_fails(state: Path, run: Run) -> None:
    configure(state)
    corrupt(state / "interactions.db")
    (state / "interactions.db").chmod(0o600)
    code, out, _ = run("doctor")
    assert code == 1
    assert line(out, "store").startswith("FAIL")
    assert "not a database" in line(out, "store")
    _, out, err = run("status")
    assert line(out, "Store:").endswith("CANNOT BE USED")
    assert "the auto-confirm engine approves nothing" in err


def test_a_store_that_is_damaged_inside_fails(state: Path, run: Run) -> None:
    configure(state)
    with open_store(None, state, FakeClock()) as store:
        for _ in range(50):
            auto_approved(store)
    path = state / "interactions.db"
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(path.stat().st_size - 8192))
    code, out, _ = run("doctor")
    assert code == 1
    assert line(out, "store").startswith("FAIL")


@pytest.mark.parametrize("there", [True, False])
def test_a_good_store_and_one_that_is_yet_to_be_made_are_well(
    state: Path, run: Run, there: bool
) -> None:
    configure(state)
    if there:
        open_store(None, state, FakeClock()).close()
    _, out, _ = run("doctor")
    assert line(out, "store").startswith("ok")
    _, out, err = run("status")
    assert line(out, "Store:").endswith("can be read" if there else "to be made")
    assert (state / "interactions.db").exists() is there
    assert "approves nothing" not in err


def test_a_server_that_is_not_there_fails(state: Path, run: Run) -> None:
    configure(state, url=f"postgresql://nobody@/none?host={state}")
    code, out, _ = run("doctor")
    assert code == 1
    assert line(out, "store").startswith("FAIL")


def test_without_the_engine_nothing_is_said_of_its_store(state: Path, run: Run) -> None:
    corrupt(state / "interactions.db")
    _, out, _ = run("doctor")
    assert " store " not in out
    _, out, _ = run("status")
    assert "Store:" not in out
