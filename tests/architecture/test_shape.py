"""The shape of the tree: small files, and no room for leftovers."""

from pathlib import Path

import pytest

import ironcurtain_proxy

PACKAGE = Path(ironcurtain_proxy.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
LEFTOVERS = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_fits_in_a_sitting(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 400


def test_no_module_is_a_place_for_leftovers() -> None:
    assert {module.stem for module in MODULES} & LEFTOVERS == set()


def test_every_module_says_what_it_is() -> None:
    silent = [m for m in MODULES if not m.read_text(encoding="utf-8").lstrip().startswith('"""')]
    assert silent == []
