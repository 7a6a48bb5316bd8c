"""Whether a sandbox can be had, found out by programs that behave as the real ones do.

The real ones are tried in `tests/e2e`.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ironcurtain_proxy.sandbox import probe as probing
from ironcurtain_proxy.sandbox.probe import Available, Unavailable, probe, recall, remember
from tests.e2e.process_tree import Watch

PROGRAMS: Final = {
    "node": "install Node.js 20 or newer",
    "srt": "npm install -g @anthropic-ai/sandbox-runtime@0.0.83",
    "bwrap": "sudo apt-get install -y bubblewrap",
    "socat": "sudo apt-get install -y socat",
    "rg": "sudo apt-get install -y ripgrep",
}
"""Each with the way to get it."""
CONFINED: Final = "echo confined"


class Machine:
    """A machine with all programs, of which srt is the test's own."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.runs = root / "runs"
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        for name in PROGRAMS:
            self.install(name, "exit 0")
        self.install("srt", CONFINED)

    def install(self, name: str, script: str) -> Path:
        program = self.bin / name
        program.write_text(f"#!/bin/sh\necho {name} >>{self.runs}\n{script}\n")
        program.chmod(0o755)
        return program

    def only(self) -> None:
        """Take all that the system has off the PATH."""
        self.environ["PATH"] = str(self.bin)

    def count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    def why_not(self) -> tuple[str, str]:
        """Why a sandbox is not to be had, and what to do about it."""
        found = probe(self.environ)
        assert isinstance(found, Unavailable)
        (missing,) = found.missing
        return missing.why, missing.remedy


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Machine(tmp_path)
        assert list(Path(short).iterdir()) == [], "it left something behind"


@pytest.mark.requirement("C-14")
def test_a_process_that_says_that_it_is_confined_shows_that_one_can_be(machine: Machine) -> None:
    assert probe(machine.environ) == Available((str(machine.bin / "srt"),))


@pytest.mark.requirement("C-14")
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_missing_program_is_named_with_the_way_to_get_it(machine: Machine, name: str) -> None:
    machine.only()
    (machine.bin / name).unlink()
    why, remedy = machine.why_not()
    assert (why, remedy) == ("not found", PROGRAMS[name])


def test_where_the_folder_of_npm_is_not_the_users_the_command_writes_into_the_home(
    machine: Machine,
) -> None:
    machine.only()
    (machine.bin / "srt").unlink()
    closed = machine.bin / "closed"
    closed.write_text("nobody makes a folder here, root neither")
    machine.environ["npm_config_prefix"] = str(closed)
    assert machine.why_not()[1] == (
        "npm install -g --prefix ~/.local @anthropic-ai/sandbox-runtime@0.0.83"
    )


def test_what_the_command_installed_in_the_home_is_found_whatever_the_path(
    machine: Machine, tmp_path: Path
) -> None:
    machine.only()
    there = tmp_path / "home/.local/bin/srt"
    there.parent.mkdir(parents=True)
    (machine.bin / "srt").rename(there)
    machine.environ["HOME"] = str(tmp_path / "home")
    found = probe(machine.environ)
    assert found == Available((str(there),))
    known = tmp_path / "sandbox.json"
    remember(known, machine.environ, found)
    assert recall(known, machine.environ) == found


def test_what_the_machine_says_of_registries_holds_in_the_home_too(machine: Machine) -> None:
    machine.only()
    (machine.bin / "srt").unlink()
    said = machine.bin / "prefix/etc/npmrc"
    said.parent.mkdir(parents=True)
    said.write_text("cafile=/etc/ssl/own.pem\n")
    (machine.bin / "prefix/lib").write_text("nobody makes a folder here, root neither")
    machine.environ["npm_config_prefix"] = str(machine.bin / "prefix")
    assert machine.why_not()[1] == (
        f"npm install -g --prefix ~/.local --globalconfig {said} "
        "@anthropic-ai/sandbox-runtime@0.0.83"
    )


def test_a_program_that_may_not_be_run_is_named_with_its_path(machine: Machine) -> None:
    machine.only()
    (machine.bin / "srt").chmod(0o644)
    path = str(machine.bin / "srt")
    assert machine.why_not() == (f"{path} is not executable", f"chmod +x {path}")
    assert machine.count() == 0, "nothing was tried"


