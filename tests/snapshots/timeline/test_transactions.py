"""A point of exactly what one call changed, with the directories of caches in it."""

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from ironcurtain_proxy.cli.rollback import lines
from ironcurtain_proxy.model.reply import Change, NotHeld, PointId
from ironcurtain_proxy.snapshots.history import Difference
from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.planning import ConflictError
from ironcurtain_proxy.snapshots.rewinding import kept
from tests.snapshots.timeline.workspace_fixture import Timelined, words


@pytest.fixture
def w(tmp_path: Path) -> Timelined:
    made = Timelined(
        tmp_path / "w", tmp_path / "s", Limits(caches=frozenset({"node_modules", ".venv"}))
    )
    for place in ("src", "node_modules/.bin", "node_modules/left", ".venv/bin"):
        made(place).mkdir(parents=True)
    made("src/a").write_text("source")
    made("node_modules/left/index.js").write_text("left")
    made("node_modules/.bin/eslint").symlink_to("../left/index.js")
    made(".venv/bin/python").write_text("an interpreter")
    made(".venv/bin/python").chmod(0o755)
    return made


def transact(
    w: Timelined, paths: list[str], apply: Callable[[], object], late: Collection[str] = ()
) -> tuple[PointId, list[str]]:
    w.count += 1
    done = w.keeper.transact(f"call-{w.count}.", "shell", "run", paths, lambda: (apply(), late)[1])
    assert not isinstance(done, NotHeld), done
    return done[0], words(done[1])


def test_what_a_transaction_changed_in_caches_is_named_and_comes_back(w: Timelined) -> None:
    before = w.picture()

    def apply() -> None:
        w("src/a").write_text("changed")
        w(".venv/bin/python").write_text("another interpreter")
        w("node_modules/.bin/eslint").unlink()
        shutil.rmtree(w("node_modules/left"))
        (w("node_modules/new/lib")).mkdir(parents=True)
        w("node_modules/new/lib/index.js").write_text("new")

    paths = ["src/a", ".venv/bin/python", "node_modules/.bin/eslint", "node_modules/left"]
    point, changes = transact(w, [*paths, "node_modules/new"], apply)
    assert changes == [
        "changed .venv/bin/python",
        "deleted node_modules/.bin/eslint",
        "deleted node_modules/left",
        "deleted node_modules/left/index.js",
        "created node_modules/new",
        "created node_modules/new/lib",
        "created node_modules/new/lib/index.js",
        "changed src/a",
    ]
    after = w.picture()
    done = w.back(point)
    assert w.picture() == before
    assert done.id is not None
    history = w.keeper.log.read()
    assert history is not None
    own = next(one for one in history.points() if one.call == done.id)
    w.back(PointId(str(own.number)))
    assert w.picture() == after


def test_a_whole_directory_of_caches_that_was_removed_comes_back(w: Timelined) -> None:
    before = w.picture()
    point, changes = transact(w, [".venv"], lambda: shutil.rmtree(w(".venv")))
    assert changes == ["deleted .venv", "deleted .venv/bin", "deleted .venv/bin/python"]
    w.back(point, rewind=True)
    assert w.picture() == before


def test_a_later_edit_in_a_cache_is_a_conflict(w: Timelined) -> None:
    python = w(".venv/bin/python")
    point, _ = transact(w, [".venv/bin/python"], lambda: python.write_text("of the call"))
    python.write_text("of the user")
    with pytest.raises(ConflictError) as refused:
        w.back(point)
    assert refused.value.conflicts == (
        ".venv/bin/python was touched later, by no call that is known",
    )
    assert python.read_text() == "of the user"
    w.back(point, force=True)
    assert python.read_text() == "an interpreter"


def test_a_later_session_neither_scans_caches_nor_forgets_what_a_transaction_changed(
    w: Timelined,
) -> None:
    before = w.picture()
    point, _ = transact(w, [".venv/bin/python"], w(".venv/bin/python").unlink)
    w.keeper.close()
    w.reopen()
    _, changes = w.call(lambda: w("node_modules/left/index.js").write_text("not looked at"))
    assert changes == []
    w("node_modules/left/index.js").write_text("left")
    w.back(point)
    assert w.picture() == before


def test_what_others_change_meanwhile_is_not_the_transactions(w: Timelined) -> None:
    def apply() -> None:
        w("src/a").write_text("of the call")
        w("mine").write_text("of the user")

    point, changes = transact(w, ["src/a"], apply)
    assert changes == ["changed src/a"]
    w.back(point)
    assert w("mine").read_text() == "of the user"
    assert w("src/a").read_text() == "source"


