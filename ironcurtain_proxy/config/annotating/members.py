"""Arguments that hold paths inside objects: `{"files": [{"path": …, "ranges": […]}]}`.

Every member must be clear by itself: a path, or an option or content. One doubt leaves the whole
argument unclear.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ironcurtain_proxy.config.annotating.argument_roles import meaning_of, types_of
from ironcurtain_proxy.model.json import Json

_MOST_DEPTH: Final = 6
_NOT_LISTED: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties"}
)
"""Keywords by which an object has members that `properties` does not list."""


def members_of(name: str, schema: Json, paths: Sequence[Json]) -> Json:
    """The roles of an object, or of a list of objects; None: something in it is not clear.

    Args:
        name: of the argument.
        schema: of the argument.
        paths: the roles of a path of the tool.
    """
    found = _roles(name, schema, paths, _MOST_DEPTH)
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
