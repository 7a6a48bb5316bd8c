"""A word means one thing: no two public types of the package share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.source import PACKAGE, modules, one_worker


@one_worker
def test_no_two_public_types_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for name in public_types(tree):
            places[name].append(str(module.relative_to(PACKAGE)))
    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def public_types(tree: ast.Module) -> Iterator[str]:
    """Classes and type aliases at the top level of a module."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                found = name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                found = name
            case _:
                continue
        if not found.startswith("_"):
            yield found
