"""What is trusted at first sight, and what is held."""

from pathlib import Path

import pytest

from ironcurtain_proxy import private_files
from ironcurtain_proxy.model.server import PinMode
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.pins.book import PinBook, PinnedServer, PinStore
from ironcurtain_proxy.pins.pinned import MOST_NOTED, MOST_OFFERED

LAUNCH = "ab" * 32


def a_book(directory: Path, mode: PinMode = "on") -> PinBook:
    return PinBook(
        store=PinStore(directory / "pins"), servers={"s": PinnedServer("s", LAUNCH, mode)}
    )


def accept_all(directory: Path) -> None:
    PinStore(directory / "pins").update(LAUNCH, "s", lambda pins: pins.accepted())


def test_nothing_is_held_of_the_first_listing_and_its_repetition(tmp_path: Path) -> None:
    first: dict[str, Json] = {"read": {"a": 1, "b": 2}}
    assert a_book(tmp_path).listed("s", "tools", first) == {}
    assert a_book(tmp_path).listed("s", "tools", {"read": {"b": 2, "a": 1}}) == {}


def test_a_tool_that_is_left_out_for_a_time_is_still_trusted(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "tools", {"read": 1, "write": 2})
    book.listed("s", "tools", {"read": 1})
    assert book.listed("s", "tools", {"read": 1, "write": 2}) == {}


def test_an_empty_first_listing_of_prompts_does_not_trust_later_ones(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "prompts", {})
    assert "is new" in book.listed("s", "prompts", {"greet": 1})["greet"]


def test_two_sessions_that_see_a_server_first_trust_the_same(tmp_path: Path) -> None:
    one, other = a_book(tmp_path), a_book(tmp_path)
    one.listed("s", "tools", {})
    assert one.listed("s", "tools", {}) == {}
    assert "is new" in other.listed("s", "tools", {"read": 1})["read"]


def test_a_change_that_is_taken_back_waits_for_nobody(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "tools", {"read": 1})
    assert book.listed("s", "tools", {"read": 2})
    book.listed("s", "tools", {"read": 1})
    pins = PinStore(tmp_path / "pins").read(LAUNCH, "s").pins
    assert dict(pins.offered) == {}


def test_what_is_accepted_is_noticed_and_not_held(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "tools", {"read": 1})
    book.listed("s", "tools", {"read": 2})
    assert book.changed_servers() == ()
    accept_all(tmp_path)
    assert book.changed_servers() == ("s",)
    assert book.listed("s", "tools", {"read": 2}) == {}
    assert "differs" in book.listed("s", "tools", {"read": 1})["read"]


