"""A message taken apart: requests, each with its verb and the things it names.

Pure: no I/O, no clock, no log. This file knows how people write requests; it does not know the call
that is to be approved, nor whether anything fits. What it does not understand it says so of:
a message is understood whole or not at all.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.auto_approver.target_words import (
    COURTESIES,
    FAMILIAR_FOLDERS,
    LEADING,
    LEADING_PHRASES,
    PREPOSITIONS,
    SYNONYMS,
    VERBS,
)

Kind: TypeAlias = Literal["word", "literal", "path", "url", "email", "number", "name", "mark"]
"""`literal`: quoted. `name`: could be the name of anything. `mark`: what separates requests."""


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of a message."""

    kind: Kind
    text: str
    """As it was written; a word in lower case, a literal without its quotes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One imperative."""

    verb: str
    tokens: tuple[Token, ...]
    """What follows the verb."""
    literal_git: bool = False
    """Whether it is written as a command of git: `git push origin main`."""


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """Why a message approves nothing."""

    reason: str


MAX_MESSAGE: Final = 4000
"""Characters. Nobody types more to ask for one thing; it is pasted text."""

_QUOTES: Final = {"'": "'", '"': '"', "`": "`", "\u201c": "\u201d", "\u2018": "\u2019"}
_BEFORE_QUOTE: Final = " "
_AFTER_QUOTE: Final = " .,;!"
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s]+|[\w.-]+@[\w.-]+:[^\s]+", re.ASCII)
_NUMBER: Final = re.compile(r"#?\d{1,12}", re.ASCII)
_NAME: Final = re.compile(
    r"[A-Za-z0-9#@_.](?:[A-Za-z0-9#@_./+:-]*[A-Za-z0-9_/])?|--?[a-z-]+", re.ASCII
)
_WORD: Final = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*", re.ASCII)
_PATH: Final = re.compile(r"(?:/|~/|\./)[^\s]*|~")
_MARKS: Final = ".,;!"


def requests_of(message: str, vocabulary: frozenset[str]) -> tuple[Request, ...] | NotUnderstood:
    """Take a message apart.

    Args:
        message: the user's, as it came.
        vocabulary: the words that are words, and not names.
    """
    message = message.strip()
    for is_so, reason in _STRANGE:
        if is_so(message):
            return NotUnderstood(reason)
    tokens = _tokens(message, vocabulary)
    if isinstance(tokens, NotUnderstood):
        return tokens
    found: list[Request] = []
    for clause in _clauses(tokens):
        request = _request(clause)
        if isinstance(request, NotUnderstood):
            return request
        if request is not None:
            found.append(request)
    return tuple(found)


def _is_question(message: str) -> bool:
    return "?" in re.sub(r"[a-z]+://\S*[^\s?.,;!]", "", message)


_STRANGE: Final[tuple[tuple[Callable[[str], bool], str], ...]] = (
    (lambda message: len(message) > MAX_MESSAGE, "the message is too long to be one request"),
    (lambda message: "\n" in message, "the message has several lines, and some may be pasted"),
    (
        lambda message: not message.isprintable(),
        "the message has characters in it that cannot be seen",
    ),
    (_is_question, "the message asks a question"),
)


def _tokens(message: str, vocabulary: frozenset[str]) -> list[Token] | NotUnderstood:
    tokens: list[Token] = []
    for piece in _pieces(message):
        if isinstance(piece, Token):
            tokens.append(piece)
            continue
        body = piece.rstrip(_MARKS)
        marks = piece[len(body) :]
        if len(marks) > 1 and marks != "!!":
            # Three dots leave a sentence open: "push to origin..." is waiting for the rest.
            return NotUnderstood("the message does not end its sentences plainly")
        if body:
            token = _token(body, vocabulary)
            if token is None:
                return NotUnderstood("the message holds something that is neither word nor name")
            tokens.append(token)
        if marks:
            tokens.append(Token("mark", marks[0]))
    return _with_folders(_joined(tokens))


def _pieces(message: str) -> Iterator[str | Token]:
    """What stands between spaces, with quoted text in one piece."""
    at = 0
    while at < len(message):
        character = message[at]
        if character.isspace():
            at += 1
        elif character in _QUOTES and (end := _closing(message, at)) is not None:
            yield Token("literal", message[at + 1 : end])
            at = end + 1
        else:
            start = at
            while at < len(message) and not message[at].isspace():
                at += 1
            yield message[start:at]


