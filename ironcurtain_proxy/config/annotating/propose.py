"""Proposals for the tools of a server: a role for each argument and member, and an effect.

Deterministic. Objects and lists are searched at every depth; a part that is too deep, too large
or not described is `unclear` as a whole. A server's hints only add care: `readOnlyHint` makes
nothing read-only, `destructiveHint` and `openWorldHint` make a change more grave.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.config.annotating.texts import (
    DESTROYS,
    FETCHES,
    NO_TEXT,
    READS,
    WORDS,
    WRITES,
    ArgumentContext,
    Proposed,
    ProposedTool,
    is_closed_choice,
    proposed_for,
    runs,
    speaks_of_change,
    speaks_of_destroying,
    types_of,
    words_of,
)
from ironcurtain_proxy.model.annotation import Roles, ToolEffect, declared_arguments, resolved
from ironcurtain_proxy.model.values import Json

_MOST_DEPTH: Final = 12
_MOST_NODES: Final = 3_000
"""The most nodes of a tool's schema: a hostile schema could take for ever."""
_MOST_TEXT: Final = 10_000
_NONE: Final[Roles] = ("none",)
_UNCLEAR: Final[Roles] = ("unclear",)
_SAYS: Final = WORDS["says"]
_SENDS: Final = _SAYS | WORDS["sends"]
_RUNS: Final = WORDS["runs"]
_CHANGES: Final = WRITES | WORDS["changes"]
_LOOKS: Final = READS | FETCHES | WORDS["looks"]
_REMOVES: Final = DESTROYS | WORDS["removes"]
_NOUNS: Final = WORDS["nouns"]


def _acting(words: Sequence[str]) -> frozenset[str]:
    """Return the words of a name that indicate an action.

    All but nouns behind a verb that reads or keeps.

    `save_note` sends no note to anybody; `add_note` may.
    """
    verbs = _LOOKS | _CHANGES | _REMOVES | _SENDS | _RUNS
    first = next((word for word in words if word in verbs), "")
    if first not in (_LOOKS - _NOUNS) | WORDS["keeps"]:
        return frozenset(words)
    return frozenset([word for word in words if word not in _NOUNS])


class _Walk(Struct):
    """A search through the schema of one tool."""

    about: ArgumentContext
    root: Mapping[str, Json]
    nodes: int = 0

    def argument(self, name: str, schema: Json, depth: int = _MOST_DEPTH) -> Proposed:
        self.nodes += 1
        if not isinstance(schema, Mapping) or depth == 0 or self.nodes > _MOST_NODES:
            return Proposed(
                roles=_UNCLEAR, certain=False, why="its schema is missing, or is nested too deeply"
            )
        return self._of(name, _resolved(schema, self.root), depth)

    def _of(self, name: str, schema: Mapping[str, Json], depth: int) -> Proposed:
        forms = _forms(schema, self.root)
        if forms:
            return _joined([self.argument(name, one, depth - 1) for one in forms])
        if is_closed_choice(schema):
            return Proposed(roles=_NONE, why="one of a fixed list")
        types = types_of(schema)
        if types and types <= NO_TEXT:
            return Proposed(roles=_NONE, why="it holds no text")
        text = proposed_for(name, schema, self.about)
        found = [text] if "string" in types else []
        found += [] if types else [replace(text, certain=False, likely="")]
        found += [self._items(name, one, depth) for one in _lists_in(schema)]
        found += [self._object(one, depth) for one in _objects_in(schema)]
        if "array" in types and not any("items" in one for one in _variants(schema)):
            found.append(Proposed(roles=_UNCLEAR, certain=False, why="its items are not described"))
        if "object" in types and not any(True for _ in _objects_in(schema)):
            found.append(
                Proposed(roles=_UNCLEAR, certain=False, why="its members are not described")
            )
        return _joined(found)

    def _items(self, name: str, schema: Mapping[str, Json], depth: int) -> Proposed:
        items = schema.get("items")
        if isinstance(items, list):
            return _joined([self.argument(name, one, depth - 1) for one in items[:50]])
        # What the list says of itself, it says of its items.
        inner = dict(_resolved(items, self.root)) if isinstance(items, Mapping) else None
        said = schema.get("description")
        if inner is not None and "description" not in inner and isinstance(said, str):
            inner["description"] = said
        return self.argument(name, cast("Json", inner), depth - 1)

    def _object(self, schema: Mapping[str, Json], depth: int) -> Proposed:
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        members = {
            name: self.argument(name, one, depth - 1)
            for name, one in (properties.items() if isinstance(properties, Mapping) else ())
        }
        if schema.get("additionalProperties", False) is False and not patterns:
            rest = Proposed(roles=_NONE, why="it lists its members")
        else:
            is_known = bool(members) and not patterns
            rest = Proposed(roles=_UNCLEAR, certain=is_known, why="it may have other members")
        return Proposed(roles=rest.roles, certain=rest.certain, why="an object", inside=members)


