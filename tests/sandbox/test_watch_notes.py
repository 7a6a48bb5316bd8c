"""What servers left that could not be looked at, because their proxy was killed.

A killed proxy is one whose lock on its note the kernel has taken back.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import pytest

from ironcurtain_proxy.sandbox import watchman
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from ironcurtain_proxy.sandbox.shell_setup import Views
from ironcurtain_proxy.sandbox.watchman import NAME, Watchman, looked_after
from tests.tables import table

EVIL = "[core]\n\tfsmonitor = ./evil\n"
HOOK = "#!/bin/sh\nevil\n"


@dataclass
class Machine:
    """A workspace, the proxy's own directory, and starts of the proxy."""

    top: Path
    state: Path
    said: pytest.LogCaptureFixture
    living: list[Watchman] = field(default_factory=list)

    def start(self, *roots: Path) -> Watchman:
        """Start a proxy whose server may write in the workspace, or in other directories."""
        self.said.clear()
        profile = SandboxProfile(allow_write=tuple(map(str, roots or (self.top,))))
        found, _ = looked_after({"shell": Confinement(("true",), profile)}, self.state)
        assert found is not None
        self.living.append(found)
        return found

    def kill(self, proxy: Watchman) -> None:
        """End a proxy as SIGKILL does: the kernel closes what it had open."""
        assert proxy.note is not None
        os.close(proxy.note._file)
        proxy.note = None
        proxy.lookout.close()
        self.living.remove(proxy)

    def put(self, name: str, text: str = "x") -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def repository(self, name: str = ".git") -> None:
        self.put(f"{name}/HEAD", "ref: refs/heads/x\n")
        self.put(f"{name}/config", "[core]\n\tbare = false\n")
        self.put(f"{name}/hooks/x.sample")
        for directory in ("objects", "refs"):
            (self.top / name / directory).mkdir()

    def notes(self) -> list[str]:
        directory = self.state / NAME
        return [one.name for one in directory.iterdir()] if directory.exists() else []


@pytest.fixture
def m(tmp_path: Path, caplog: pytest.LogCaptureFixture, empty_home: Path) -> Iterator[Machine]:
    place = tmp_path.resolve()
    machine = Machine(place / "w", place / "state", caplog)
    machine.top.mkdir()
    machine.repository()
    yield machine
    for one in machine.living:
        one.end()


LEFT = table("sandbox/watch_notes.left", dict[str, tuple[str, str]])


@pytest.mark.parametrize("what", LEFT)
def test_what_a_killed_proxy_could_not_look_at_is_taken_away_at_the_next_start(
    m: Machine, what: str
) -> None:
    name, text = LEFT[what]
    proxy = m.start()
    if "module" in name:
        m.put(".git/modules/m/HEAD")
    m.kill(proxy)
    path = m.put(name, text)
    m.start()
    assert not path.exists()
    assert "was killed" in m.said.text
    assert name.partition("/")[0] in m.said.text
    assert any(text.encode() in one.read_bytes() for one in _kept(m))


def _kept(m: Machine) -> list[Path]:
    return [one for one in (m.state / "put-back").rglob("*") if one.is_file()]


def test_a_changed_file_that_no_sandbox_had_closed_is_put_back(m: Machine) -> None:
    """One with two names cannot be closed: it could be written under the other."""
    config = m.top / ".git/config"
    os.link(config, m.top / "other")
    before = config.read_bytes()
    proxy = m.start()
    m.kill(proxy)
    (m.top / "other").write_text(EVIL)
    m.start()
    assert config.read_bytes() == before


@pytest.mark.parametrize("name", ["json.py", "requests/__init__.py", "tools/check", "lib/x.sh"])
def test_what_settings_led_to_before_the_kill_is_not_the_users_because_it_is_there(
    m: Machine, name: str
) -> None:
    m.put(".claude/settings.json", '{"command": "[ -x tools/check ] && python3 -c 1"}')
    m.put(".mcp.json", '{"args": ["-m", "requests"], "command": "python3"}')
    m.put(".envrc", "cd lib; . ./x.sh")
    m.put("lib/x.sh", "mine")
    proxy = m.start()
    (m.top / name).unlink(missing_ok=True)
    file = m.put(name, "evil")
    m.kill(proxy)
    m.start()
    assert not file.exists() or file.read_text() == "mine"


def test_it_is_said_once(m: Machine) -> None:
    m.kill(m.start())
    m.put(".mcp.json")
    m.start().end()
    assert "was killed" in m.said.text
    m.start()
    assert "was killed" not in m.said.text


def test_a_proxy_that_ends_leaves_no_note(m: Machine) -> None:
    proxy = m.start()
    assert len(m.notes()) == 1
    proxy.end()
    assert m.notes() == []
    hook = m.put("a/.git/hooks/post-commit", HOOK)
    m.put("a/.git/HEAD")
    m.start()
    assert hook.exists()


