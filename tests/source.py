"""The source of the package. To read and parse all of it takes a second.

A test that uses it is marked `one_worker`, so that this is done once for all of them.
"""

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import pytest

PACKAGE: Final = Path(__file__).parents[1] / "ironcurtain_proxy"

one_worker: Final = pytest.mark.worker("source")


@cache
def modules() -> dict[Path, ast.Module]:
    """What each module of the package says. No test changes it."""
    with _uncollected():
        return {file: ast.parse(file.read_bytes()) for file in sorted(PACKAGE.rglob("*.py"))}


Node = TypeVar("Node", bound=ast.AST)


def nodes(kind: type[Node]) -> Iterator[tuple[Path, Node]]:
    """Each node of a kind, with the module in which it stands."""
    for file, node in _by_kind()[kind]:
        assert isinstance(node, kind)
        yield file, node


@cache
def _by_kind() -> dict[type[ast.AST], list[tuple[Path, ast.AST]]]:
    found: dict[type[ast.AST], list[tuple[Path, ast.AST]]] = defaultdict(list)
    with _uncollected():
        for file, tree in modules().items():
            for node in ast.walk(tree):
                found[type(node)].append((file, node))
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Make a million objects that stay: the collector would look through them again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
