"""A word means one thing: no two public types of the package share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "ironcurtain_proxy"


def test_no_two_public_types_have_one_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for module in sorted(PACKAGE.rglob("*.py")):
        for name in public_types(ast.parse(module.read_text("utf-8"))):
            modules[name].append(str(module.relative_to(PACKAGE)))
    assert len(modules) > 500
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


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
