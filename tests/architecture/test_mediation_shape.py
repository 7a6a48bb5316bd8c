"""What keeps the life of a call readable: who writes a case, and who is handed what."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ironcurtain_proxy

PACKAGE = Path(ironcurtain_proxy.__file__).parent


def _modules() -> Iterator[tuple[str, str]]:
    for module in sorted(PACKAGE.rglob("*.py")):
        yield str(module.relative_to(PACKAGE)), module.read_text("utf-8")


def _written(code: str, name: str) -> Iterator[str]:
    """The fields of `name` that are assigned."""
    for node in ast.walk(ast.parse(code)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for part in ast.walk(target) if isinstance(target, ast.AST) else ():
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.ctx, ast.Store)
                    and isinstance(part.value, ast.Name)
                    and part.value.id == name
                ):
                    yield part.attr


def test_only_its_own_methods_write_a_case() -> None:
    written = {
        name: found
        for name, code in _modules()
        if re.search(r"\bcase\s*\.", code) and (found := [*_written(code, "case")])
    }
    assert written == {}


def test_nothing_reaches_through_the_mediator() -> None:
    reaching = {
        name: found
        for name, code in _modules()
        if (found := re.findall(r"\bmediator\.\w+\.\w+", code.replace("mediation.mediator.", "")))
    }
    assert reaching == {}
