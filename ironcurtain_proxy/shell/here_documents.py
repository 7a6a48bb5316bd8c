"""Here-documents taken out of a text before the grammar reads it.

The grammar (tree-sitter-bash 0.25) drops a word such as `-` before a redirection, and takes what
follows the delimiter of a here-document for something else. Both are what agents write all day:

    git commit -F - <<'EOF' && git push        git commit -F - </here-document-0 && git push
    a message                             →
    EOF

To a shell, `<<'EOF'` stands where any redirection of the input may stand, and the lines of the
document begin behind the end of its line. So a document becomes a redirection from a file that no
text names, and is given back once the rest was read. A `-` before `2>&1` becomes `'-'`.

This is right only if the `<<` is an operator and the line ends where this module thinks. So the
text is gone through from its beginning, and is left alone where something stands in which quotes
or ends of lines could mean something else: a substitution that is not plain, arithmetic, `$'…'`.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

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
          | \$\([\w ./=,:@%+-]*\) )*+ "
    | \$\w+ | \$\{\w+\} | \$[?!$@*] | \$\([\w ./=,:@%+-]*\)
    | \\\n | \\[^\n](?!\#)
    | <<<(?!<) | <(?![<(]) | (?<![<>])\((?!\()
    """,
    re.VERBOSE | re.ASCII,
)
_LIVE: Final = re.compile(r"[`\\]|\$[^A-Za-z_\s]")
"""Text that a document whose delimiter is not quoted may not contain."""
_NAMED: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_DASH: Final = re.compile(r"(?<=[ \t])-(?=[ \t]+[0-9]*[<>&])")
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
    dashes = {found.start() for found in _DASH.finditer(text)}
    if not ("<<" in text or dashes) or len(text) > _LONGEST or _PLACE in text or "\0" in text:
        return None
    parts: list[str] = []
    documents: list[Word] = []
    waiting: list[re.Match[str]] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        if waiting and "\n" in step[0] and not step["end"]:
            # A line that goes on.
            return None
        if step["start"]:
            parts.append(f"<{_PLACE}{len(documents) + len(waiting)}")
            waiting.append(step)
        else:
            parts.append(_with_dashes(step, dashes))
        at = step.end()
        while step["end"] and waiting:
            document = _document(text, at, waiting.pop(0))
            if document is None:
                return None
            word, at = document
            documents.append(word)
    return None if waiting else Lifted("".join(parts), tuple(documents))


def _with_dashes(step: "re.Match[str]", dashes: AbstractSet[int]) -> str:
    """Return a part of the text with quotes around each `-`, unless it is quoted or a comment."""
    if step[0][0] in "'\"$\\#":
        return step[0]
    signs = enumerate(step[0], step.start())
    return "".join(["'-'" if at in dashes else sign for at, sign in signs])


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