def _closing(message: str, at: int) -> int | None:
    """Where the quotation that begins here ends; None: it is an apostrophe."""
    if at and message[at - 1] not in _BEFORE_QUOTE:
        return None
    quote = _QUOTES[message[at]]
    end = at
    while (end := message.find(quote, end + 1)) != -1:
        if end + 1 == len(message) or message[end + 1] in _AFTER_QUOTE:
            return end
    return None


def _token(text: str, vocabulary: frozenset[str]) -> Token | None:
    lower = text.lower()
    if _WORD.fullmatch(text) and lower in vocabulary:
        return Token("word", lower)
    if _NUMBER.fullmatch(text):
        return Token("number", text.removeprefix("#"))
    if _URL.fullmatch(text):
        return Token("url", text)
    if _EMAIL.fullmatch(text):
        return Token("email", text)
    if _PATH.fullmatch(text):
        return Token("path", text)
    return Token("name", text) if _NAME.fullmatch(text) else None


_TOGETHER: Final = {
    ("pull", "request"): Token("word", "pr"),
    ("check", "out"): Token("word", "checkout"),
    ("force", "push"): Token("word", "force-push"),
}


def _joined(tokens: list[Token]) -> list[Token]:
    joined: list[Token] = []
    for token in tokens:
        pair = (joined[-1].text if joined else "", token.text)
        if token.kind == "word" and pair in _TOGETHER:
            joined[-1] = _TOGETHER[pair]
            continue
        plain = SYNONYMS.get(token.text, token.text) if token.kind == "word" else token.text
        joined.append(Token(token.kind, plain))
    return joined


def _with_folders(tokens: list[Token]) -> list[Token]:
    """`my Documents folder` is `~/Documents`."""
    folded: list[Token] = []
    for token in tokens:
        before = folded[-1] if folded else None
        if (
            token.kind == "word"
            and token.text in {"folder", "directory"}
            and before is not None
            and before.kind in {"word", "name"}
            and before.text.lower() in FAMILIAR_FOLDERS
        ):
            folded[-1] = Token("path", f"~/{before.text.capitalize()}")
            continue
        folded.append(token)
    return folded


def _clauses(tokens: list[Token]) -> Iterator[tuple[Token, ...]]:
    """Cut where a new imperative begins: at a full stop, or at `and` or a comma before a verb."""
    clause: list[Token] = []
    for at, token in enumerate(tokens):
        hard = token.kind == "mark" and token.text != ","
        soft = (token.kind == "mark" or token.text in {"and", "then"}) and _begins(tokens, at + 1)
        if hard or soft:
            yield tuple(clause)
            clause = []
        else:
            clause.append(token)
    yield tuple(clause)


def _begins(tokens: list[Token], at: int) -> bool:
    """Whether an imperative begins here."""
    while at < len(tokens) and tokens[at].kind == "word" and tokens[at].text in LEADING:
        at += 1
    if at >= len(tokens):
        return False
    here = tokens[at]
    followed = at + 1 < len(tokens) and tokens[at + 1].kind != "mark"
    return here.kind == "word" and (here.text in VERBS or here.text == "git") and followed


def _request(clause: tuple[Token, ...]) -> Request | NotUnderstood | None:
    """Read one clause. None: it says nothing."""
    words = [token.text if token.kind == "word" else "" for token in clause]
    if not words or tuple(words) in COURTESIES:
        return None
    at = 0
    while at < len(words):
        phrase = next((p for p in LEADING_PHRASES if tuple(words[at : at + len(p)]) == p), None)
        if phrase is not None:
            at += len(phrase)
        elif words[at] in LEADING or (clause[at].kind == "mark" and clause[at].text == ","):
            at += 1
        else:
            break
    literal_git = at < len(words) and words[at] == "git"
    at += literal_git
    if at >= len(words) or words[at] not in VERBS:
        return NotUnderstood("not every sentence of the message is a plain request")
    rest = clause[at + 1 :]
    if rest and rest[-1].kind == "word" and rest[-1].text in PREPOSITIONS:
        return NotUnderstood("a request in the message breaks off")
    return Request(words[at], rest, literal_git)
