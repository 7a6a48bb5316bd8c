"""What the user's settings outside of a workspace lead to is closed, and taken away if it comes."""

import os
import shutil

import pytest

from ironcurtain_proxy.control_places import outside
from tests.sandbox.test_lookout import EVIL, Watched
from tests.tables import table


@pytest.mark.parametrize(
    ("there", "text", "path"), table("sandbox/leads.outside", list[tuple[str, str, str]])
)
def test_a_file_that_the_users_own_shell_or_settings_outside_lead_to_is_taken_away(
    w: Watched, monkeypatch: pytest.MonkeyPatch, there: str, text: str, path: str
) -> None:
    text = text.replace("{w}", str(w.top))
    file = w.top.parent / "home" / there
    file.parent.mkdir(parents=True, exist_ok=True)
    if there.isupper():
        monkeypatch.setenv(there, text)
    elif text.startswith("-> "):
        file.symlink_to(text.removeprefix("-> "))
    else:
        file.write_text(text)
    w.begin()
    w.put("tools/tool", "data")
    evil = w.put(path)
    assert (len(w.look()), evil.exists()) == (1, False)
    assert (w.top / "tools/tool").exists()


@pytest.mark.parametrize(
    ("there", "text", "path"),
    table("sandbox/leads.outside_only_spoken_of", list[tuple[str, str, str]]),
)
def test_files_that_settings_outside_only_speak_of_stay_data(
    w: Watched, there: str, text: str, path: str
) -> None:
    w.put("../home/.bash_aliases", "alias x=y\n")
    w.put("../home/rc.d/a.sh", "for f in ~/rc.d/*; do . $f; done\n")
    w.put("s/data")
    w.put(f"../home/{there}", text.replace("{w}", str(w.top)))
    w.begin()
    w.put(path)
    assert w.look() == []
    w.put(path, "y")
    assert w.look() == []


def test_a_directory_in_the_place_of_a_file_that_settings_outside_name_is_data(w: Watched) -> None:
    w.put("../home/.zshrc", f"export OUT={w.top}/out\n")
    w.begin()
    w.put("out/x.sh")
    assert w.look() == []
    shutil.rmtree(w.top / "out")
    (w.top / "out").symlink_to("elsewhere")
    assert (len(w.look()), os.path.lexists(w.top / "out")) == (1, False)
    w.put("out", EVIL)
    assert (len(w.look()), os.path.lexists(w.top / "out")) == (1, False)


def test_a_program_that_settings_outside_name_by_its_whole_path_is_closed(w: Watched) -> None:
    data, program = w.put("t/data", "x"), w.put("t/run", "mine")
    program.chmod(0o755)
    w.put("../home/.config/own/own.ini", f"a = {program}\nb = {data}\n")
    closed = w.begin()
    assert str(program) in closed
    assert str(data) not in closed


def test_what_a_service_takes_its_variables_from_is_closed(w: Watched) -> None:
    said = w.put("t/service.conf", "A=1")
    w.put("../home/.config/systemd/user/a.service", f"EnvironmentFile=-{said}\n")
    assert str(said) in w.begin()


def test_settings_of_more_than_a_mebibyte_are_read_where_they_name_the_workspace(
    w: Watched,
) -> None:
    w.put("../home/.config/own/own.toml", "# x\n" * 300_000 + f'command = "{w.top}/t/x"\n')
    w.begin()
    evil = w.put("t/x")
    assert (len(w.look()), evil.exists()) == (1, False)


def test_a_home_that_is_reached_by_a_link_is_the_home(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    (w.top.parent.parent / "link").symlink_to(w.top.parent)
    monkeypatch.setenv("HOME", str(w.top.parent.parent / "link/home"))
    w.put("../home/.zshrc", ". ~/../w/env\n")
    w.put("../home/.tmux.conf", f"source-file {w.top.parent.parent}/link/{w.top.name}/t/x\n")
    w.begin()
    for name in ("env", "t/x"):
        w.put(name)
        assert (len(w.look()), (w.top / name).exists()) == (1, False)


@pytest.mark.parametrize(
    ("files", "path"), table("sandbox/leads.outside_together", list[tuple[dict[str, str], str]])
)
def test_what_several_settings_outside_lead_to_together_is_taken_away(
    w: Watched, files: dict[str, str], path: str
) -> None:
    for there, text in files.items():
        file = w.top.parent / "home" / there
        file.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            file.symlink_to(text.removeprefix("-> "))
        else:
            file.write_text(text.replace("{w}", str(w.top)))
            file.chmod(0o755)
    w.begin()
    assert (w.put(path).exists(), len(w.look())) == (True, 1)
    assert not (w.top / path).exists()


def test_a_program_of_the_project_that_the_user_starts_by_hand_is_built_anew(w: Watched) -> None:
    program = w.top.parent / "home/.local/bin/own"
    program.parent.mkdir(parents=True)
    program.symlink_to(w.put("target/debug/own", "old"))
    w.put("../home/.bashrc", "alias o=own\n")
    assert str(w.top / "target/debug/own") not in w.begin()
    w.put("target/debug/own", "new")
    assert w.look() == []


def test_the_users_crontab_is_read(w: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    program = w.put("t/backup", "mine")
    lists = w.top.parent / "crontab"
    lists.write_text(f"#!/bin/sh\necho '@hourly cd {w.top}/t && ./backup'\n")
    lists.chmod(0o755)
    monkeypatch.setattr(outside, "_LISTS_CRONTAB", str(lists))
    outside._crontab.cache_clear()
    assert str(program) in w.begin()
    outside._crontab.cache_clear()


def test_what_lies_in_the_home_of_a_tool_outside_is_no_script(w: Watched) -> None:
    w.put("../home/.bashrc", 'export PYENV_ROOT="$HOME/.pyenv"\n')
    w.put("../home/.pyenv/.gitignore", "/src/*\n/src/Makefile\n")
    w.begin()
    w.put("src/x.py")
    assert w.look() == []
