"""A closed set is a closed type: a new member of it is refused until every reader knows it."""

import ast
from collections.abc import Iterator
from typing import get_args

from ironcurtain_proxy.model.decision import DeciderWord
from tests.source import PACKAGE, modules, nodes, one_worker


@one_worker
def test_a_match_on_a_union_of_classes_has_no_default_but_a_refusal() -> None:
    """The type checker refuses a match that forgets a member; a default would hide that one."""
    unions = {name: members for tree in modules().values() for name, members in _unions(tree)}
    assert {"Decider", "Ruling", "Value", "Pattern"} <= unions.keys()
    hidden = [
        f"{module.relative_to(PACKAGE)}:{found.lineno}"
        for module, found in nodes(ast.Match)
        if len(classes := {*_classes(found)}) > 1
        and any(classes <= members for members in unions.values())
        and _has_default(found)
    ]
    assert hidden == []


@one_worker
def test_no_module_reads_a_decider_by_the_beginning_of_its_text() -> None:
    words = {*get_args(DeciderWord)}
    beginnings = words | {f"{word}:" for word in words}
    read = [
        f"{module.relative_to(PACKAGE)}:{found.lineno}"
        for module, found in nodes(ast.Call)
        if isinstance(found.func, ast.Attribute)
        and found.func.attr in {"startswith", "removeprefix"}
        and any(isinstance(one, ast.Constant) and one.value in beginnings for one in found.args)
    ]
    assert read == []


@one_worker
def test_every_ruling_of_the_package_says_whose_it_is() -> None:
    """`Approved()` means the user, as embedding programs write it: a new reviewer must not."""
    silent = [
        f"{module.relative_to(PACKAGE)}:{found.lineno}"
        for module, found in nodes(ast.Call)
        if isinstance(found.func, ast.Name)
        and found.func.id in {"Approved", "Declined"}
        and all(keyword.arg != "by" for keyword in found.keywords)
    ]
    assert silent == []


def _unions(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    for node in tree.body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"), value=ast.BinOp()
            ):
                assert node.value is not None
                yield name, {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
            case _:
                continue


def _classes(found: ast.Match) -> Iterator[str]:
    for case in found.cases:
        for one in ast.walk(case.pattern):
            if isinstance(one, ast.MatchClass) and isinstance(one.cls, ast.Name):
                yield one.cls.id
            elif isinstance(one, ast.MatchClass | ast.MatchMapping | ast.MatchValue):
                yield "something else"


def _has_default(found: ast.Match) -> bool:
    last = found.cases[-1]
    if not isinstance(last.pattern, ast.MatchAs) or last.pattern.pattern is not None:
        return False
    names = [one.id for one in ast.walk(last) if isinstance(one, ast.Name)]
    return "assert_never" not in names
