"""One entry that clients cannot read does not take the lists of all servers from them."""

import random
from typing import Final

import mcp_types
import pytest
from pydantic import BaseModel

from ironcurtain_proxy.downstream.listing import fitting
from ironcurtain_proxy.model.values import Json

Entry = dict[str, Json]
SCHEMA: Final[Entry] = {"type": "object", "properties": {"a": {"type": "string"}}}
WHOLE: Final[dict[str, Entry]] = {
    "tools": {
        "name": "t",
        "title": "T",
        "description": "Does it.",
        "inputSchema": {**SCHEMA, "required": ["a"], "x": [1]},
        "outputSchema": SCHEMA,
        "annotations": {"title": "T", "readOnlyHint": True, "vendor": {"x": 1}},
        "execution": {"taskSupport": "optional"},
        "icons": [{"src": "data:,", "mimeType": "image/png", "sizes": ["4x4"], "theme": "dark"}],
        "_meta": {"a/b": 1},
        "vendor": None,
    },
    "prompts": {
        "name": "p",
        "arguments": [{"name": "a", "title": "A", "description": "One.", "required": True}],
        "icons": [],
    },
    "resources": {
        "uri": "memo://a",
        "name": "a",
        "mimeType": "text/plain",
        "size": 3,
        "annotations": {
            "audience": ["user"],
            "priority": 0.5,
            "lastModified": "2026-01-01T00:00:00Z",
        },
    },
    "resourceTemplates": {"uriTemplate": "memo://{a}", "name": "a"},
}
LISTS: Final[dict[str, type[BaseModel]]] = {
    "tools": mcp_types.ListToolsResult,
    "prompts": mcp_types.ListPromptsResult,
    "resources": mcp_types.ListResourcesResult,
    "resourceTemplates": mcp_types.ListResourceTemplatesResult,
}
WRONG: Final[tuple[Json, ...]] = (None, 5, -1.5, True, "x", [], ["x"], [None], {}, {"a": None})
KEYS: Final = {"tools": "name", "prompts": "name", "resources": "uri"} | {
    "resourceTemplates": "uriTemplate"
}


def dropped(_: str) -> None:
    """Nobody wants to know."""


def readable(kind: str, entries: list[Json]) -> None:
    """Fail unless a client reads the list."""
    LISTS[kind].model_validate(
        {kind: entries, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    )


@pytest.mark.parametrize("kind", WHOLE)
def test_a_list_of_the_right_shape_crosses_as_it_came(kind: str) -> None:
    entries: list[Json] = [WHOLE[kind]]
    assert fitting(kind, entries, pytest.fail) is entries


@pytest.mark.parametrize("kind", WHOLE)
def test_an_entry_with_any_part_of_a_wrong_type_is_read_by_clients(kind: str) -> None:
    whole = WHOLE[kind]
    for key in whole.keys() - {KEYS[kind], "vendor"}:
        for wrong in WRONG:
            said: list[str] = []
            (found,) = fitting(kind, [{**whole, key: wrong}], said.append)
            readable(kind, [found])
            assert isinstance(found, dict)
            kept = whole.keys() - {key}
            assert {name: found[name] for name in kept} == {name: whole[name] for name in kept}
        (found,) = fitting(kind, [{name: whole[name] for name in whole.keys() - {key}}], dropped)
        readable(kind, [found])


def _spoiled(chance: random.Random, value: Json) -> Json:
    """Return a value with a part that is something else."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice([*value])
        return {**value, key: _spoiled(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        return [_spoiled(chance, value[0]), *value]
    return chance.choice(WRONG)


@pytest.mark.parametrize("kind", WHOLE)
def test_an_entry_that_is_wrong_deep_inside_is_read_by_clients(kind: str) -> None:
    chance = random.Random(29)  # noqa: S311  the same in each run
    for _ in range(2000):
        entry = WHOLE[kind]
        for _ in range(3):
            found = _spoiled(chance, entry)
            entry = found if isinstance(found, dict) else entry
        entry = {**entry, KEYS[kind]: WHOLE[kind][KEYS[kind]]}
        readable(kind, fitting(kind, [entry, WHOLE[kind]], dropped))


def test_what_is_left_out_is_said_once_for_each_entry() -> None:
    said: list[str] = []
    entries: list[Json] = [WHOLE["tools"], {"name": "odd", "title": 1, "description": 2}, 7]
    found = fitting("tools", entries, said.append)
    assert found == [WHOLE["tools"], {"name": "odd", "inputSchema": {"type": "object"}}, 7]
    assert len(said) == 1
    assert "odd" in said[0]


def test_an_argument_that_nobody_may_give_stays_one() -> None:
    properties: Json = {"any": True, "none": False}
    entry: Json = {"name": "odd", "inputSchema": {"type": "object", "properties": properties}}
    told: Json = {"type": "object", "properties": {"any": {}, "none": {"not": {}}}}
    assert fitting("tools", [entry], dropped) == [{"name": "odd", "inputSchema": told}]
