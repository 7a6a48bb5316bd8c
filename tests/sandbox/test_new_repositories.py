"""A repository that a server makes around files of the user takes none of them away."""

import subprocess
import time

import pytest

from tests.sandbox.test_lookout import Watched, repository


@pytest.mark.parametrize("looks", ["at the end", "meanwhile"])
def test_a_new_repository_goes_and_not_what_the_users_settings_would_run_in_it(
    w: Watched, monkeypatch: pytest.MonkeyPatch, looks: str
) -> None:
    monkeypatch.setenv("HOME", str(w.elsewhere))
    (w.elsewhere / ".gitconfig").write_text("[core]\n\thooksPath = hooks\n")
    mine = w.put("proj/hooks/useTimer.ts")
    w.put("other/hooks/b.ts")
    time.sleep(0.02)
    w.begin()
    for name in ("proj", "apart"):
        subprocess.run(["git", "init", "-q", str(w.top / name)], check=True)
        if looks == "meanwhile":
            w.lookout.look_for_later()
    assert [one.partition(" ")[0] for one in w.look()] == [str(w.top / "proj/.git")]
    assert mine.exists()
    assert (w.top / "apart/.git/config").exists()
    # What a server writes there is not the user's.
    w.put("other/hooks/c.ts")
    (w.top / "other/hooks/b.ts").write_text("changed")
    subprocess.run(["git", "init", "-q", str(w.top / "other")], check=True)
    assert w.look()
    assert not (w.top / "other/.git/config").exists() or not (w.top / "other/hooks/c.ts").exists()


@pytest.mark.parametrize("beside", [(), (".npmrc",), (".nvmrc", ".envrc", "x/.npmrc")])
@pytest.mark.parametrize("looks", ["at the end", "meanwhile"])
@pytest.mark.parametrize("top", ["", "x/"])
@pytest.mark.parametrize("head", ["HEAD", "head"])
def test_no_file_of_the_users_is_taken_away_because_its_directory_becomes_a_repository(
    w: Watched, head: str, top: str, looks: str, beside: tuple[str, ...]
) -> None:
    names = ["README", "hooks/useTimer.ts", "config", "sequencer/a", "x/a.py", "x/deep/b", *beside]
    for name in names:
        w.put(name, f"the user's {name}")
    w.begin()
    for directory in ("objects", "refs"):
        (w.top / top / directory).mkdir()
    w.put(f"{top}{head}", "ref: refs/heads/x\n")
    for _ in range(3 * (looks == "meanwhile")):
        w.lookout.look_for_later()
    assert [one.partition(" ")[0] for one in w.look()] == [str(w.top / top / head)]
    for name in names:
        assert (w.top / name).read_text() == f"the user's {name}", name
    # What the user saves later stays, too.
    w.put("x/later")
    assert w.look() == []


def test_no_directory_is_made_where_a_link_leads_that_took_the_place_of_a_repository(
    w: Watched,
) -> None:
    repository(w)
    w.put(".git/hooks/pre-commit")
    w.begin()
    (w.top / ".git").rename(w.top / "away")
    (w.top / ".git").symlink_to(w.elsewhere)
    assert w.look()
    assert list(w.elsewhere.iterdir()) == []
