"""The arguments that a tool's input schema declares.

Servers declare them not only in `properties`: also through `$ref`, `allOf`, `anyOf` and their
siblings at the root. Annotation, `init`, `check` and the check of a call ask here, so that none of
them overlooks an argument that another one sees. A schema is untrusted and may be any JSON.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.json import Json

_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_INNER: Final = ("then", "else")
_TABLES: Final = ("dependentSchemas", "dependencies")
_MOST_PARTS: Final = 1000
"""Subschemas of one root that are looked at: a hostile one may name itself for ever."""


class DeclaredArguments(Struct, frozen=True):
    """The arguments of a tool."""

    names: Mapping[str, Json]
    """The schema of each argument by name; one that several parts declare has all their forms."""
    is_open: bool
    """Whether others than these are taken."""
    is_list: bool
    """Whether the server means these to be all arguments; False: it describes them otherwise, by
    a pattern, or not at all."""


def declared_arguments(schema: Json, root: Json = None) -> DeclaredArguments:
    """Return the arguments that a schema declares, in all its parts.

    Args:
        schema: as a server sent it.
        root: the document around it; `None` means that it stands alone.
    """
    forms: dict[str, list[Json]] = {}
    has_table = is_lost = takes_others = has_pattern = False
    for part in _parts(schema, schema if root is None else root):
        if part is None:
            is_lost = True
            continue
        table = part.get("properties", False)
        # PHP writes an empty object as a list, and Go an empty map as null.
        has_table = has_table or isinstance(table, dict | list) or table is None
        for name, one in table.items() if isinstance(table, dict) else ():
            known = forms.setdefault(name, [])
            if one not in known:
                known.append(one)
        others = part.get("additionalProperties")
        takes_others = takes_others or others is True or isinstance(others, dict)
        has_pattern = has_pattern or bool(part.get("patternProperties"))
    closes = isinstance(schema, dict) and schema.get("additionalProperties") is False
    names: dict[str, Json] = {
        name: one[0] if len(one) == 1 else {"anyOf": one} for name, one in forms.items()
    }
    return DeclaredArguments(
        names=names,
        is_open=is_lost or has_pattern or takes_others or not (has_table or closes),
        is_list=not (is_lost or has_pattern or (takes_others and not names)),
    )


def resolved(root: Json, reference: str) -> Json:
    """Return what a reference names within its document, or None.

    References to other documents are not followed: the server could have them say anything.
    """
    if isinstance(root, dict):
        own = root.get("$id", root.get("id"))
        if isinstance(own, str) and own.partition("#")[0]:
            reference = reference.removeprefix(own.partition("#")[0])
    if not reference.startswith("#"):
        return None
    if reference[1:2] not in ("", "/"):
        return _anchored(root, reference[1:])
    node = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("%25", "%").replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(name)
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def _anchored(root: Json, anchor: str) -> Json:
    """Return the definition of this name; draft 7 wrote it as `$id`."""
    for table in ("$defs", "definitions"):
        found = root.get(table) if isinstance(root, dict) else None
        for one in found.values() if isinstance(found, dict) else ():
            if isinstance(one, dict) and (
                anchor in (one.get("$anchor"), one.get("$dynamicAnchor"))
                or f"#{anchor}" in (one.get("$id"), one.get("id"))
            ):
                return one
    return None


def _parts(schema: Json, root: Json) -> Iterator[Mapping[str, Json] | None]:
    """Yield every subschema that speaks of the arguments themselves; None: one is not known."""
    followed: set[str] = set()
    waiting = [schema]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return
        part = waiting.pop(0)
        if not isinstance(part, dict):
            if part is None:
                yield None
            continue
        yield part
        reference = part.get("$ref", part.get("$dynamicRef", part.get("$recursiveRef")))
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            waiting.append(resolved(root, reference))
        for word in _BRANCHES:
            several = part.get(word)
            waiting += several if isinstance(several, list) else ()
        waiting += [part[word] for word in _INNER if word in part]
        for word in _TABLES:
            table = part.get(word)
            waiting += table.values() if isinstance(table, dict) else ()
    yield None