def propose(tool: Mapping[str, Json], *, is_github: bool = False) -> ProposedTool:
    """Return the proposal for a tool.

    Args:
        tool: its object of `tools/list`.
        is_github: whether the server works on GitHub, whose owners and repositories ignore case.
    """
    name = str(tool.get("name", ""))
    text = f"{tool.get('title', '')} {tool.get('description', '')}"[:_MOST_TEXT]
    schema = tool.get("inputSchema")
    root = schema if isinstance(schema, Mapping) else {}
    properties = declared_arguments(dict(root)).names
    words = _acting(words_of(name))
    found = runs(tool, properties)
    about = ArgumentContext(
        words=words,
        text=text,
        names=frozenset(["".join(words_of(one)) for one in properties]),
        paths=_roles_of_paths(words, text, tool),
        shell=found.argument if found is not None and found.is_shell else None,
        says=not _SAYS.isdisjoint(words) and not _only_looks(words),
        is_github=is_github,
    )
    walk = _Walk(about, root)
    arguments = {one: walk.argument(one, inner) for one, inner in properties.items()}
    effect, why = _effect(words, text, tool, arguments)
    return ProposedTool(name=name, arguments=arguments, effect=effect, why=why, paths=about.paths)


def works_on_github(tools: Sequence[Mapping[str, Json]], name: str) -> bool:
    """Return whether the tools of a server speak of GitHub, or its name does."""
    said = [name, *[f"{tool.get('name')} {str(tool.get('description'))[:500]}" for tool in tools]]
    return any("github" in text.lower() for text in said)


def _only_looks(words: frozenset[str]) -> bool:
    return not words.isdisjoint(_LOOKS) and words.isdisjoint(
        _CHANGES | _REMOVES | {"send", "reply"}
    )


# --- effects -------------------------------------------------------------------------------------


def _effect(
    words: frozenset[str],
    text: str,
    tool: Mapping[str, Json],
    arguments: Mapping[str, Proposed],
) -> tuple[ToolEffect | None, str]:
    hints = tool.get("annotations")
    hinted = hints if isinstance(hints, Mapping) else {}
    roles = {role for name, one in arguments.items() for _, p in one.each(name) for role in p.roles}
    looks = _only_looks(words)
    first = text.strip().split(". ")[0]
    if "command" in roles or (words & _RUNS and not looks):
        return "runs", "it runs a command or a program"
    if words & _REMOVES or hinted.get("destructiveHint") is True:
        return "destroys", "its name or a hint says that it deletes or moves"
    if words & _SENDS and not looks:
        return "sends", "it reaches other people or another machine"
    if words & (_CHANGES - _LOOKS) or (looks and hinted.get("readOnlyHint") is False):
        return _changing(first, hinted)
    return (
        _looking(first, has_sql="sql" in roles)
        if looks
        else (None, "its name does not say what it does")
    )


def _looking(first: str, *, has_sql: bool) -> tuple[ToolEffect, str]:
    if has_sql:
        return "writes", "its SQL says what it does"
    if speaks_of_change(first):
        return "writes", "its description speaks of a change"
    return "reads", "its name says that it reads"


def _changing(first: str, hinted: Mapping[str, Json]) -> tuple[ToolEffect, str]:
    if speaks_of_destroying(first):
        return "destroys", "its description speaks of deleting or moving"
    if hinted.get("openWorldHint") is True:
        return "sends", "a hint says that it changes another machine"
    return "writes", "its name says that it changes"


