"""The code lines of each folder stay within `code_lines.toml`. A rise needs a decision record."""

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

from tests.source import PACKAGE, modules, one_worker

pytestmark = one_worker

BUDGET: Final = Path(__file__).with_name("code_lines.toml")


def code_lines(source: str, tree: ast.Module) -> int:
    """Count the lines that are no docstring, import, comment or blank."""
    aside: set[int] = set()
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            aside |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(text) and text[0] != "#" and at not in aside for at, text in lines)


@cache
def folders() -> Counter[str]:
    """Return the code lines by folder; files beside the folders count as `.`."""
    found: Counter[str] = Counter()
    for path, tree in modules().items():
        parts = path.relative_to(PACKAGE).parts
        found[parts[0] if len(parts) > 1 else "."] += code_lines(path.read_text("utf-8"), tree)
    return found


def test_only_code_counts() -> None:
    source = (
        '"""A module."""\n\nimport os\n\n# why\nx = """a\nb"""  # note\n\n\n'
        'def f() -> None:\n    """Do."""\n    os.getpid()\n'
    )
    assert code_lines(source, ast.parse(source)) == len(["x =", "b", "def", "getpid"])


def test_no_folder_has_more_code_than_its_budget() -> None:
    allowed = tomllib.loads(BUDGET.read_text("utf-8"))
    now = folders()
    assert now.keys() == allowed.keys(), "a new folder gets a budget, a removed one loses it"
    over = {name: f"{now[name]} of {allowed[name]}" for name in now if now[name] > allowed[name]}
    assert over == {}, "see CONTRIBUTING.md, Make a folder larger"


def test_a_budget_is_lowered_when_a_folder_shrinks() -> None:
    """Else the next feature fills what a cleaning made free."""
    allowed, now = tomllib.loads(BUDGET.read_text("utf-8")), folders()
    loose = {name: now[name] for name in allowed if now[name] < allowed[name] * 0.9 - 60}
    assert loose == {}
