"""Every command that a document shows is one that the program takes."""

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.cli import parser_of
from ironcurtain_proxy.cli.arguments import COMMANDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
INLINE = re.compile(r"`(ironcurtain-proxy [^`\n]+)`")
LINE = re.compile(r"^(?: {4,}|\$ |)(?:.*\| *)?(ironcurtain-proxy .+)$", re.MULTILINE)
BLOCK = re.compile(
    r"^```(?:sh|bash|console|text)?\n(.*?)^```|((?:^ {4}.*\n)+)", re.DOTALL | re.MULTILINE
)
OPERATORS = {"|", "||", "&&", "<", ">", ";"}
PLACEHOLDER = re.compile(r"…|\.\.\.|\|")


def _words(command: str) -> list[str]:
    line = re.sub(r"\[[^]]*\]", "", command.partition(" # ")[0]).rstrip("\\").strip()
    words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
    split = shlex.split(line)
    ends = [split.index(word) for word in words if word in OPERATORS and word in split]
    return split[1 : min(ends, default=len(split))]


def _commands(document: Path) -> Iterator[str]:
    text = document.read_text("utf-8")
    for block in BLOCK.finditer(text):
        shown = (block[1] or block[2] or "").replace("\\\n", " ")
        for line in LINE.finditer(shown):
            yield line[1]
    yield from INLINE.findall(text)


SHOWN = sorted({(document.name, line) for document in DOCUMENTS for line in _commands(document)})


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    return parser_of(COMMANDS)


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_every_command_that_a_document_shows_is_taken(
    document: str, line: str, parser: ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _words(line)
    if not words or PLACEHOLDER.search(" ".join(words)):
        words = words[:1]
    if not words or (words[0].startswith("-") and words[0] not in {"--help", "--version"}):
        words = ["serve", *words]
    assert words[0].startswith("-") or words[0] in COMMANDS, f"{document}: {line}"
    if len(words) == 1 and words[0] in COMMANDS:
        return  # the command is named, not called
    code: int | str | None = 0
    try:
        parser.parse_args(words)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == 0 or "arguments are required" in said, f"{document}: {line}\n{said}"


def test_documents_show_commands_at_all() -> None:
    assert len(SHOWN) > 40


def test_the_page_of_commands_names_every_command() -> None:
    section = (ROOT / "docs/commands.md").read_text("utf-8").partition("\n## ")[0]
    named = set(re.findall(r"ironcurtain-proxy ([a-z-]+)", section))
    assert set(COMMANDS) - named == set()
