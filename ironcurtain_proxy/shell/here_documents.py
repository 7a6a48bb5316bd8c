"""Here-documents taken out of a text before the grammar reads it.

The grammar (tree-sitter-bash 0.25) drops a word such as `-` or `2>&1` before `<<`, and takes what
follows the delimiter on its line for something else. Both are what agents write all day:

    git commit -F - <<'EOF' && git push        git commit -F - </here-document-0 && git push
    a message                             →
    EOF

To a shell, `<<'EOF'` stands where any redirection of the input may stand, and the lines of the
document begin behind the end of its line. So a document becomes a redirection from a file that no
text names, and is given back once the rest was read.

This is right only if the `<<` is an operator and the line ends where this module thinks. So the
text is gone through from its beginning, and is left alone where something stands in which quotes
or ends of lines could mean something else: a substitution that is not plain, arithmetic, `$'…'`.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.request import Redirection, SimpleCommand, Word

_STEP: Final = re.compile(
    r"""
      (?P<start> <<(?P<strip>-?)[ \t]*
                 (?P<delimiter> \w+ | '\w+' | "\w+" | \\\w+ ) (?=[\s|&;<>)]) )
    | (?P<end> \n )
    | (?<![^\s;&|()<>]) \#[^\n]*
    | [^\\'"`$<\n(\#]+ | \#
    | '[^']*'
    | " (?: [^\\"`$] | \\[^\n] | \$(?=[ "|)/.,:;%}]) | \$\w+ | \$\{\w+\}
          | \$\([\w ./=,:@%+-]*\) )* "
    | \$\w+ | \$\{\w+\} | \$[?!$@*] | \$\([\w ./=,:@%+-]*\)
    | \\\n | \\[^\n](?!\#)
    | <<<(?!<) | <(?![<(]) | (?<![<>])\((?!\()
    """,
    re.VERBOSE | re.ASCII,
)
_LIVE: Final = re.compile(r"[`\\]|\$[^A-Za-z_\s]")
"""Text that a document whose delimiter is not quoted may not contain."""
_NAMED: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_PLACE: Final = "/here-document-"
_LONGEST: Final = 64 << 10


class Lifted(Struct, frozen=True):
    """A text without its here-documents."""

    text: str
    documents: tuple[Word, ...]

    def given_back(self, commands: Iterable[SimpleCommand]) -> tuple[SimpleCommand, ...] | None:
        """Return the commands of the text with their documents, or None if one is not found."""
        found: list[SimpleCommand] = []
        left = {f"{_PLACE}{number}": one for number, one in enumerate(self.documents)}
        for command in commands:
            redirections = tuple(
                [
                    Redirection("<<", left.pop(one.target.text))
                    if one.operator == "<" and one.target.text in left
                    else one
                    for one in command.redirections
                ]
            )
            found.append(replace(command, redirections=redirections))
        return None if left else tuple(found)


def lifted(text: str) -> Lifted | None:
    """Return a text without its here-documents, or None if it has none or could be misread."""
    if "<<" not in text or len(text) > _LONGEST or _PLACE in text or "\0" in text:
        return None
    parts: list[str] = []
    documents: list[Word] = []
    waiting: re.Match[str] | None = None
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        if waiting is not None and (step["start"] or ("\n" in step[0] and not step["end"])):
            # Two documents on one line, or a line that goes on.
            return None
        at = step.end()
        if step["start"]:
            waiting = step
            parts.append(f"<{_PLACE}{len(documents)}")
            continue
        parts.append(step[0])
        if step["end"] and waiting is not None:
            document = _document(text, at, waiting)
            if document is None:
                return None
            word, at = document
            documents.append(word)
            waiting = None
    return None if waiting is not None else Lifted("".join(parts), tuple(documents))


def _document(text: str, begin: int, start: "re.Match[str]") -> tuple[Word, int] | None:
    """Return a document and the place behind its delimiter, or None if it is not literal."""
    delimiter = start["delimiter"].strip("'\"\\")
    at = begin
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if (line.lstrip("\t") if start["strip"] else line) == delimiter:
            body = text[begin:at]
            if start["delimiter"] != delimiter:
                return Word(body), end + 1
            named = frozenset(_NAMED.findall(body))
            return None if _LIVE.search(body) else (Word(body, variables=named), end + 1)
        at = end + 1
    return None
