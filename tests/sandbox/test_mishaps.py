"""What is put back once or twice is a mishap; what comes often, or cannot go, ends containment.

The server's part is played by this process.
"""

import errno
import os
from collections.abc import Callable

import pytest

from ironcurtain_proxy.control_places.git_files import is_harmless
from ironcurtain_proxy.sandbox import lookout
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles
from ironcurtain_proxy.sandbox.watchman import Watchman
from tests.sandbox.test_lookout import Watched, repository


def ends(w: Watched) -> list[str]:
    """Of one look at the end of a call."""
    return [one.ends for one in w.lookout.look() if one.ends]


def test_ten_calls_may_leave_what_acts_and_not_eleven(w: Watched) -> None:
    w.begin()
    for number in range(10):
        w.put(f"{number}/.mcp.json")
        w.put(f"{number}/.envrc")
        assert ends(w) == []
    w.put("more/.envrc")
    assert ends(w) == ["writers"]
    # A person has looked, and resumed containment.
    w.put("later/.envrc")
    assert ends(w) == []


def test_what_comes_a_fourth_time_while_one_call_runs_ends_it_at_once(w: Watched) -> None:
    w.begin()
    for _ in range(3):
        w.put("a/.envrc")
        assert not any(one.ends for one in w.lookout.look_for_later())
    w.put("b/.mcp.json")
    assert [one.ends for one in w.lookout.look_for_later() if one.ends] == ["writers"]
    # The answer of the call reports it again.
    assert ends(w) == ["writers"]


def test_a_second_call_that_comes_and_goes_does_not_begin_the_count_anew(w: Watched) -> None:
    w.begin()
    for _ in range(3):
        w.put("a/.envrc")
        assert not any(one.ends for one in w.lookout.look_for_later())
        assert not any(one.ends for one in w.lookout.look(is_last=False))
    w.put("a/.envrc")
    assert [one.ends for one in w.lookout.look(is_last=False) if one.ends] == ["writers"]


def test_three_times_in_each_of_several_calls_are_mishaps(w: Watched) -> None:
    w.begin()
    for _ in range(3):
        for _ in range(3):
            w.put("a/.envrc")
            assert not any(one.ends for one in w.lookout.look_for_later())
        assert ends(w) == []


def test_names_that_nobody_knows_end_nothing(w: Watched) -> None:
    w.begin()
    for number in range(20):
        w.put(f".unknown-{number}/x")
        assert ends(w) == []
        assert not (w.top / f".unknown-{number}").exists()


def test_the_looks_of_an_editor_are_nobodys_business(w: Watched) -> None:
    w.begin()
    settings = w.put(".vscode/settings.json", '{"editor.tabSize": 2, "files.eol": "\\n"}')
    assert w.look() == []
    assert settings.exists()
    settings.write_text('{"editor.tabSize": 4, "git.path": "./evil"}')
    assert w.look() != []
    assert settings.read_text() == '{"editor.tabSize": 2, "files.eol": "\\n"}'
    tasks = w.put(".vscode/tasks.json", '{"editor.tabSize": 2}')
    assert w.look() != []
    assert not tasks.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.put("lib/.envrc"), "could not be taken away"),
        (lambda w: (w.top / "lib/.git/config").unlink(), "could not be put back"),
    ],
)
def test_what_a_full_disk_or_a_closed_directory_keeps_from_being_put_back_ends_it_for_all(
    w: Watched, monkeypatch: pytest.MonkeyPatch, change: Callable[[Watched], object], said: str
) -> None:
    repository(w, "lib/.git")
    w.put("lib/.git/config", "[core]\n\tbare = false\n")
    w.begin()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    change(w)
    monkeypatch.setattr(os, "rename", refuse)
    found = w.lookout.look()
    assert [one.ends for one in found] == ["all"]
    assert said in found[0].said
    assert "no space left" in found[0].said
    assert w.lookout.unseen != ""


def test_a_look_that_is_raced_ends_it(w: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    w.begin()
    envrc = w.put("a/.envrc")
    take = w.lookout.keeper.take

    def taken_and_made_again(path: str, beside: str = "") -> str:
        kept = take(path, beside)
        envrc.write_text("again")
        return kept

    monkeypatch.setattr(
        type(w.lookout.keeper), "take", lambda _, *given: taken_and_made_again(*given)
    )
    assert "all" in ends(w)


@pytest.mark.parametrize(("by_person", "stays"), [(True, True), (False, False)])
def test_a_version_that_is_a_path_stays_where_a_person_has_allowed_it(
    w: Watched, by_person: bool, stays: bool
) -> None:
    w.begin()
    path = str(w.top / ".python-version")
    with Watchman(w.lookout).allowing([path], by_person=by_person):
        version = w.put(".python-version", "path:/tmp/evil\n")
        w.look()
    assert version.exists() == stays


def test_what_went_and_cannot_come_back_is_said_so(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(w, "lib/.git")
    w.put("lib/.git/config", "[core]\n\tbare = false\n")
    w.lookout = ControlLookout((str(w.top),), RemovedFiles(w.state))
    w.lookout.begin()
    config = w.put("lib/.git/config", "[core]\n\tfsmonitor = ./evil\n")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lookout, "restore", refuse)
    found = w.lookout.look()
    assert [one.ends for one in found] == ["all"]
    assert "could not be put back: no space left" in found[0].said
    assert not config.exists()


@pytest.mark.parametrize("setting", ["[pull]\n\trebase = true\n", "[core]\n\tautocrlf = input\n"])
def test_how_the_users_own_repository_joins_branches_and_writes_text_stays_as_it_is(
    setting: str,
) -> None:
    assert is_harmless(None, setting.encode())
    assert not is_harmless(b"[user]\n\tname = me\n", setting.encode())
    assert not is_harmless(None, setting.replace("= ", "= !").encode())
