"""What is written into a file of the table of `credentials`: it is secret without name or format.

    {"path": "/home/me/.pgpass", "content": "db:5432:shop:me:x"}      a tool that writes files
    echo 'machine h login me password x' >> ~/.netrc                  a command
    cat > .env <<EOF ... EOF                                          and a here-document

Masked are the texts that a call brings: contents, and what `echo`, `printf` and a here-document
write. What a file holds already is not looked up. Nothing is masked for the name alone: `cat .env`
stays, and so does a copy of one such file to another.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from ahocorasick_rs import BytesAhoCorasick

from ironcurtain_proxy.credentials.table import is_credential, names, places
from ironcurtain_proxy.lazy_pattern import lazy
from ironcurtain_proxy.model.values import words

_CONTENTS: Final = words(
    """
    content contents text data body value filetext file_text filecontent file_content newcontent
    new_content inserttext insert_text newstr new_str newstring new_string newtext new_text
    newsource new_source oldstr old_str oldstring old_string oldtext old_text edits edit patch diff
    lines input replacement replace
    """
)
"""The arguments in which tools take what they write into a file, or look for in it."""
_LONGEST_PATH: Final = 1024
_LONGEST_LINE: Final = 4096
_WRITES: Final = lazy(
    r"(?:>{1,2}\|?|\btee(?:[ \t]{1,4}(?:-a|--append))?(?=[ \t]))[ \t]{0,4}\\?[\"']?"
    r"(?P<path>[^\s\"'\\;|&<>()`]{1,256})"
)
"""A redirection into a file, or `tee FILE`."""
_SAYS: Final = lazy(
    r"\b(?:echo|printf)[ \t]{1,4}(?:-[neE]{1,3}[ \t]{1,4})?"
    r"(?P<said>(?:\\?\"(?:[^\"\\]|\\.)*+\"|'[^']*+'|[^\s\"'|;&<>]++|[ \t]++)++)"
)
_VARIABLE: Final = lazy(r"""\s*(?:\\?["']?\$\{?\w+\}?\\?["']?\s*)?""", re.ASCII)
_HERE: Final = lazy(r"<<-?[ \t]{0,4}\\?[\"']?(?P<end>\w{1,64})\b[\"']?|<<<[ \t]{0,4}(?P<word>\S++)")
_VALUE: Final = lazy(rb':"((?:[^"\\]|\\.){1,1024})"')
_REDIRECTED: Final = lazy(_WRITES.pattern.encode())
_CONTENT: Final = lazy(
    rb'"(?:' + b"|".join(sorted([one.encode() for one in _CONTENTS])) + rb')":', re.IGNORECASE
)
_NAMES: Final = (*names(), *[place.path for place in places()])
"""Read at import: the first record may be written while no descriptor is free."""


def brings_contents(name: str) -> bool:
    """Return whether an argument of this name is what a tool writes into a file."""
    return name.lower() in _CONTENTS


def writes_credentials(arguments: Mapping[str, object]) -> bool:
    """Return whether arguments name a file of credentials, and what to write into it."""
    return any(map(brings_contents, arguments)) and any(
        isinstance(value, str) and not brings_contents(name) and _is_one(value)
        for name, value in arguments.items()
    )


def holds_written(raw: bytes) -> bool:
    """Return whether JSON text may write into a file of credentials. In doubt, yes."""
    if not _search().find_matches_as_indexes(raw.lower()):
        return False
    if any(_is_one(found[1].decode("utf-8", "replace")) for found in _REDIRECTED.finditer(raw)):
        return True
    return _CONTENT.search(raw) is not None and any(
        _is_one(found[1].decode("utf-8", "replace")) for found in _VALUE.finditer(raw)
    )


def written_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of what commands of a text write into files of credentials."""
    done = 0
    for found in _WRITES.finditer(text):
        if found.start() < done or not _is_one(found["path"]):
            continue
        begin = max(text.rfind("\n", 0, found.start()) + 1, found.start() - _LONGEST_LINE, done)
        end = text.find("\n", found.end())
        end = len(text) if end < 0 else end
        said = deque(_SAYS.finditer(text, begin, found.start()), maxlen=1)
        if said and not _VARIABLE.fullmatch(said[0]["said"]):
            start = said[0].start("said")
            yield start, start + len(said[0]["said"].rstrip())
        here = _HERE.search(text, begin, min(end, begin + 2 * _LONGEST_LINE))
        if here is not None and here["end"] is not None:
            stop = _end_of(text, end + 1, here["end"])
            if stop > end + 1:
                yield end + 1, stop
                end = stop
        elif here is not None:
            yield here.span("word")
        done = end


def _end_of(text: str, start: int, word: str) -> int:
    """Return where a here-document ends, before the line with its last word."""
    ending = re.compile(rf"^[ \t]*{re.escape(word)}[ \t\"')]*$", re.MULTILINE).search(text, start)
    return len(text) if ending is None else max(ending.start() - 1, start)


def _is_one(path: str) -> bool:
    if len(path) > _LONGEST_PATH or "\n" in path:
        return False
    plain = path.removeprefix("file://").removeprefix("~").removeprefix("$HOME")
    return is_credential("/" + plain.lstrip("/"))


@cache
def _search() -> BytesAhoCorasick:
    """Return the search for the parts of names that every such path holds."""
    parts = {max(re.split(r"[*/]+", name.lower()), key=len) for name in _NAMES}
    return BytesAhoCorasick([part.encode() for part in parts])
