"""Files that a command moved, and directories that the user moved meanwhile, are not lost."""

import os

import pytest

from ironcurtain_proxy.transactions import files
from tests.transactions.bench import Workbench, said


@pytest.mark.parametrize("meanwhile", ["nothing", "busy", "removed"])
def test_a_renamed_file_comes_in_and_one_that_the_user_removed_does_not(
    each: Workbench, meanwhile: str
) -> None:
    w = each
    for name in ("a", "d/b", "c", "gone", "e/f"):
        w.write(name, name)

    def by_the_user() -> None:
        if meanwhile != "nothing":
            w.write("busy")
            w.write("d/busy")
        if meanwhile == "removed":
            (w.ws / "gone").unlink()

    script = "mv a A; mv d/b B; mv c d/c; echo again > a; echo more >> gone; mv e/f F; rmdir e"
    found = w.run(script, meanwhile=by_the_user)
    assert said(found.conflicts) == (["gone"] if meanwhile == "removed" else [])
    moved = [(w.ws / one).read_text() for one in ("A", "B", "d/c", "F")]
    assert moved == ["a", "d/b", "c", "e/f"]
    assert (w.ws / "a").read_text() == "again\n"
    assert ((w.ws / "c").exists(), (w.ws / "d/b").exists()) == (False, False)
    assert (w.ws / "gone").exists() == (meanwhile != "removed")


@pytest.mark.parametrize(
    "script",
    [
        "mv f g",
        "mv f g; mv h f",
        "mv f g; echo more >> g",
        "mv f g; echo more >> g; cat g; touch g",
        "mv f g; mv h new; echo more >> g; cat g",
    ],
)
def test_an_ordinary_user_whom_the_kernel_names_no_file_keeps_a_moved_one_too(
    w: Workbench, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(files, "handle_in", lambda _origin: b"")
    for name in ("f", "g", "h"):
        w.write(name, f"content of {name}")
    view = w.view(script)
    w.write("g", "of the user")
    w.bring_in(view)
    found = {one.read_text() for one in w.ws.iterdir() if one.is_file()}
    assert found >= {"of the user", "content of f", "content of h"}


@pytest.mark.parametrize(
    "script",
    [
        "mv f a; rm h",
        "echo more >> .envrc; rm h",
        "mv f a; mv h b",
        "echo >> .envrc; echo > f; rm h",
    ],
)
def test_what_an_ordinary_user_edits_elsewhere_keeps_no_other_file(
    w: Workbench, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(files, "handle_in", lambda _origin: b"")
    for name in (".envrc", "f", "g", "h"):
        w.write(name, f"content of {name}")
    view = w.view(f"echo more >> g; {script}")
    w.write("g", "of the user")
    assert said(w.bring_in(view)) == ["g"]
    assert not (w.ws / "h").exists()


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_ordinary_user_s_other_directory_of_the_same_name_is_left_alone(
    w: Workbench, monkeypatch: pytest.MonkeyPatch, *, is_busy: bool
) -> None:
    monkeypatch.setattr(files, "handle_in", lambda _origin: b"")
    w.write("d/f")
    w.write("other/f", "precious")
    os.utime(w.ws / "other", (5, 5))
    view = w.view("echo call > d/f")
    (w.ws / "d").rename(w.ws / "saved")
    (w.ws / "other").rename(w.ws / "d")
    if is_busy:
        w.write("d/busy")
    assert said(w.bring_in(view)) == ["d/f"]
    assert (w.ws / "d/f").read_text() == "precious"


def test_what_the_user_adds_to_a_directory_does_not_make_it_another_one(
    w: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "handle_in", lambda _origin: b"")
    w.write("d/f")
    view = w.view("echo call > d/f")
    for name in ("busy", "d/busy"):
        w.write(name)
    assert w.bring_in(view) == []
    assert (w.ws / "d/f").read_text() == "call\n"


@pytest.mark.parametrize(
    ("script", "conflicts"),
    [
        ("echo call > d/f", ["d/f"]),
        ("rm d/f; echo call > d/new", ["d/f"]),
        ("rm -r d/deep; echo call > d/f", ["d/deep", "d/f"]),
        ("echo call > d/deep/f", ["d/deep/f"]),
        ("rm -r d", ["d"]),
    ],
)
@pytest.mark.parametrize("when", ["meanwhile", "last"])
def test_another_directory_that_the_user_gave_the_name_stays_as_it_is(
    each: Workbench, script: str, conflicts: list[str], when: str
) -> None:
    w = each
    for name in ("d/f", "d/deep/f"):
        w.write(name)
        w.write(f"other/{name[2:]}", "precious")

    def exchange() -> None:
        (w.ws / "d").rename(w.ws / "saved")
        (w.ws / "other").rename(w.ws / "d")

    found = w.run(
        script,
        meanwhile=exchange if when == "meanwhile" else None,
        last=exchange if when == "last" else None,
    )
    assert sorted(said([*found.conflicts, *w.late])) == conflicts
    assert [(w.ws / one).read_text() for one in ("d/f", "d/deep/f")] == ["precious"] * 2
    assert [(w.ws / one).read_text() for one in ("saved/f", "saved/deep/f")] == ["old"] * 2


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("mv f g", "g"),
        ("mv f g; echo more >> g", "g"),
        ("mv f x; mv g f; mv x g", "g"),
        ("mv f x; mv h f; mv g h; mv x g", "h"),
        ("mv f new", "new"),
        ("mkdir n; mv f n/f", "n/f"),
        ("mkdir n; mv f n/f", "n"),
    ],
)
@pytest.mark.parametrize("when", ["meanwhile", "last"])
def test_a_file_whose_new_place_is_the_users_by_now_stays_where_it_was(
    each: Workbench, script: str, path: str, when: str
) -> None:
    w = each
    for name in ("f", "g", "h"):
        w.write(name, f"the content of {name}")

    def by_the_user() -> None:
        w.write(path, "of the user")

    w.run(
        script,
        meanwhile=by_the_user if when == "meanwhile" else None,
        last=by_the_user if when == "last" else None,
    )
    left = {file.read_text() for file in w.ws.rglob("*") if file.is_file()}
    whole = {f"the content of {one}" for one in {"f", "g", "h"} - {path}}
    assert left >= {"of the user", *whole}
    assert (w.ws / path).read_text() == "of the user"


@pytest.mark.parametrize(
    "script",
    [
        *("mv d/f .envrc", "mv d/f x; chmod 4755 x", "mv d .unknown", "mv d/deep .vscode"),
        *("mkdir .unknown; mv d/f .unknown/f", "mv d/deep/f .envrc; rmdir d/deep", "mv d/f ok"),
        *("mv d/f ok; mv d .vscode", "mv d/deep/f d/f .envrc 2> /dev/null; mv d/f .bashrc"),
    ],
)
def test_what_was_moved_to_where_nothing_comes_in_stays_where_it_was(
    each: Workbench, script: str
) -> None:
    w = each
    for name in ("d/f", "d/deep/f"):
        w.write(name, name)
    found = w.run(script)
    assert bool(found.kept_back or found.left_out) == (script != "mv d/f ok")
    assert {one.read_text() for one in w.ws.rglob("*") if one.is_file()} == {"d/deep/f", "d/f"}
