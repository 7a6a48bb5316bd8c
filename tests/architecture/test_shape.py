"""The shape of the tree: small files, and no place for leftovers."""

import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import grimp
import pytest

import ironcurtain_proxy

PACKAGE = Path(ironcurtain_proxy.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
LEFTOVERS = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


def test_a_module_fits_in_a_sitting() -> None:
    assert [one for one in MODULES if len(one.read_text("utf-8").splitlines()) > 600] == []


def test_no_module_is_a_place_for_leftovers() -> None:
    assert {module.stem for module in MODULES} & LEFTOVERS == set()


def test_every_module_says_what_it_is() -> None:
    silent = [m for m in MODULES if not m.read_text(encoding="utf-8").lstrip().startswith('"""')]
    assert silent == []


FOLDERS = sorted({module.parent for module in MODULES} - {PACKAGE / "cli"})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_is_described_by_a_map_of_all_that_is_in_it(folder: Path) -> None:
    words = set(re.findall(r"`([a-z_]+)`", (folder / "__init__.py").read_text("utf-8")))
    here = {module.stem for module in folder.glob("*.py")} - {"__init__", "__main__"}
    folders = {module.parent.name for module in folder.glob("*/*.py")}
    assert (here | folders) - words == set()


SMALL: Final = 100
STILL_SMALL: Final = frozenset(
    {
        "llm.http",  # imports httpx, which only a question to a model needs
    }
)
"""Modules that are to be merged, or have a reason. The list only becomes shorter."""


@cache
def imports() -> grimp.ImportGraph:
    """Return who imports whom, also for types alone and inside of functions."""
    return grimp.build_graph("ironcurtain_proxy", cache_dir=None)


def test_no_import_leads_round_in_a_circle_not_even_for_a_type() -> None:
    graph = imports()
    above = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    assert len([*TopologicalSorter(above).static_order()]) == len(graph.modules)


def test_no_small_module_serves_only_one_other_of_its_folder() -> None:
    graph = imports()
    small = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in MODULES
        if path.stem not in {"__init__", "__main__"}
        and len(path.read_text("utf-8").splitlines()) < SMALL
    }
    found = set()
    for name in small:
        users = graph.find_modules_that_directly_import(f"ironcurtain_proxy.{name}")
        folder = name.rpartition(".")[0]
        if {user.rpartition(".")[0] for user in users} == {f"ironcurtain_proxy.{folder}"} and (
            len(users) == 1
        ):
            found.add(name)
    assert found - STILL_SMALL == set()


TESTS = sorted((PACKAGE.parent / "tests").rglob("*.py"))
MOST_LINES = 600
LONGER: frozenset[str] = frozenset({"mediation/test_mediator.py"})
"""Tests that may be longer: one subject that is read as a whole."""


def test_a_test_file_fits_in_a_sitting() -> None:
    too_long = {
        str(path.relative_to(PACKAGE.parent))
        for path in TESTS
        if len(path.read_text("utf-8").splitlines()) > MOST_LINES
    }
    assert too_long - {f"tests/{name}" for name in LONGER} == set()


OWN_WAIT: Final = re.compile(
    r"fail_after\(|mark\.timeout\([12]?\d{1,2}\)"
    r"|\n( *)while (?!True)[^\n]+:[^\n]*\n\1    (?:await )?[\w.]*(?:checkpoint|sleep)\([\d.]{0,5}\)"
    r"[^\n]*\n(?!\1    )"
)
"""A deadline of a test, which a busy machine does not keep, and a wait that starves what it waits
for, or that does not say what never came."""


WAITS_APART: Final = {
    "tests/conftest.py",  # the one deadline of all
    "tests/program.py",  # `until` itself
    "tests/fleet/at_size.py",  # no test
    "tests/downstream/scripted_server.py",  # a server that never ends
    "tests/e2e/clients/python_sdk.py",  # a program that knows nothing of the tests
}


def test_a_test_waits_with_until_and_has_no_deadline_of_its_own() -> None:
    texts = {str(one.relative_to(PACKAGE.parent)): one.read_text("utf-8") for one in TESTS}
    found = {name for name, text in texts.items() if OWN_WAIT.search(text)}
    assert found - WAITS_APART == set()
