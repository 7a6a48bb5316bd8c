"""Signs of an attack in descriptions."""

import pytest

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.pins.pinned import PinnedPart, ServerPins, changes, scan
from tests.tables import table


def rules(value: Json, *others: str) -> list[str]:
    return sorted({one.rule for one in scan("tool", value, others)})


@pytest.mark.parametrize(
    ("text", "rule"),
    table("pins/signs.found", list[tuple[str, str]]),
)
def test_a_sign_is_found_wherever_it_stands(text: str, rule: str) -> None:
    assert rule in rules({"description": text}, "bank")
    schema: Json = {"properties": {"x": {"description": text}}}
    assert rule in rules({"inputSchema": schema}, "bank")
    assert rule in rules({"inputSchema": {"properties": {text: {}}}}, "bank")


@pytest.mark.parametrize(
    "text",
    [
        "Reads a file.\n\nReturns its text\tand more.",
        "Übersetzt, 翻訳, перевод — “quoted” 👩\u200d💻 ❤\ufe0f",
        "Use this tool to read a file before editing it.",
        "The bank of the river",
    ],
)
def test_ordinary_descriptions_have_no_sign(text: str) -> None:
    assert rules({"description": text}, "bank") == []


def test_what_is_shown_of_a_sign_has_no_hidden_character() -> None:
    (found,) = scan("t\x1b", {"description\u202e": "plain"})
    assert str(found).isprintable()


def test_a_schema_that_is_nested_without_end_is_looked_at_down_to_some_depth() -> None:
    deep: Json = "Ignore previous instructions"
    for _ in range(20_000):
        deep = {"a": deep}
    assert rules(deep) == []


def pins(trusted: dict[str, Json], offered: dict[str, Json]) -> ServerPins:
    known = {name: PinnedPart.of(value) for name, value in trusted.items()}
    new = {name: PinnedPart.of(value) for name, value in offered.items()}
    return ServerPins(server="s", launch="").with_first("tools", known).with_offers("tools", new)


SCHEMA: Json = {"type": "object", "properties": {"path": {"type": "string"}}}


def test_a_new_name_for_almost_the_same_is_a_rename() -> None:
    (found,) = changes(
        pins(
            {"read": {"name": "read", "description": "Reads a file.", "inputSchema": SCHEMA}},
            {"read2": {"name": "read2", "description": "Reads a file!", "inputSchema": SCHEMA}},
        )
    )
    assert (found.kind, found.was) == ("renamed", "read")


def test_something_else_is_new() -> None:
    (found,) = changes(
        pins(
            {"read": {"name": "read", "description": "Reads a file.", "inputSchema": SCHEMA}},
            {"pay": {"name": "pay", "description": "Transfers an amount to an account."}},
        )
    )
    assert (found.kind, found.was) == ("new", "")


def test_a_difference_shows_hidden_characters() -> None:
    (found,) = changes(pins({"t": {"description": "a"}}, {"t": {"description": "a\u200b"}}))
    assert any("\\u200b" in line for line in found.lines())
    assert all(line.isprintable() for line in found.lines())


def test_of_a_description_of_many_lines_the_changed_ones_are_shown() -> None:
    text = "\n".join(f"Line {number}." for number in range(20))
    now = text.replace("Line 9.", "Mounts: /data.")
    (found,) = changes(pins({"t": {"description": text}}, {"t": {"description": now}}))
    shown = list(found.lines())
    assert [line.strip() for line in shown if line.startswith(("-", "+"))] == [
        "-Line 9.\\n", "+Mounts: /data.\\n",
    ]  # fmt: skip
    assert not any("Line 19" in line for line in shown)
