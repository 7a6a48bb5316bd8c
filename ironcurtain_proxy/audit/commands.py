"""Secrets by what they are called: by a telling name, or as an option of a program.

A name such as `password` tells. Where the option's name does not (`mysql -pX`, `zip -P X`),
the table `secret_options.txt` says where each program takes one. A text is read once: a search for
the programs' names, then the words of the command up to its end. It does not run a shell: what a
variable or a file holds is not looked up, and is no secret in the text.

What is written into a file of the table of `credentials` is secret without name or format:

    {"path": "/home/me/.pgpass", "content": "db:5432:shop:me:x"}      a tool that writes files
    echo 'machine h login me password x' >> ~/.netrc                  a command
    cat > .env <<EOF ... EOF                                          and a here-document

Masked are the texts that a call brings: contents, and what `echo`, `printf` and a here-document
write. What a file holds already is not looked up. Nothing is masked for the name alone: `cat .env`
stays, and so does a copy of one such file to another.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ahocorasick_rs import AhoCorasick, BytesAhoCorasick, MatchKind
from msgspec import Struct

from ironcurtain_proxy.credentials import is_credential, names, places
from ironcurtain_proxy.model.values import lazy

WORD_LISTS: Final = MappingProxyType(
    {
        name: tuple(found.split())
        for name, found in re.findall(
            r"^= (\w+)\n((?:[^=#\n].*\n)+)",
            Path(__file__).with_name("telling_words.txt").read_text("utf-8"),
            re.MULTILINE,
        )
    }
)
"""Read at import: the first record may be written while no descriptor is free."""


def is_telling(name: str) -> bool:
    """Return whether a key of this name holds a secret: `password`, `X-Api-Key`, `githubToken`.

    Also if more follows that does not change what it is: `password2`, `user[password]`,
    `password_confirmation`. `max_tokens`, `nextPageToken` and `password_file` do not.
    """
    plain = _squeezed(name)
    if _PASS.search(name[-_NAME_TAIL:]):
        return True
    if plain in _WORKING_DIRECTORIES or plain.endswith(_HARMLESS_ENDINGS):
        return False
    if plain.endswith(TELLING_ENDINGS) or plain in TELLING_NAMES:
        return True
    bare = _MORE.sub("", _NO_LETTERS.sub("", plain))
    return bare.endswith(_WITH_MORE) and not bare.endswith(_HARMLESS_ENDINGS)


def is_working_directory(name: str) -> bool:
    """Return whether a name means a directory in a shell, and a password in a connection string."""
    return _squeezed(name) in _WORKING_DIRECTORIES


def is_ssn_name(name: str) -> bool:
    """Return whether a key of this name holds a social security number."""
    plain = _squeezed(name)
    return plain.endswith("ssn") or "socialsecurity" in plain


def is_telling_option(text: str) -> bool:
    """Return whether an argument, such as `--password`, says that the next one is a secret."""
    return text.startswith("-") and is_telling(text)


def _squeezed(name: str) -> str:
    return name[-_NAME_TAIL:].lower().translate(_SEPARATORS)


_NAME_TAIL: Final = 128
_SEPARATORS: Final = str.maketrans("", "", " -_")
TELLING_ENDINGS: Final = WORD_LISTS["endings"]
TELLING_NAMES: Final = WORD_LISTS["names"]
_HARMLESS_ENDINGS: Final = WORD_LISTS["harmless"]
_NO_LETTERS: Final = lazy(r"[^a-z0-9]", re.ASCII)
_MORE: Final = lazy(
    r"(?:[0-9]|confirmation|confirm|repeat|again|value|plaintext|plain|base64|b64|pem|raw)+\Z",
    re.ASCII,
)
_WITH_MORE: Final = WORD_LISTS["with_more"]
_WORKING_DIRECTORIES: Final = frozenset({"pwd", "oldpwd"})
"""Shells and tools name a directory so; `db_pwd` is a password."""
_PASS: Final = lazy(r"[_.-](?:[Pp]ass|PASS|[Pp]w|PW)\Z|[a-z0-9](?:Pass|Pw)\Z|(?:^|[_ ])secret_id\Z")
"""`pass` as a word of its own, which `bypass` and `compass` do not have. A `--secret-id` names an
entry of a store, a `secret_id` of a role is its password."""


_TABLE: Final = Path(__file__).with_name("secret_options.txt").read_text("utf-8")
"""Read at import: the first record may be written while no descriptor is free."""
_LONGEST: Final = 8192
"""Characters of a command that are read."""
_MOST_WORDS: Final = 400
_WORD: Final = lazy(
    r"""[ \t]*+(?:\\\r?\n[ \t]*+)*+"""
    r"""(<<<|(?:[^\s"'\\;|&<>()`]|\\[^\n]|"(?:[^"\\]|\\.)*+"?|'[^']*+'?)++)"""
)
_ELSEWHERE: Final = lazy(r"""\\?["']?(?:\$[\w{(]|`|env:|file:|fd:|stdin\b|@|/dev/|-?\\?["']?\Z)""")
"""The beginning of a value that says where the secret is."""
_PART_OF_NAMES: Final = frozenset(
    bytes([one]) for one in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
)
_ESCAPES: Final = (b"\\n", b"\\t")
_QUOTES: Final = "\"'"
_SIGNS: Final = frozenset(":%,=")


class _Word(NamedTuple):
    start: int
    end: int
    text: str
    """Without the quotes around it."""


class _Rule(Struct, frozen=True, kw_only=True):
    """The places where a program takes a secret."""

    needed: tuple[str, ...]
    following: frozenset[str]
    attached: tuple[str, ...]
    joined: tuple[tuple[str, str], ...]
    """Options, and the sign in their value that a secret follows."""
    after: tuple[tuple[str, int], ...]
    """Words after which a secret follows, and its distance in words."""
    last: tuple[tuple[str, int], ...]
    """Words after which the last word is a secret, if at least so many words follow."""
    others: frozenset[str]
    """The places without a name: `?>>`, `=>`, `/>` and `<<<`."""


def holds_command(raw: bytes) -> bool:
    """Return whether a command with a secret stands in any text that this is the JSON of."""
    searches = _searches()
    passed: set[int] = set()
    for program, start, _ in searches.raw.find_matches_as_indexes(raw):
        before = raw[start - 1 : start]
        if program in passed or (
            before in _PART_OF_NAMES and raw[start - 2 : start] not in _ESCAPES
        ):
            continue
        passed.add(program)
        if any(all(word in raw for word in needed) for needed in _needed(searches.names[program])):
            text = raw.decode("utf-8", "replace")
            text = text.replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t")
            return next(secrets_of_commands(text), None) is not None
    return False


def secrets_of_commands(text: str) -> Iterator[tuple[int, int]]:
    """Yield the beginnings and ends of secrets in the commands of a text, from left to right."""
    done = 0
    table = _rows()
    for _, start, _ in _searches().text.find_matches_as_indexes(text):
        if start < done or (text[start - 1 : start].encode() in _PART_OF_NAMES and start > 0):
            continue
        words = list(_words(text, start))
        spans: set[tuple[int, int]] = set()
        passed: set[str] = set()
        for number, word in enumerate(words):
            program = _base(word.text)
            if program in table and program not in passed:
                passed.add(program)
                for rule in rules_of(program):
                    spans |= set(_spans(rule, words[number:], text))
        yield from _apart(sorted(spans))
        done = words[-1].end if words else start


class _Searches(NamedTuple):
    text: AhoCorasick
    raw: BytesAhoCorasick
    names: list[str]
    """The programs."""


@cache
def _searches() -> _Searches:
    """Return the searches for the programs of the table, in text and in bytes."""
    sought = [f"{name} " for name in _rows()]
    return _Searches(
        AhoCorasick(sought, matchkind=MatchKind.LeftmostFirst),
        BytesAhoCorasick(map(str.encode, sought), matchkind=MatchKind.LeftmostFirst),
        [*_rows()],
    )


@cache
def _needed(program: str) -> set[tuple[bytes, ...]]:
    """Return sets of words, of which the text of a program's command with a secret holds one."""
    return {_needed_by(rule) for rule in rules_of(program)}


def _needed_by(rule: _Rule) -> tuple[bytes, ...]:
    places = {*rule.following, *rule.attached, *[name for name, _ in rule.joined]}
    least = [one.rstrip("*") for one in rule.needed if not one.endswith("~")]
    if places and not (rule.after or rule.last or rule.others):
        least += places if len(places) == 1 else {"-"}
    return tuple([word.encode() for word in least])


def _apart(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    done = 0
    for start, end in spans:
        if start >= done and end > start:
            yield start, end
            done = end


def _words(text: str, start: int) -> Iterator[_Word]:
    at, end = start, min(len(text), start + _LONGEST)
    for _ in range(_MOST_WORDS):
        match = _WORD.match(text, at, end)
        if match is None:
            return
        start, at = match.span(1)
        yield _Word(start, at, match[1].strip("\"'"))


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _spans(rule: _Rule, words: Sequence[_Word], text: str) -> Iterator[tuple[int, int]]:
    if not all(_is_met(one, words) for one in rule.needed):
        return
    for word, following in zip(words, [*words[1:], None], strict=True):
        yield from _of_option(rule, word, following, text)
        yield from _of_others(rule, word, following, text)
    for name, count in rule.after:
        for number, word in enumerate(words[: len(words) - count]):
            is_it = word.text.startswith(name) if name[-1] in "./" else word.text == name
            if is_it and not words[number + count].text.startswith("-"):
                yield from _value(text, words[number + count])
    for name, least in rule.last:
        yield from _last(name, least, words, text)


def _last(name: str, least: int, words: Sequence[_Word], text: str) -> Iterator[tuple[int, int]]:
    """Yield the last word that is no option, if there are enough after a word."""
    for number, word in enumerate(words):
        if _base(word.text) == name:
            plain = [
                one
                for one in words[number + 1 :]
                if one.text[:1] not in "-/" and "=" not in one.text
            ]
            if len(plain) >= least:
                yield from _value(text, plain[-1])
            return


def _of_option(
    rule: _Rule, word: _Word, following: _Word | None, text: str
) -> Iterator[tuple[int, int]]:
    name, is_given, _ = word.text.partition("=")
    if word.text in rule.following and following is not None:
        yield from _value(text, following)
    elif is_given and name in rule.following:
        yield from _value(text, word, text.index("=", word.start) + 1)
    for one in rule.attached:
        if text.startswith(one, word.start) and len(word.text) > len(one):
            yield from _value(text, word, word.start + len(one))
    for one, sign in rule.joined:
        yield from _joined(one, sign, word, following, text)


def _joined(
    option: str, sign: str, word: _Word, following: _Word | None, text: str
) -> Iterator[tuple[int, int]]:
    """Yield what follows a sign in the value of an option, which is attached or the next word."""
    start = word.start + len(option)
    if word.text == option and following is not None:
        word, start = following, following.start
    elif not text.startswith(option, word.start):
        return
    elif text[start : start + 1] == "=":
        start += 1
    elif option.startswith("--"):
        return
    at = text.find(sign, start, word.end)
    if at >= 0 and not _ELSEWHERE.match(text, start, word.end):
        yield from _value(text, word, at + 1)


def _of_others(
    rule: _Rule, word: _Word, following: _Word | None, text: str
) -> Iterator[tuple[int, int]]:
    others = rule.others
    if following is not None and (
        ("<<<" in others and word.text == "<<<")
        or ("?>>" in others and word.text[:1] != "-" and is_telling(word.text))
    ):
        yield from _value(text, following)
    if "=>" in others and not word.text.startswith("-"):
        at = text.find("=", word.start, word.end)
        if at >= 0:
            yield from _value(text, word, at + 1)
    if "/>" in others and _LOGIN.match(word.text):
        at = text.find("@", word.start, word.end)
        yield from _value(
            text,
            word if at < 0 else word._replace(end=at),
            text.find("/", word.start, word.end) + 1,
        )


def _value(text: str, word: _Word, start: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the place of a value without its quotes, unless it says where the secret is.

    It is the whole word, or what begins in it at `start`.
    """
    start, end = word.start if start is None else start, word.end
    if _ELSEWHERE.match(text, start, end):
        return
    while start < end and text[start] in "\\\"'":
        start += 1
    # A quote that began before the command ends it.
    stop = min([at for quote in _QUOTES if (at := text.find(quote, start, end)) >= 0], default=end)
    while stop > start and text[stop - 1] == "\\":
        stop -= 1
    yield start, stop


def _is_met(needed: str, words: Sequence[_Word]) -> bool:
    match needed[-1]:
        case "~":
            return any(_has_flag(word.text, needed[1]) for word in words)
        case "*":
            return any(word.text.startswith(needed[:-1]) for word in words)
        case _:
            return any(word.text == needed for word in words)


def _has_flag(word: str, flag: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and flag in word


_LOGIN: Final = lazy(r"\w{1,30}/[^/@\s]{1,64}(?:@.*)?\Z", re.ASCII)


@cache
def _rows() -> dict[str, list[str]]:
    """Return the lines of the table by their programs. Read on first use."""
    found: dict[str, list[str]] = {}
    for line in _TABLE.splitlines():
        if line and not line.startswith("#"):
            for program in line.partition("|")[0].split():
                found.setdefault(program, []).append(line)
    return found


@cache
def rules_of(program: str) -> list[_Rule]:
    """Return the rules of a program. Most programs are never met, and never read."""
    parts = [line.split("|") for line in _rows().get(program, ())]
    return [_rule(tuple(needed.split()), places.split()) for _, needed, places in parts]


def _rule(needed: tuple[str, ...], places: Sequence[str]) -> _Rule:
    following, attached, joined, after, last, others = [], [], [], [], [], []
    for place in places:
        if place in _OTHERS:
            others.append(place)
        elif ">>" in place:
            after.append((place.rstrip(">"), place.count(">") - 1))
        elif ">" in place:
            word, _, least = place.partition(">")
            last.append((word, int(least)))
        elif place[-1] in "*+":
            attached.append(place[:-1])
            following += [place[:-1]] if place[-1] == "+" else []
        elif place[-1] in _SIGNS:
            joined.append((place[:-1], place[-1]))
        else:
            following.append(place)
    return _Rule(
        needed=needed,
        following=frozenset(following),
        attached=tuple(attached),
        joined=tuple(joined),
        after=tuple(after),
        last=tuple(last),
        others=frozenset(others),
    )


_OTHERS: Final = frozenset({"?>>", "=>", "/>", "<<<"})


# --- what is written into files of credentials

_CONTENTS: Final = frozenset(WORD_LISTS["contents"])


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
    """Return whether JSON text may write into a file of credentials. In doubt, yes.

    It does not where `credentials_named` finds nothing in it, in lower case.
    """
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
def credentials_named() -> BytesAhoCorasick:
    """Return the search for the parts of names that every such path holds."""
    parts = {max(name.lower().replace("*", "/").split("/"), key=len) for name in _NAMES}
    return BytesAhoCorasick([part.encode() for part in parts])
