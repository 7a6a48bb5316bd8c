"""The kind of one argument, guessed: a path, a URL, or nothing that rules apply to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.config.annotating.words import (
    PATH_FORMATS,
    PATH_NOUNS,
    PLAIN,
    URL_FORMATS,
    URL_NOUNS,
    speaks_of_path,
    speaks_of_url,
    words_of,
)
from ironcurtain_proxy.model.json import Json

Meaning: TypeAlias = Literal["path", "url", "plain", "unclear"]
"""The kind of an argument. `plain`: an option or content. `unclear`: it may name anything."""

_MOST_DEPTH: Final = 8
_NAMED: Final = (("file",), ("dir",), ("directory",), ("folder",))
_NO_NAMES: Final = frozenset({"boolean", "number", "integer", "null"})


def meaning_of(name: str, schema: Json) -> Meaning:
    """The kind of an argument by its schema, name and description."""
    if not isinstance(schema, Mapping):
        return "unclear"
    types = types_of(schema)
    if is_closed_choice(schema) or (types and types <= _NO_NAMES):
        return "plain"
    found = _of_text(name, schema)
    if types - {"null"} == {"string"}:
        return found
    if types in ({"array"}, {"array", "string"}, {"array", "null"}):
        return _of_list(name, schema, found)
    return _of_object(schema, types, found)


def types_of(schema: Mapping[str, Json], depth: int = _MOST_DEPTH) -> frozenset[str]:
    """The JSON types that a value may have; none if the schema names none or nests too deeply."""
    if depth == 0:
        return frozenset()
    found: set[str] = set()
    said = schema.get("type")
    found.update([said] if isinstance(said, str) else [])
    found.update([one for one in said if isinstance(one, str)] if isinstance(said, list) else [])
    for word in ("anyOf", "oneOf"):
        inner = schema.get(word)
        for one in inner if isinstance(inner, list) else ():
            types = types_of(one, depth - 1) if isinstance(one, Mapping) else frozenset()
            if not types:
                return frozenset()
            found |= types
    return frozenset(found)


def is_closed_choice(schema: Mapping[str, Json]) -> bool:
    """Whether a value is one of a list of the schema."""
    choice = schema.get("enum")
    return "const" in schema or (isinstance(choice, list) and bool(choice))


def _of_text(name: str, schema: Mapping[str, Json]) -> Meaning:
    words = words_of(name)
    if words[-1:] in (("name",), ("names",)) and words[-2:-1] in _NAMED:
        words = words[:-1]
    last = words[-1] if words else ""
    said = schema.get("format")
    text = " ".join([str(schema.get(key, "")) for key in ("title", "description")])
    is_url = said in URL_FORMATS or not URL_NOUNS.isdisjoint(words) or speaks_of_url(text)
    is_path = said in PATH_FORMATS or last in PATH_NOUNS or speaks_of_path(text)
    if is_url and is_path:
        clear_url = said in URL_FORMATS or last in URL_NOUNS
        clear_path = said in PATH_FORMATS or last in PATH_NOUNS
        if clear_url == clear_path:
            return "unclear"
        if clear_path:
            return "unclear" if speaks_of_url(text) else "path"
        return "unclear" if speaks_of_path(text) else "url"
    if is_url:
        return "url"
    if last in PLAIN and said not in PATH_FORMATS and not _is_certainly_path(words):
        # `content` and `pattern` speak of files without naming one.
        return "plain"
    return "path" if is_path else "unclear"


def _is_certainly_path(words: tuple[str, ...]) -> bool:
    return bool(words) and words[-1] in PATH_NOUNS


def _of_list(name: str, schema: Mapping[str, Json], found: Meaning) -> Meaning:
    items = schema.get("items")
    types = types_of(items) if isinstance(items, Mapping) else frozenset()
    if not isinstance(items, Mapping) or not types:
        return "unclear"
    if types <= _NO_NAMES:
        return "plain"
    if types == {"string"}:
        inner = _of_text(name, items)
        if inner in (found, "unclear"):
            return found
        return inner if found == "unclear" else "unclear"
    return _of_object(schema, types, found)


def _of_object(schema: Mapping[str, Json], types: frozenset[str], found: Meaning) -> Meaning:
    """The kind of an object argument. A path inside an object cannot be annotated."""
    plain = types == {"object"} and found == "plain" and not any(_leaves(schema, _MOST_DEPTH))
    return "plain" if plain else "unclear"


def _leaves(schema: Mapping[str, Json], depth: int) -> Iterator[bool]:
    """Whether each text inside a schema may name a resource."""
    if depth == 0 or "$ref" in schema or "patternProperties" in schema:
        yield True
        return
    inner = schema.get("properties")
    for name, one in inner.items() if isinstance(inner, Mapping) else ():
        if isinstance(one, Mapping):
            if "string" in types_of(one) or not types_of(one):
                yield not is_closed_choice(one) and _of_text(name, one) != "plain"
            yield from _leaves(one, depth - 1)
    more = [schema.get("items"), schema.get("additionalProperties")]
    for word in ("anyOf", "oneOf", "allOf"):
        several = schema.get(word)
        more += several if isinstance(several, list) else []
    for one in more:
        if isinstance(one, Mapping):
            yield from _leaves(one, depth - 1)


_MOST_LEVELS: Final = 6
_NOT_LISTED: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties"}
)
"""Keywords by which an object has members that `properties` does not list."""


def members_of(name: str, schema: Json, paths: Sequence[Json]) -> Json:
    """The roles of an object, or of a list of objects; None: a member is unclear.

    Args:
        name: of the argument.
        schema: of the argument.
        paths: the roles of a path of the tool.
    """
    found = _roles(name, schema, paths, _MOST_LEVELS)
    return found if isinstance(found, dict) else None


def _roles(name: str, schema: Json, paths: Sequence[Json], depth: int) -> Json:
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    types = types_of(schema) - {"null"}
    items = schema.get("items")
    if types == {"array"} and isinstance(items, Mapping) and "object" in types_of(items):
        return _roles(name, dict(items), paths, depth - 1)
    if types == {"object"}:
        return _members(schema, paths, depth)
    meaning = meaning_of(name, dict(schema))
    return [*paths] if meaning == "path" else ["none"] if meaning == "plain" else None


def _members(schema: Mapping[str, Json], paths: Sequence[Json], depth: int) -> Json:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not _NOT_LISTED.isdisjoint(schema):
        return None
    inside: dict[str, Json] = {}
    for name, one in properties.items():
        roles = _roles(name, one, paths, depth - 1)
        if roles is None:
            return None
        inside[name] = roles
    # What the agent adds to the members that are listed counts as a path.
    return {"default": [*paths], "inside": inside}
