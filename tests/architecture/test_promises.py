"""What the documents promise is shown by tests, and these exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.program import ROOT

_TEST: Final = re.compile(r"`(tests/[\w./-]+)`")
_PROMISE: Final = re.compile(r"^- \*\*(.+?)\*\*", re.DOTALL | re.MULTILINE)
_SHOWN: Final = re.compile(r"^- ([^:]+): ([^-]*?)\.$", re.DOTALL | re.MULTILINE)
"""A line of the list: the beginning of a promise, and its tests."""
_ROW: Final = re.compile(
    r"^\| (?!sentence )([^|]*?[a-z][^|]*?) \| (`tests/[^|]*) \|$", re.MULTILINE
)
PAGES: Final = ("threat-model.md", "sandbox.md", "containment.md")


def section(page: str, title: str) -> str:
    """Return what stands below a heading, up to the next one of its level."""
    found = re.search(rf"^## {title}[^\n]*$(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def plain(text: str) -> str:
    return " ".join(text.split())


def named_tests() -> Iterator[tuple[str, str]]:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for one in _TEST.findall(page.read_text("utf-8")):
            yield str(page.relative_to(ROOT)), one


def holds_tests(place: Path) -> bool:
    files = sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    texts = [one.read_text("utf-8") for one in files if one.suffix == ".py" and one.is_file()]
    return any(re.search(r"^(?:async )?def test_", text, re.MULTILINE) for text in texts)


def test_every_test_that_a_document_names_exists() -> None:
    named = [*named_tests()]
    assert {page for page, _ in named} >= {f"docs/{one}" for one in PAGES}
    gone = [(page, one) for page, one in named if not (ROOT / one).exists()]
    assert gone == []


def test_every_invariant_of_the_threat_model_has_a_test() -> None:
    page = (ROOT / "docs/threat-model.md").read_text("utf-8")
    promises = [plain(one) for one in _PROMISE.findall(section(page, "Invariants"))]
    shown = {plain(one): tests for one, tests in _SHOWN.findall(section(page, "The test of"))}
    assert len(promises) > 50
    unshown = [one for one in promises if len([*filter(one.startswith, shown)]) != 1]
    assert unshown == []
    assert len(shown) == len(promises)
    for one, tests in shown.items():
        places = [ROOT / place for place in _TEST.findall(tests)]
        assert places, one
        assert all(map(holds_tests, places)), one


@pytest.mark.parametrize("name", PAGES[1:])
def test_every_sentence_of_a_table_names_tests(name: str) -> None:
    page = (ROOT / "docs" / name).read_text("utf-8")
    rows = _ROW.findall(page)
    assert len(rows) > 5
    for sentence, tests in rows:
        assert all(holds_tests(ROOT / place) for place in _TEST.findall(tests)), sentence
