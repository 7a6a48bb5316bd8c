"""Checks the documents and the docstrings.

Documents: width, ids of outside lists, words, links, anchors, names of files. Docstrings of the
package: the classes that they name exist, and those of functions begin with a verb.

Prints `FILE:LINE: what is wrong` for each fault and ends with 1 if there is one. The words that
documents do not use stand in `docs/style.md`, under "Words that documents do not use".
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

WIDTH: Final = 100
WHERE: Final = ("*.md", "docs/**/*.md", ".github/**/*.md", "ironcurtain_proxy/**/*.md")
STYLE: Final = "docs/style.md"
WORDS: Final = "Words that documents do not use"

ID: Final = re.compile(r"(?<![\w/.#-])(?:[RABCDEXIV]-[0-9]+|G[0-9]{1,2})(?![\w-])")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"(`+).+?\1")
FILE: Final = re.compile(r"(?<![\w/.~-])(?:(?:scripts|tests|docs)/[\w/.-]*\w|[a-z_]+/[\w/]*\.py)\b")
PACKAGE: Final = "ironcurtain_proxy"
CLASS: Final = re.compile(r"`(?:\w+\.)*([a-z_]+)\.([A-Z][a-z]\w*)")
"""A class with its module, in a docstring: `ports.Clock`."""
NOUN: Final = re.compile(
    r"\s*(?:The|An?|Whether|All|Every|Each|Th[eo]se|This|It|No|None|One|What|Which|Who|Why|How|Where)\b"
)
"""How a function's docstring begins that does not say what the function does."""
HISTORY: Final = ("docs/adr/", "CHANGELOG.md")
"""Documents that may name files of their time."""

FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})")
HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$")


class Line(NamedTuple):
    """One line of a document."""

    number: int
    text: str
    prose: str
    """The text with code replaced: empty inside a block of code."""


class Fault(NamedTuple):
    """What is wrong with a line."""

    file: Path
    line: int
    what: str


def main(root: Path) -> int:
    """Check the documents below a directory. Returns the exit code."""
    files = sorted({file for pattern in WHERE for file in root.glob(pattern)})
    words = _words(root / STYLE)
    faults = [fault for file in files for fault in (*_faults(file, words), *_files(root, file))]
    classes = _classes(root / PACKAGE)
    faults += [
        fault
        for file in sorted((root / PACKAGE).rglob("*.py"))
        for fault in _docstrings(file, classes)
    ]
    for fault in faults:
        sys.stderr.write(f"{fault.file.relative_to(root)}:{fault.line}: {fault.what}\n")
    return 1 if faults else 0


def _faults(file: Path, words: re.Pattern[str] | None) -> Iterator[Fault]:
    for number, text, prose in _lines(file):
        if len(text) > WIDTH:
            yield Fault(file, number, f"{len(text)} columns; a line has at most {WIDTH}")
        for found in ID.findall(text):
            yield Fault(file, number, f"{found}: an id of another document; write the sentence")
        for found in words.findall(prose) if words else ():
            yield Fault(file, number, f"{found!r}: {STYLE} names the word to write instead")
        for link in LINK.findall(prose):
            if wrong := _broken(file, link):
                yield Fault(file, number, f"{link}: {wrong}")


def _files(root: Path, document: Path) -> Iterator[Fault]:
    """Files of the repository that a document names and that are not there."""
    if str(document.relative_to(root)).startswith(HISTORY):
        return
    for number, text, prose in _lines(document):
        if "`" not in text and prose:
            continue
        for name in FILE.findall(text):
            if "NAME" not in name and not any(
                (base / name).exists() for base in (root, root / PACKAGE, document.parent)
            ):
                yield Fault(document, number, f"{name}: the file does not exist")


def _classes(package: Path) -> dict[str, set[str]]:
    """The classes and types of each module, by the module's own name."""
    found: dict[str, set[str]] = {}
    for module in package.rglob("*.py"):
        names = re.findall(r"^(?:class )?([A-Z]\w*)\b", module.read_text("utf-8"), re.MULTILINE)
        found.setdefault(module.stem, set()).update(names)
    return found


def _docstrings(module: Path, classes: dict[str, set[str]]) -> Iterator[Fault]:
    """Faults of a module's docstrings, also of those of fields."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        body = getattr(node, "body", None)
        for found in body if isinstance(body, list) else ():
            match found:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    for stem, name in CLASS.findall(text):
                        if name not in classes.get(stem, {name}):
                            yield Fault(module, found.lineno, f"{stem}.{name}: does not exist")
                case ast.FunctionDef() | ast.AsyncFunctionDef() if not _is_property(found):
                    if NOUN.match(ast.get_docstring(found) or ""):
                        what = f"{found.name}: its docstring begins with no verb, such as Return"
                        yield Fault(module, found.lineno, what)


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read like a value, and described by a noun."""
    return any("property" in ast.unparse(one) for one in function.decorator_list)


def _broken(document: Path, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = document.parent / unquote(parts.path) if parts.path else document
    if not target.exists():
        return "the file does not exist"
    if parts.fragment and parts.fragment not in _anchors(target):
        return f"{target.name} has no such heading"
    return None


@cache
def _lines(file: Path) -> tuple[Line, ...]:
    found: list[Line] = []
    fence: str | None = None
    for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
        mark = FENCE.match(text)
        if fence is None and mark:
            fence = mark[1]
        elif fence is not None:
            if mark and mark[1].startswith(fence) and text.strip() == mark[1]:
                fence = None
        elif not _indented(text, found):
            found.append(Line(number, text, CODE.sub("``", text)))
            continue
        found.append(Line(number, text, ""))
    return tuple(found)


def _indented(text: str, before: list[Line]) -> bool:
    """Whether a line is in a block of code that four blanks set off."""
    if not text.startswith("    ") or not before:
        return False
    last = before[-1]
    return last.text == "" or (last.prose == "" and last.text.startswith("    "))


@cache
def _anchors(document: Path) -> frozenset[str]:
    """The anchors of the headings, as code hosts derive them."""
    found: set[str] = set()
    for line in _lines(document):
        if line.prose and (heading := HEADING.match(line.text)):
            name = re.sub(r"[^\w -]", "", heading[1].lower()).replace(" ", "-")
            count = sum(1 for one in found if re.fullmatch(re.escape(name) + r"(-[0-9]+)?", one))
            found.add(f"{name}-{count}" if count else name)
    return frozenset(found)


def _words(style: Path) -> re.Pattern[str] | None:
    """The words at the left of each item of the list, with their plurals."""
    section = style.read_text("utf-8").partition(f"## {WORDS}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^- ([^:]+):", section, re.MULTILINE)
    words = [word for item in items for word in re.findall(r"`([^`]+)`", item)]
    if not words:
        return None
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})s?\b", re.IGNORECASE)


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    raise SystemExit(main(root.resolve()))
