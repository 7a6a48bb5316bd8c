"""The words of settings and scripts: which may be paths, and which of these are told as a value.

A value that may be a path, such as `"apiKeyHelper": "tools/key"`, or what a shell evaluates, such
as `eval "$(cat env)"`, is what programs start or load as soon as it is there.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from ironcurtain_proxy.control_places.rules import is_in_cache, read_names
from ironcurtain_proxy.model.values import lazy

WORDS: Final = lazy(r"[^\s\"'\\`=;|&()<>!,:\[\]]+")
"""The words of commands, which may be paths."""
QUOTED: Final = (lazy(r"\"([^\"\n]{1,256})\""), lazy(r"'([^'\n]{1,256})'"))
"""A path may hold blanks, or signs that end a word."""
_ESCAPED: Final = lazy(r"\\(?:u([0-9A-Fa-f]{4})|([\"/nt]))")
_MEANT: Final = {'"': "'", "/": "/", "n": ";", "t": " "}
SCRIPTS: Final = lazy(r"\.(?:[bz]?a?sh|py|pl|rb|[cm]?[jt]s|lua|php|R|exe)\Z")
ENDING: Final = lazy(r"[^.%]\.[A-Za-z]\w*\Z", re.ASCII)
"""Of a file: `sed -f strip.sed` runs what stands there, as `awk -f` does."""
NAMES_OPENED_FILES: Final = "xml"
SET: Final = lazy(
    r"\b([A-Z][A-Z\d_]{2,40})\b[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"'(]?([^\s;\"')]{1,4096})"
)
"""A variable that is set to a path: `A=x/y`, `"A": "x/y"`, `set -x A x/y`."""
_VALUES: Final = lazy(
    r"(?m)\"((?:[^\"\\\n]|\\.){0,256})\"(?:\s*:)?|'([^'\n]*)'"
    r"|^[ \t]*(?:- +)*(?:[\w.-]+: +)?([\w./$][^\"'\n]*)$"
)
"""Strings of JSON and TOML, keys with their colon, and values of lines of YAML."""
_SPOKEN_OF: Final = lazy(
    r"(?i)(?:exclude|ignore|associations|globs?|patterns?|(?<!exec_)files|match|url|schemas?|customData|sources"
    r"|standard(?:output|error)|pidfile|path(?:changed|modified|exists)|read\w*paths|icon"
    r"|model|label|outputs|headers|words|recommendations|(?:stub|template|locales|extra|root|testing?)Paths?"
    r"|openapi\.file)[\"']?\s*[:=]\s*"
    # Without quotes a value ends at a blank: what follows `--url=x` may be a program.
    r"(?:\[[^\]]{0,4096}|\{[^}]{0,4096}|\"[^\"\n]{0,4096}|'[^'\n]{0,4096}|[^\s,;}]{0,4096})"
    r"|(?i:(?<![\w.])(?:state|cache|pid|socket|heartbeat|history|database|db)"
    r"(?:[-_]?(?:file|path|dir))?)[\"',\s:=]{1,4}/[^\s\"',;}]{1,4096}"
    r"|(?<![\w-])-o[\"']\s*,\s*[\"'][^\"'\n]{0,4096}"
)
_PROMPTS: Final = (".md", ".mdc", ".txt")
_OF_VARIABLE: Final = lazy(r"(?:\$(?:\w+\$?|\{[^}]*\})|\{\{[^}]*\}\}|~|%h)/|/+")
_EVALUATED: Final = lazy(
    r"(?m)(?:^|[;&|{(!]|\b(?:then|do|else)\b)[ \t]*"
    r"(?:(?:eval|source\w*|\.)[ \t][^\n]{0,255}?(?=[$<]\(|[`<])"
    r"|(?:export|declare)[ \t]+[\"']?(?=\$\(|`))([^\n]{1,4096})"
    r"|^[ \t]*use[ \t]+(?:nix|flake)[ \t]([^\n;&|]{1,4096})"
)
"""What a shell evaluates: `eval "$(cat x)"`, `source <(sops -d x/y)`, `use nix x.nix`."""
_SHOWN: Final = lazy(r"(?:\b(?:cat|grep|sed|find_up|expand_path)\b|<(?!\())([^<|;&)`\n]+)")
"""The files of which the content, or the path, is evaluated: they need no slash in their names."""
_GOES_TO: Final = lazy(
    r"(?:\b(?:cd|pushd|chdir)[ \t]+|(?:--(?:directory|prefix|cwd)|(?<![\w-])-C)[\s,=]+"
    r"|\b(?:cwd|root|dir)\s*[:=]\s*)((?:\$?\{{1,2}[^{}\s]{1,99}\}{1,2})?[^\s;&|()<>,`=}\]]+)"
)
"""Where commands go, though no directory is there yet. It is read without quotes."""
_MOST_GONE_TO: Final = 32
_PATH: Final = lazy(r"\.{0,2}/?[\w@](?:[\w.@+/ -]*[\w+-])?")


def values_of(name: str, text: str) -> Iterator[str]:
    """Yield relative paths of what may be programs, or what they load, there or not.

    What is a directory stays open; so do documents and data.
    """
    ending, table = name.rpartition(".")[2], read_names().commands
    if is_shells(name):
        parts = [one or more for one, more in _EVALUATED.findall(text)]
        words = [one for one in words_in(parts) if "/" in one or ENDING.search(one)]
        words += words_in(chain.from_iterable(map(_SHOWN.findall, parts)))
    elif ending in table["code"]:
        words = [one for kind in QUOTED for one in kind.findall(text) if "/" in one]
        words += [one for one in WORDS.findall(text) if ending == "nix" and one.startswith("./")]
    elif ending == NAMES_OPENED_FILES:
        words = []
    else:
        # What a variable is set to is read by its name.
        text = SET.sub("", without_spoken_of(text))
        words = [one for one in words_of_values(text) if "/" in one]
    for one in map(relative, words):
        if is_data(one) or one.lower().endswith(table["data_endings"]):
            continue
        if _PATH.fullmatch(one) and not is_in_cache(one.split("/")):
            yield one


def below_where_they_go(text: str, named: Iterable[str], coming: Iterable[str]) -> Iterator[str]:
    """Yield the programs that commands start in a directory to which they go: `cd x && ./y`."""
    found = _GOES_TO.findall(text.replace('"', "").replace("'", ""))
    places = [relative(one).rstrip("/") for one in found]
    started = [*coming, *[one for one in named if SCRIPTS.search(one)]]
    started = [one.removeprefix("./") for one in started if "*" not in one and one[:1] not in "/$"]
    for place in dict.fromkeys([one for one in places if _PATH.fullmatch(one)][:_MOST_GONE_TO]):
        yield from [f"{place}/{one}" for one in started if not one.endswith("/")]


def words_of_values(text: str) -> Iterator[str]:
    """Yield what may be programs in settings, whatever the names of their keys.

    Of one that begins with an interpreter every word; of others the first, if it is a path or all
    that there is: `"apiKeyHelper": "tools/key.sh --short"`, `_.file = "local.env"`. The text is
    without what it only speaks of.
    """
    for one in _VALUES.finditer(text):
        if one[0].endswith(":"):
            continue
        words = WORDS.findall(next(filter(None, one.groups()), ""))
        if words and words[0].rpartition("/")[2] not in read_names().commands["interpreters"]:
            is_path = "/" in words[0] or len(words) == 1
            words = words[:1] if is_path and not words[0].endswith(_PROMPTS) else []
        yield from words


@lru_cache(maxsize=1)
def without_spoken_of(text: str) -> str:
    """Return a text without what it only speaks of; each is asked about twice in a row."""
    return _SPOKEN_OF.sub("", text)


def is_data(word: str) -> bool:
    """Return whether a word is a document, or what programs find by its name anyway."""
    return word.rpartition("/")[2] in read_names().commands["manifests"] or word.endswith(".md")


def words_in(parts: Iterable[str]) -> Iterable[str]:
    """Return the words of some texts."""
    return chain.from_iterable(map(WORDS.findall, parts))


def relative(word: str) -> str:
    """Return a word without what stands for the directory in which it lies."""
    return word[found.end() :] if (found := _OF_VARIABLE.match(word)) else word


def is_code(name: str) -> bool:
    """Return whether a file is a script, by its name."""
    return is_shells(name) or SCRIPTS.search(name) is not None


def is_shells(name: str) -> bool:
    """Return whether a file is a script of a shell, by its name."""
    stem, _, ending = name.rpartition(".")
    return not stem or ending in read_names().commands["shells"] or name.startswith(".envrc")


def unescaped(name: str, text: str) -> str:
    """Return a text with what JSON escapes as it is meant, and quotes in strings as apostrophes."""
    if is_shells(name) or "\\" not in text:
        return text
    return _ESCAPED.sub(lambda one: chr(int(one[1], 16)) if one[1] else _MEANT[one[2]], text)
