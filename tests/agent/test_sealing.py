"""Sealed states, and the calls that another proxy may take up."""

import base64
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from ironcurtain_proxy.agent.sealing import Sealing, State, digest_of
from ironcurtain_proxy.model.values import Json

STATE = State(id="0a", call="1b", leg=3)


@pytest.mark.requirement("T-17")
def test_a_state_is_read_by_all_proxies_of_its_principal_as_it_is_and_by_no_other(
    tmp_path: Path,
) -> None:
    sealed = Sealing(tmp_path, "alice").sealed(STATE)
    assert Sealing(tmp_path, "alice").opened(sealed) == STATE
    for other in (Sealing(tmp_path, "bob"), Sealing(tmp_path), Sealing(tmp_path / "b", "alice")):
        assert other.opened(sealed) is None
    for place in range(len(sealed)):
        changed = chr(ord(sealed[place]) ^ 1)
        assert (
            Sealing(tmp_path, "alice").opened(sealed[:place] + changed + sealed[place + 1 :])
            is None
        )
    for odd in ("", None, 3, "v1.", "v1.é", sealed + "=", sealed[:-1], "v1." + "A" * 4096):
        assert Sealing(tmp_path, "alice").opened(odd) is None


@pytest.mark.parametrize("more", ["", "0", "00"])
@pytest.mark.requirement("T-17")
def test_no_other_spelling_of_a_state_is_known(more: str, tmp_path: Path) -> None:
    """What runs once is kept by its text elsewhere: the same bytes can be written in other ways."""
    ours = Sealing(tmp_path)
    others = 0
    for number in range(99):
        sealed = ours.sealed(State(id=f"{number:02}{more}", call="1b", leg=3))
        kept = sealed.removeprefix("v1.")
        said = kept.rstrip("=")
        ends = [said[:-1] + chr(ord(said[-1]) + step) for step in (-1, 1)]
        spelled = [kept.replace("-", "+").replace("_", "/"), *[e + kept[len(said) :] for e in ends]]
        for other in {*spelled} - {kept}:
            with suppress(ValueError):
                others += base64.b64decode(other, b"-_", validate=True) == base64.urlsafe_b64decode(
                    kept
                )
            assert ours.opened(f"v1.{other}") is None
    assert others, "some are read as the same bytes"


def test_the_key_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    make = (
        "import sys; from pathlib import Path; from ironcurtain_proxy.agent.sealing import *; "
        "print(Sealing(Path(sys.argv[1])).sealed(State(id='0a', call='1b', leg=3)))"
    )
    command = [sys.executable, "-c", make, str(tmp_path / "state")]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert len({process.communicate()[0] for process in made}) == 1
    key = tmp_path / "state" / "state.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("key", ["name", "uri", "arguments", "ref", "argument", "context"])
def test_a_state_is_of_all_that_a_request_asks_for(key: str) -> None:
    given: dict[str, Json] = {"ref": {"name": "a"}, "argument": {"name": "x", "value": "1"}}
    same: dict[str, Json] = {
        **given,
        "_meta": {"progressToken": 2},
        "inputResponses": {},
        "requestState": "s",
    }
    method = "completion/complete"
    assert digest_of(method, given) == digest_of(method, same)
    assert digest_of(method, given) != digest_of(method, {**given, key: {"name": "b"}})


@pytest.mark.parametrize("damage", ["lost", "short", "readable", "a link"])
@pytest.mark.requirement("T-24")
def test_with_a_key_that_is_lost_or_cannot_be_trusted_older_states_are_unknown(
    tmp_path: Path, damage: str
) -> None:
    sealed = Sealing(tmp_path).sealed(STATE)
    key = tmp_path / "state.key"
    match damage:
        case "lost":
            key.unlink()
        case "short":
            key.write_bytes(b"x" * 31)
        case "readable":
            key.chmod(0o644)
        case _:
            key.rename(tmp_path / "other")
            key.symlink_to(tmp_path / "other")
    again = Sealing(tmp_path)
    assert again.opened(sealed) is None
    assert again.opened(again.sealed(STATE)) == STATE, "calls go on all the same"


def test_a_call_is_taken_up_once_and_only_from_a_proxy_that_is_gone(tmp_path: Path) -> None:
    first = Sealing(tmp_path)
    first.keep("0a")
    assert not Sealing(tmp_path).take_up("0a")
    code = (
        "import sys, os, signal; from pathlib import Path; "
        "from ironcurtain_proxy.agent.sealing import *; "
        "Sealing(Path(sys.argv[1])).keep('0b'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    with ThreadPoolExecutor(16) as pool:
        taken = [*pool.map(lambda _: Sealing(tmp_path).take_up("0b"), range(100))]
    assert taken.count(True) == 1
    first.spend("0a")
    assert not Sealing(tmp_path).take_up("0a")
    assert [*(tmp_path / "held").iterdir()] == []


@pytest.mark.parametrize("call", ["", ".", "..", "../state.key", "/etc/passwd", "0A", "0a\n"])
def test_no_other_file_is_taken(tmp_path: Path, call: str) -> None:
    sealing = Sealing(tmp_path)
    sealing.sealed(STATE)
    sealing.keep("0c")
    assert not sealing.take_up(call)
    assert (tmp_path / "state.key").exists()


def test_a_call_whose_file_cannot_be_removed_does_not_go_on(tmp_path: Path) -> None:
    sealing = Sealing(tmp_path)
    sealing.keep("0a")
    (tmp_path / "held" / "0a").unlink()
    with pytest.raises(OSError, match="0a"):
        sealing.spend("0a")


def test_what_no_client_came_back_for_is_removed_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / "held" / "0a", tmp_path / "held" / "0b"
    old.parent.mkdir()
    for file, age in ((old, 90_000), (young, 80_000)):
        file.touch()
        now = file.stat().st_mtime
        os.utime(file, (now - age, now - age))
    Sealing(tmp_path).keep("0c")
    assert {file.name for file in old.parent.iterdir()} == {"0b", "0c"}
