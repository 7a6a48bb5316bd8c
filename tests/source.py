"""The source of the package. To read and parse all of it takes a second.

A test that uses it is marked `one_worker`, so that this is done once for all of them.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[1] / "ironcurtain_proxy"

one_worker: Final = pytest.mark.worker("source")


@cache
def modules() -> dict[Path, ast.Module]:
    """What each module of the package says. No test changes it."""
    return {file: ast.parse(file.read_bytes()) for file in sorted(PACKAGE.rglob("*.py"))}