def _roles_of_paths(words: frozenset[str], text: str, tool: Mapping[str, Json]) -> Roles:
    """Return the roles that a path of the tool may have."""
    hints = tool.get("annotations")
    hinted = hints if isinstance(hints, Mapping) else {}
    removes = words & _REMOVES or hinted.get("destructiveHint") is True
    writes = words & (_CHANGES | _RUNS | _SENDS | FETCHES) or hinted.get("readOnlyHint") is False
    looks = bool(words & (_LOOKS - FETCHES))
    found: list[str] = ["read-path"]
    if removes or writes or not looks or speaks_of_change(text):
        found.append("write-path")
    if removes or speaks_of_destroying(text) or not (looks or writes):
        found.append("delete-path")
    if "repositor" in text.lower() or "git" in words:
        found += ["write-history"] if len(found) > 1 else []
        found += ["delete-history"] if removes or "delete-path" in found else []
    return cast("Roles", tuple(found))


# --- schemas -------------------------------------------------------------------------------------


def _resolved(schema: Mapping[str, Json], root: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a schema with its internal references resolved, up to a few steps."""
    for _ in range(8):
        said = schema.get("$ref")
        found = resolved(dict(root), said) if isinstance(said, str) else None
        if not isinstance(found, Mapping):
            return schema
        schema = {**found, **{key: one for key, one in schema.items() if key != "$ref"}}
    return {}


def _forms(schema: Mapping[str, Json], root: Mapping[str, Json]) -> list[Json]:
    """Return the alternative schemas of a value, each with the common part.

    It is none if it has one form.
    """
    outer = {key: one for key, one in schema.items() if key not in {"anyOf", "oneOf"}}
    found: list[Json] = []
    for word in ("anyOf", "oneOf"):
        several = schema.get(word)
        for one in several[:50] if isinstance(several, list) else ():
            inner = _resolved(one, root) if isinstance(one, Mapping) else {}
            found.append({**outer, **inner})
    return found


def _variants(schema: Mapping[str, Json], depth: int = 4) -> Iterator[Mapping[str, Json]]:
    """Yield the schema and all its alternatives."""
    yield schema
    for word in ("anyOf", "oneOf", "allOf"):
        several = schema.get(word)
        for one in several[:50] if isinstance(several, list) and depth else ():
            if isinstance(one, Mapping):
                yield from _variants(one, depth - 1)


def _lists_in(schema: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    for one in _variants(schema):
        if "items" in one:
            outer = {"description": schema["description"]} if "description" in schema else {}
            yield {**outer, **one}


def _objects_in(schema: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    for one in _variants(schema):
        if isinstance(one.get("properties"), Mapping) and one["properties"]:
            yield one


_CARE: Final[Mapping[str, int]] = {"none": 0, "message": 1, "email-address": 1, "identifier": 2}


def _joined(found: Sequence[Proposed]) -> Proposed:
    """Return one proposal for several forms of an argument: the most careful one, or `unclear`."""
    told = [one for one in found if one.inside]
    plain = [one for one in found if not one.inside]
    roles = list(dict.fromkeys([one.roles for one in plain])) or [_NONE]
    calm = sorted(roles, key=lambda one: max(_CARE.get(role, 9) for role in one))
    graver = [one for one in calm if max(_CARE.get(role, 9) for role in one) == 9]  # noqa: PLR2004
    chosen = calm[-1] if len(graver) < 2 else _UNCLEAR  # noqa: PLR2004  two kinds of resource
    best = next((one for one in plain if one.roles == chosen), None)
    if not told and best is not None:
        is_one = len({(one.roles, one.likely) for one in plain} - {(_NONE, "")}) == 1
        return best if is_one else replace(best, likely="")
    if not told:
        return Proposed(roles=chosen, certain=False, why="its schema has several forms")
    rest = [one.roles for one in told]
    default = _UNCLEAR if _UNCLEAR in rest or chosen == _UNCLEAR else chosen
    members: dict[str, Proposed] = {}
    for one in told:
        for name, inner in one.inside.items():
            members[name] = _joined([members[name], inner]) if name in members else inner
    return Proposed(roles=default, certain=all(one.certain for one in found), why="an object",
                    inside=members)  # fmt: skip