def test_a_proxy_that_could_not_look_in_the_end_is_made_up_for_by_the_next_start(
    m: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = m.start()
    hook = m.put("a/.git/hooks/post-commit", HOOK)
    m.put("a/.git/HEAD")
    with monkeypatch.context() as broken:
        broken.setattr(ControlLookout, "look", Mock(side_effect=OSError("no descriptors")))
        proxy.end()
    m.kill(proxy)
    m.start()
    assert not hook.exists()


def test_a_killed_proxy_whose_servers_left_nothing_is_not_mentioned(m: Machine) -> None:
    m.put(".claude/settings.json", "{}")
    m.put(".git/hooks/pre-commit", HOOK)
    m.kill(m.start())
    m.put("src/new.py")
    m.put(".git/refs/heads/x")
    m.start()
    assert m.said.text == ""
    assert len(m.notes()) == 1
    assert (m.top / ".git/hooks/pre-commit").read_text() == HOOK


def test_what_can_make_nothing_run_stays(m: Machine) -> None:
    m.kill(m.start())
    m.repository("clone/.git")
    m.put(".git/config", '[core]\n\tbare = false\n[remote "o"]\n\turl = https://example.org/x\n')
    m.start()
    assert (m.top / "clone/.git/HEAD").exists()
    assert "example.org" in (m.top / ".git/config").read_text()


def test_what_is_changed_in_a_closed_directory_is_the_users(m: Machine) -> None:
    """No server could write in it."""
    m.kill(m.start())
    hook = m.put(".git/hooks/pre-commit", HOOK)
    m.start()
    assert hook.read_text() == HOOK
    assert m.said.text == ""


def test_what_changes_after_the_proxy_can_have_lived_is_the_users(
    m: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchman, "_LONGEST_SILENCE", 0.0)
    proxy = m.start()
    assert proxy.note is not None
    note = Path(proxy.note.path)
    m.kill(proxy)
    earlier = note.stat().st_mtime - 1000
    # As if it had been killed long ago.
    os.utime(note, (earlier, earlier))
    settings = m.put(".claude/settings.json", "{}")
    m.start()
    assert settings.exists()
    assert m.said.text == ""


def test_a_sign_of_life_makes_the_time_longer(m: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchman, "_LONGEST_SILENCE", 0.0)
    proxy = m.start()
    settings = m.put(".claude/settings.json", "{}")
    assert proxy.note is not None
    while Path(proxy.note.path).stat().st_mtime <= settings.stat().st_ctime:
        proxy.note.beat()
    m.kill(proxy)
    m.start()
    assert not settings.exists()


def test_the_time_of_change_cannot_be_set_by_a_server(m: Machine) -> None:
    m.kill(m.start())
    settings = m.put(".claude/settings.json", "{}")
    os.utime(settings, (1, 1))
    later = m.put(".mcp.json", "{}")
    os.utime(later, (1 << 33, 1 << 33))
    m.start()
    assert not settings.exists()
    assert not later.exists()


def test_what_was_there_before_the_session_stays_though_it_was_not_noted(
    m: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch of the killed proxy may have seen less than this one does."""
    monkeypatch.setattr(watchman, "_COARSE", 0.0)
    other = m.top.parent / "other"
    other.mkdir()
    settings = m.put("../other/.claude/settings.json", "{}")
    probe = m.top.parent / "probe"
    probe.touch()
    while probe.stat().st_mtime <= settings.stat().st_ctime:
        probe.touch()
    m.kill(m.start())
    (other / ".claude").rename(m.top / ".claude")
    m.start()
    assert (m.top / ".claude/settings.json").exists()


@pytest.mark.parametrize("text", [b"", b"\xc1", b"{}", b"\x93", b"\0" * 1000])
def test_a_torn_note_is_said_and_removed(m: Machine, text: bytes) -> None:
    proxy = m.start()
    assert proxy.note is not None
    note = Path(proxy.note.path)
    m.kill(proxy)
    note.write_bytes(text)
    m.start()
    assert "cannot be read" in m.said.text
    assert not note.exists()
    assert len(m.notes()) == 1


@pytest.mark.parametrize("text", [b"files", b"roots"])
def test_a_note_with_a_text_that_is_not_utf8_is_said_and_removed(m: Machine, text: bytes) -> None:
    proxy = m.start()
    assert proxy.note is not None
    note = Path(proxy.note.path)
    m.kill(proxy)
    note.write_bytes(note.read_bytes().replace(text, b"\xff" * len(text)))
    m.start()
    assert "cannot be read" in m.said.text
    assert not note.exists()


def test_a_note_cut_anywhere_stops_no_start(m: Machine) -> None:
    proxy = m.start()
    assert proxy.note is not None
    note = Path(proxy.note.path)
    whole = note.read_bytes()
    m.kill(proxy)
    for length in range(0, len(whole), max(1, len(whole) // 40)):
        note.write_bytes(whole[:length])
        m.start().end()
        assert "cannot be read" in m.said.text


def test_the_note_of_a_living_proxy_is_left_alone(m: Machine) -> None:
    first = m.start()
    second = m.start()
    assert len(m.notes()) == 2
    m.kill(second)
    settings = m.put(".mcp.json", "{}")
    m.start()
    assert not settings.exists()
    assert first.note is not None
    assert Path(first.note.path).exists()


def test_two_killed_proxies_of_one_workspace_are_both_looked_after(m: Machine) -> None:
    first, second = m.start(), m.start()
    m.kill(first)
    one = m.put("a/.claude/settings.json", "{}")
    m.kill(second)
    two = m.put("b/.claude/settings.json", "{}")
    m.start()
    assert not one.exists()
    assert not two.exists()
    assert len(m.notes()) == 1


def test_a_start_in_another_workspace_leaves_the_note(m: Machine) -> None:
    other = m.top.parent / "other"
    other.mkdir()
    m.kill(m.start())
    settings = m.put(".mcp.json", "{}")
    m.start(other)
    assert settings.exists()
    m.start()
    assert not settings.exists()


@pytest.mark.parametrize("where", ["..", "a"])
def test_a_start_in_a_directory_around_or_below_looks_as_well(m: Machine, where: str) -> None:
    (m.top / "a").mkdir()
    m.kill(m.start())
    settings = m.put("a/.mcp.json", "{}")
    m.start((m.top / where).resolve())
    assert not settings.exists()


def test_a_workspace_that_has_gone_is_waited_for(m: Machine) -> None:
    m.kill(m.start())
    m.put(".mcp.json", "{}")
    away = m.top.parent / "away"
    m.top.rename(away)
    m.top.mkdir()
    m.top.rmdir()
    other = m.top.parent / "other"
    other.mkdir()
    m.start(other).end()
    away.rename(m.top)
    m.start()
    assert not (m.top / ".mcp.json").exists()


def test_a_workspace_that_became_a_link_is_not_followed(m: Machine) -> None:
    m.kill(m.start())
    away = m.top.parent / "away"
    m.top.rename(away)
    (away / ".mcp.json").write_text("{}")
    m.top.symlink_to(away)
    m.start(away)
    assert (away / ".mcp.json").exists()


def test_a_deleted_place_is_no_finding(m: Machine) -> None:
    m.put("a/.claude/settings.json", "{}")
    m.kill(m.start())
    (m.top / "a/.claude/settings.json").unlink()
    (m.top / "a/.claude").rmdir()
    m.start()
    assert m.said.text == ""


def test_what_is_written_while_the_next_start_looks_is_found(
    m: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the killed proxy's sandbox may live a moment longer."""
    m.kill(m.start())
    m.put(".mcp.json", "{}")
    late = watchman._late
    times = iter(range(100))

    def meanwhile(*arguments: object) -> object:
        found = late(*arguments)  # type: ignore[arg-type]
        if next(times) == 0:
            m.put("b/.mcp.json", "{}")
        return found

    monkeypatch.setattr(watchman, "_late", meanwhile)
    m.start()
    assert not (m.top / "b/.mcp.json").exists()


def test_notes_of_workspaces_where_nobody_starts_again_do_not_grow(
    m: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchman, "_MOST", 3)
    for number in range(6):
        other = m.top.parent / f"other{number}"
        other.mkdir()
        m.kill(m.start(other))
    m.start()
    assert len(m.notes()) <= 4 + 1


def test_a_state_directory_that_cannot_be_written_stops_no_start(
    m: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchman, "_LARGEST", 10)
    proxy = m.start()
    assert proxy.note is None
    assert "if this proxy is killed" in m.said.text
    proxy.end()


def test_names_in_any_bytes_are_noted(m: Machine) -> None:
    odd = os.fsdecode(b"\xff\xfe")
    m.put(f"{odd}/.claude/settings.json", "{}")
    m.kill(m.start())
    new = m.put(f"{odd}/.mcp.json", "{}")
    m.start()
    assert not new.exists()
    assert (m.top / odd / ".claude/settings.json").exists()


def test_what_a_command_in_a_view_changes_is_judged_later_and_not_closed_before(m: Machine) -> None:
    closed = m.put(".envrc")
    profile = SandboxProfile(allow_write=(str(m.top),))
    views = Views(directory=str(m.state), workspace=str(m.top))
    both = {
        "files": Confinement(("true",), profile),
        "shell": Confinement(("true",), profile, views=views),
    }
    found, confined = looked_after(both, m.state)
    assert found is not None
    m.living.append(found)
    assert str(closed) in confined["files"].profile.deny_write
    assert confined["shell"] == both["shell"]
