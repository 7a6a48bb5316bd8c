"""Ids: each that a test names has a sentence, and no product file or document names one."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "requirements.toml"
SENTENCES = {
    name: sentence
    for group in tomllib.loads(LIST.read_text("utf-8")).values()
    for name, sentence in group.items()
}

IN_TESTS = re.compile(r"(?<![\w/.#-])(?:[RABCDEXIVT]-[0-9]+|G[0-9]{1,2})(?![\w-])")
IN_WORDS = re.compile(
    r"\((?:[RABCDEXIVT]-[0-9]+|G[0-9]{1,2})[,:; )]|requirement [A-Z]-[0-9]+|\b[RI]-[0-9]+\b"
)
MARK = re.compile(r"requirement\(([^)]*)\)")
QUOTED = re.compile(r'"([A-Z]-?[0-9]+)"')


def _tests() -> Iterator[Path]:
    return (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))


def _written() -> list[Path]:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted([*(ROOT / "ironcurtain_proxy").rglob("*.py"), *documents])


def test_the_ids_of_the_tests_and_the_sentences_of_the_list_are_the_same() -> None:
    named = {name for path in _tests() for name in IN_TESTS.findall(path.read_text("utf-8"))}
    assert (sorted(named - SENTENCES.keys()), sorted(SENTENCES.keys() - named)) == ([], [])


def test_every_mark_names_an_id_of_the_list() -> None:
    marked = {
        name
        for path in _tests()
        for names in MARK.findall(path.read_text("utf-8"))
        for name in QUOTED.findall(names)
    }
    assert marked - SENTENCES.keys() == set()


def test_every_sentence_ends_and_names_no_other_id() -> None:
    wrong = {
        name: sentence
        for name, sentence in SENTENCES.items()
        if not sentence.endswith(".") or IN_WORDS.search(sentence)
    }
    assert wrong == {}


def test_code_and_documents_say_the_sentence_and_name_no_id() -> None:
    assert [path for path in _written() if IN_WORDS.search(path.read_text("utf-8"))] == []