def test_what_the_user_changed_in_the_last_moment_is_not_taken_back_with_the_transaction(
    w: Timelined, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("late", "later", "d/late"):
        w(name).parent.mkdir(exist_ok=True)
        w(name).write_text("old")

    def apply() -> None:
        for name in ("src/a", "later"):
            w(name).write_text("of the call")
        # Found by the last check of the commit: these did not come in.
        for name in ("late", "d/late"):
            w(name).write_text("of the user")

    look = w.keeper.look

    def overtaken() -> list[Difference]:
        # The commit is done, and what it changed is not looked at yet.
        if w("later").read_text() == "of the call":
            w("later").write_text("of the user, too")
        return look()

    monkeypatch.setattr(w.keeper, "look", overtaken)
    point, changes = transact(w, ["src/a", "later", "late", "d"], apply, ["late", "d"])
    monkeypatch.undo()
    assert changes == ["changed later", "changed src/a"]
    with pytest.raises(ConflictError) as refused:
        w.back(point)
    assert refused.value.conflicts == ("later was touched later, by no call that is known",)
    w.back(point, force=True)
    said = [w(one).read_text() for one in ("src/a", "late", "d/late")]
    assert said == ["source", "of the user", "of the user"]


def test_a_transaction_that_fails_half_way_is_noted_and_its_error_is_raised(w: Timelined) -> None:
    def apply() -> None:
        w("src/a").write_text("half")
        raise ConnectionError

    with pytest.raises(ConnectionError):
        transact(w, ["src/a", "node_modules"], apply)
    history = w.keeper.log.read()
    assert history is not None
    assert history.changes(1) == (Change("src/a", "changed"),)
    assert not history.unsettled()
    w.back(PointId("1"))
    assert w("src/a").read_text() == "source"


def test_nothing_is_applied_where_no_point_can_be_made(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_files=2))
    for name in "abc":
        w(name).write_text(name)

    def delete() -> list[str]:
        w("a").unlink()
        return []

    refused = w.keeper.transact("call", "shell", "run", ["a"], delete)
    assert isinstance(refused, NotHeld)
    assert w("a").exists()


def test_names_in_any_bytes_in_caches_come_back(w: Timelined) -> None:
    name = os.fsdecode(b"node_modules/\xff\n x")
    w(name).write_text("odd")
    before = w.picture()
    point, changes = transact(w, [name], w(name).unlink)
    assert changes == [f"deleted {name}"]
    w.back(point)
    assert w.picture() == before


def test_a_call_beside_caches_is_never_said_to_have_changed_nothing(w: Timelined) -> None:
    w.call(lambda: w("node_modules/left/index.js").write_text("not looked at"))
    (w.store / "workspace").write_bytes(os.fsencode(w.top))
    said = [line.rpartition("  ")[2] for line in lines(kept(w.store.parent))]
    assert said == ["nothing changed outside .venv, node_modules"]


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (lambda w: w(".venv/bin/python").write_text("of the call"), ["changed .venv/bin/python"]),
        (lambda w: w("node_modules/.bin/eslint").unlink(), ["deleted node_modules/.bin/eslint"]),
        (lambda w: w(".venv/bin/pip").touch(), ["created .venv/bin/pip"]),
        (lambda w: shutil.rmtree(w(".venv")), ["deleted .venv", "deleted .venv/bin/python"]),
    ],
)
def test_programs_of_a_cache_that_a_call_replaced_are_named_though_not_kept(
    w: Timelined, deed: Callable[[Timelined], object], said: list[str]
) -> None:
    point, changes = w.call(lambda: deed(w))
    assert changes == said
    plan = w.back(point, dry_run=True).plan
    assert {step.path for step in (*plan.lost, *plan.steps)} == {
        one.partition(" ")[2] for one in said
    }


@pytest.mark.parametrize("paths", [["data"], ["data/large"], ["node_modules/left"]])
def test_nothing_is_done_where_what_it_replaces_is_not_held(
    tmp_path: Path, paths: list[str]
) -> None:
    w = Timelined(
        tmp_path / "w",
        tmp_path / "s",
        Limits(max_bytes=200_000, caches=frozenset({"node_modules"})),
    )
    for name in ("data/small", "data/large", "node_modules/left/a", "node_modules/left/b"):
        w(name).parent.mkdir(parents=True, exist_ok=True)
        size = 100 if name == "data/small" else 150_000
        w(name).write_bytes(os.urandom(size))
    paths = [*paths, *(f"gone/{number}" for number in range(300))]
    before = w.picture()
    ran: list[str] = []

    def delete(name: str) -> list[str]:
        ran.append(name)
        w(name).unlink()
        return []

    refused = w.keeper.transact(
        "call-1.", "shell", "run", paths, lambda: delete("data/small"), may_drop=False
    )
    assert isinstance(refused, NotHeld)
    assert "not held" in refused.reason
    assert (ran, w.picture()) == ([], before)
    done = w.keeper.transact(
        "call-2.", "shell", "run", ["data/small"], lambda: delete("data/small"), may_drop=False
    )
    assert not isinstance(done, NotHeld), done
    w.back(done[0])
    assert w.picture() == before