@pytest.mark.parametrize(
    "script",
    ["exit 0", "echo confined; exit 3", "echo confined >&2", "echo not confined", "kill -9 $$"],
)
def test_whatever_else_it_does_shows_none(machine: Machine, script: str) -> None:
    machine.install("srt", script)
    why, _ = machine.why_not()
    assert why


def test_a_program_that_dies_is_said_with_its_status(machine: Machine) -> None:
    machine.install("srt", "kill -9 $$")
    assert machine.why_not()[0] == "it ended with status -9"


@pytest.mark.requirement("C-14")
@pytest.mark.parametrize(
    "said",
    [
        pytest.param("bwrap: setting up uid map: Permission denied", id="AppArmor of Ubuntu"),
        pytest.param("bwrap: No permissions to create a new namespace", id="unprivileged"),
        pytest.param("bwrap: Creating new namespace failed: No space left on device", id="none"),
    ],
)
def test_where_the_kernel_forbids_namespaces_the_settings_that_do_are_named(
    machine: Machine, said: str
) -> None:
    machine.install("srt", f"echo '{said}' >&2; exit 1")
    why, remedy = machine.why_not()
    assert why == said
    assert "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" in remedy
    assert "user/max_user_namespaces" in remedy


@pytest.mark.parametrize(
    "said",
    [
        "Failed to create bridge sockets after 5 attempts",
        "Sandbox dependencies not available: ripgrep (rg) not found",
    ],
)
def test_one_that_was_too_busy_is_tried_once_more(machine: Machine, said: str) -> None:
    busy = f"echo 'Error: {said}' >&2; exit 1"
    machine.install("srt", f'[ "$(wc -l <{machine.runs})" = 1 ] && {{ {busy}; }}\n{CONFINED}')
    assert isinstance(probe(machine.environ), Available)
    assert machine.count() == 2
    machine.install("srt", busy)
    assert said in machine.why_not()[0]
    assert machine.count() == 4


def test_one_that_hangs_is_ended_with_all_that_it_has_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 0.5)
    child = tmp_path / "child"
    machine.install("srt", f"setsid sleep 600 </dev/null >/dev/null 2>&1 &\necho $! >{child}\nwait")
    assert machine.why_not()[0] == "it did not start within 0.5 s"
    assert Watch({int(child.read_text())}).survivors() == set()


# --- remembered


@pytest.mark.requirement("C-14")
def test_what_was_found_is_known_again(machine: Machine, tmp_path: Path) -> None:
    cache = tmp_path / "state" / "sandbox.json"
    assert recall(cache, machine.environ) is None
    found = probe(machine.environ)
    assert isinstance(found, Available)
    remember(cache, machine.environ, found)
    assert recall(cache, machine.environ) == found
    assert machine.count() == 1
    written = cache.stat().st_mtime_ns
    remember(cache, machine.environ, found)
    assert cache.stat().st_mtime_ns == written
    assert [one.name for one in cache.parent.iterdir()] == ["sandbox.json"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_program_of_that_name_is_tried_again(
    machine: Machine, tmp_path: Path, name: str
) -> None:
    cache = tmp_path / "sandbox.json"
    remember(cache, machine.environ, Available(("srt",)))
    assert recall(cache, machine.environ) is not None
    machine.install(name, "exit 0 # another")
    assert recall(cache, machine.environ) is None


def test_a_program_that_is_gone_is_missed(machine: Machine, tmp_path: Path) -> None:
    cache = tmp_path / "sandbox.json"
    machine.only()
    remember(cache, machine.environ, Available(("srt",)))
    (machine.bin / "socat").unlink()
    assert recall(cache, machine.environ) is None
    remember(cache, machine.environ, Available(("srt",)))
    assert recall(cache, machine.environ) is None


def test_another_boot_is_another_machine(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, boot = tmp_path / "sandbox.json", tmp_path / "boot"
    boot.write_text("one")
    monkeypatch.setattr(probing, "_BOOT", boot)
    remember(cache, machine.environ, Available(("srt",)))
    assert recall(cache, machine.environ) is not None
    boot.write_text("two")
    assert recall(cache, machine.environ) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"machine": null}', b"\xff"])
def test_a_file_that_is_none_of_ours_says_nothing(
    machine: Machine, tmp_path: Path, content: bytes
) -> None:
    cache = tmp_path / "sandbox.json"
    cache.write_bytes(content)
    assert recall(cache, machine.environ) is None


def test_what_cannot_be_written_is_no_error(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "sandbox.json"
    remember(cache, machine.environ, Available(("srt",)))
    assert recall(cache, machine.environ) is None