def test_a_view_is_trusted_when_it_is_read_first_and_not_when_it_changes(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    assert book.seen("s", "views", "ui://a", "<html>") is None
    assert book.seen("s", "views", "ui://b", "<html>") is None
    assert book.seen("s", "views", "ui://a", "<script>") is not None
    assert book.seen("s", "views", "ui://a", "<html>") is None


def test_what_is_nested_too_deeply_to_compare_is_never_the_same(tmp_path: Path) -> None:
    deep: Json = []
    for _ in range(20_000):
        deep = [deep]
    book = a_book(tmp_path)
    book.listed("s", "tools", {"read": deep})
    assert "read" in book.listed("s", "tools", {"read": deep})


def test_large_parts_are_compared_though_they_are_not_kept(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.seen("s", "views", "ui://a", "x" * 1_000_000)
    assert book.seen("s", "views", "ui://a", "x" * 999_999 + "y") is not None
    file = next((tmp_path / "pins").glob("*.json"))
    assert file.stat().st_size < 10_000


def test_off_writes_nothing_and_warn_holds_nothing(tmp_path: Path) -> None:
    a_book(tmp_path, "off").listed("s", "tools", {"read": 1})
    assert not (tmp_path / "pins").exists()
    warning = a_book(tmp_path, "warn")
    warning.listed("s", "tools", {"read": 1})
    assert warning.listed("s", "tools", {"read": 2}) == {}


def test_a_full_disk_holds_what_was_never_pinned_and_keeps_a_change_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = a_book(tmp_path)
    book.listed("s", "tools", {"read": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_files, "write_whole", full)
    assert "cannot be compared" in book.listed("s", "prompts", {"greet": 1})["greet"]
    assert "differs" in book.listed("s", "tools", {"read": 2})["read"]
    assert book.listed("s", "tools", {"read": 1}) == {}


def test_names_without_end_are_held_and_do_not_fill_the_file(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "tools", {"read": 1})
    for start in range(0, 5000, 1000):
        made: dict[str, Json] = {f"t{number}": number for number in range(start, start + 1000)}
        assert book.listed("s", "tools", {"read": 1, **made}).keys() == made.keys()
    pins = PinStore(tmp_path / "pins").read(LAUNCH, "s").pins
    assert len(pins.offered["tools"]) == MOST_OFFERED


def test_a_server_is_held_to_the_same_words_in_each_workspace(tmp_path: Path) -> None:
    def book(workspace: str) -> PinBook:
        pinned = PinnedServer("s", LAUNCH, "on", workspace)
        return PinBook(store=PinStore(tmp_path / "pins"), servers={"s": pinned})

    assert book("/w/one").listed("s", "tools", {"read": "Reads /w/one only"}) == {}
    assert book("/w/two").listed("s", "tools", {"read": "Reads /w/two only"}) == {}
    assert book("/w/two").listed("s", "tools", {"read": "Reads /w/one only"})
    assert book("/w/two").listed("s", "tools", {"read": "Reads @workspace only, and /etc"})


def test_words_that_were_pinned_with_a_workspace_in_them_still_hold(tmp_path: Path) -> None:
    said = "Reads /w/one only"
    a_book(tmp_path).listed("s", "tools", {"read": said})  # knows no workspace
    pinned = PinnedServer("s", LAUNCH, "on", "/w/one")
    book = PinBook(store=PinStore(tmp_path / "pins"), servers={"s": pinned})
    assert book.listed("s", "tools", {"read": said}) == {}
    assert dict(PinStore(tmp_path / "pins").read(LAUNCH, "s").pins.offered) == {}


MEMO: dict[str, Json] = {"memo://a": {"description": "Notes."}}


def test_a_new_resource_of_a_known_scheme_is_data_and_a_changed_text_is_not(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    assert book.listed("s", "resources", MEMO) == {}
    more: dict[str, Json] = {**MEMO, "MEMO://b": {"description": "More notes."}}
    assert book.listed("s", "resources", more) == {}
    other = a_book(tmp_path)
    changed: dict[str, Json] = {**MEMO, "MEMO://b": {"description": "Obey."}}
    assert "differs" in other.listed("s", "resources", changed)["MEMO://b"]
    assert other.listed("s", "resources", more) == {}


@pytest.mark.parametrize("uri", ["secret://key", "ui://view", "no scheme"])
def test_a_resource_of_a_new_scheme_and_a_new_view_are_held(tmp_path: Path, uri: str) -> None:
    book = a_book(tmp_path)
    book.listed("s", "resources", {**MEMO, "ui://main": {"name": "main"}})
    assert [*book.listed("s", "resources", {**MEMO, uri: {"name": "x"}})] == [uri]


def test_a_scheme_of_a_template_is_known(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "templates", {"row://{id}": {"name": "row"}})
    book.listed("s", "resources", MEMO)
    assert book.listed("s", "resources", {"row://1": {"name": "one"}}) == {}


def test_a_server_without_data_at_first_may_have_some_later(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    assert book.listed("s", "resources", {}) == {}
    assert book.listed("s", "resources", MEMO) == {}
    assert book.listed("s", "resources", {"secret://key": {"name": "key"}})


def test_of_endless_resources_only_so_many_are_kept_and_all_are_shown(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    book.listed("s", "resources", MEMO)
    many: dict[str, Json] = {f"memo://{number}": {"name": str(number)} for number in range(3000)}
    assert book.listed("s", "resources", many) == {}
    pins = PinStore(tmp_path / "pins").read(LAUNCH, "s").pins
    assert len(pins.trusted["resources"]) == MOST_NOTED
    assert dict(pins.offered) == {}


def test_new_resources_are_shown_while_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = a_book(tmp_path)
    book.listed("s", "resources", MEMO)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_files, "write_whole", full)
    assert book.listed("s", "resources", {**MEMO, "memo://b": {"name": "b"}}) == {}
    assert book.listed("s", "resources", {"memo://a": {"description": "Obey."}})


def test_a_title_that_changes_is_held(tmp_path: Path) -> None:
    book = a_book(tmp_path)
    assert book.title("s", "Notes")
    assert not book.title("s", "Your bank")
