"""A directory of hooks as one item: what a server can make of it."""

from pathlib import Path

from ironcurtain_proxy.sandbox.steering import items_of, place_of


def hooks_of(root: Path) -> Path:
    hooks = root / ".claude" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "own.sh").write_text("true\n")
    return hooks


def test_directories_nested_without_end_are_one_changed_item(tmp_path: Path) -> None:
    hooks = hooks_of(tmp_path)
    place = place_of(str(tmp_path), ".claude")
    assert place is not None
    before = items_of(place)
    deep = hooks
    for _ in range(300):
        deep = deep / "d"
        deep.mkdir()
    after = items_of(place)
    assert before.keys() == after.keys() == {"hooks"}
    assert not after["hooks"].is_same(before["hooks"])


def test_a_new_file_of_a_directory_is_named(tmp_path: Path) -> None:
    hooks = hooks_of(tmp_path)
    place = place_of(str(tmp_path), ".claude")
    assert place is not None
    before = items_of(place)["hooks"]
    (hooks / "new.sh").write_text("rm -rf /\n")
    assert items_of(place)["hooks"].added_to(before) == ["new.sh"]
