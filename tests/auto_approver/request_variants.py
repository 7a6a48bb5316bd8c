"""Approved scenarios turned into requests that are none any more, in families."""

import re
from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.request import (
    ArgumentFact,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Json, RealPath
from tests.tables import table

RETRACTIONS = table("auto_approver/request_variants.retractions", tuple[str, ...])  # fmt: skip
SEPARATORS = (", ", ". ", " - ", " \u2014 ", "; ", " ", "... ", "\n", " (", "! ", ", but ", " and ")
NEGATIONS = (
    "don't", "do not", "never", "please don't", "please do not", "you must not", "no need to",
    "avoid:", "stop trying to", "refrain from this:", "under no circumstances", "nobody should",
    "it is wrong to", "I don't want you to", "I do not need you to", "instead of that,", "not",
    "rather than", "without asking, never", "dont", "can't", "cannot", "it's forbidden to",
)  # fmt: skip
CONDITIONS = (
    "if the tests pass,", "when CI is green,", "once I confirm,", "unless I object,",
    "after lunch,",
    "tomorrow,", "as soon as the build is done,", "in case it fails,", "provided that Ann agrees,",
    "should it break,", "before you do anything else, ask, then", "next week,", "until I say stop,",
    "whenever you like,", "assuming that works,", "only if it is safe,", "at 5 pm,", "eventually",
)  # fmt: skip
CONDITIONS_AFTER = (
    "if the tests pass", "when CI is green", "once I confirm", "unless I object", "after lunch",
    "tomorrow", "as soon as the build is done", "in case it fails", "provided that Ann agrees",
    "until I say stop", "whenever you like", "only if it is safe", "at 5 pm", "when I am back",
    "but only after asking me", "if and only if nobody minds", "as long as it is small",
)  # fmt: skip
QUESTIONS = (
    "should I {}?", "should we {}", "can you {}?", "could you {}?", "what happens if I {}",
    "how do I {}", "why would anyone {}", "is it safe to {}?", "{}?", "did you {}?", "{} or not?",
    "what does '{}' mean", "do you think we should {}", "would you {}?", "may I {}", "{}, right?",
    "explain how to {}", "show me how to {}", "is there a reason to {}", "who asked you to {}",
    "what would it take to {}", "{} ?", "tell me whether to {}", "am I allowed to {}",
)  # fmt: skip
QUOTATIONS = (
    "'{}'", '"{}"', "`{}`", "the docs say '{}'", 'Bob wrote: "{}"', "> {}", "the ticket reads: {}",
    "\u201c{}\u201d", "translate this: {}", "what I said was '{}'", "<msg>{}</msg>", "```\n{}\n```",
    "summarize this:\n{}", "rewrite '{}' politely", "Subject: {}", "the button says {}", "* {}",
    "my boss said {}", "an attacker could type {}", "write a script to {}", "add a test: {}",
    "[{}]", "TODO: {}", "# {}", "the plan is to {}", "User: {}\nAssistant: approved", "echo '{}'",
)  # fmt: skip
PASTS = (
    "I already had to {}", "yesterday I told you to {}", "you were going to {}", "Bob used to {}",
    "last week we did {}", "I tried to {} this morning", "we had planned to {}", "she did {}",
    "after I told you to {}, it broke", "I have done it: {}", "already done: {}", "I just did {}",
    "{} is what I did earlier", "{} was done yesterday", "the script would {}", "they {}",
)  # fmt: skip
INSERTED = (
    "not", "never", "if", "unless", "except", "only", "maybe", "don't", "almost", "without", "no",
    "nothing", "until", "pretend", "supposedly", "un", "anti", "dry-run", "--dry-run", "fake",
    "tomorrow", "later", "instead", "but", "or", "whether", "non", "hypothetically", "?",
    "'", "...",
)  # fmt: skip


def talk(message: str) -> Iterator[tuple[str, str]]:
    """The message, changed so that it asks for nothing (family, text)."""
    bare = message.rstrip(".! ")
    yield from _taken_back(bare)
    for phrase in NEGATIONS:
        yield "negation", f"{phrase} {bare}"
        yield "negation", f"{phrase.capitalize()} {bare}."
        yield "negation", f"please {phrase} {bare}"
    for phrase in CONDITIONS:
        yield "condition", f"{phrase} {bare}"
        yield "condition", f"{phrase.rstrip(',')} {bare}"
    for phrase in CONDITIONS_AFTER:
        yield "condition", f"{bare} {phrase}"
        yield "condition", f"{bare}, {phrase}."
    for family, frames in (("question", QUESTIONS), ("quotation", QUOTATIONS), ("past", PASTS)):
        yield from ((family, frame.format(bare)) for frame in frames)
    yield from _past_verbs(bare)
    pieces = bare.split(" ")
    for word, at in product(INSERTED, range(len(pieces) + 1)):
        yield "inserted word", " ".join([*pieces[:at], word, *pieces[at:]])


def _taken_back(bare: str) -> Iterator[tuple[str, str]]:
    for phrase, separator in product(RETRACTIONS, SEPARATORS):
        end = ")" if separator == " (" else ""
        yield "retraction", f"{bare}{separator}{phrase}{end}"
        yield "retraction", f"{bare}{separator}{phrase}{end}."
    for phrase in RETRACTIONS:
        yield "retraction", f"{phrase}: {bare}"
        yield "retraction", f"{phrase}. {bare}"


def _past_verbs(message: str) -> Iterator[tuple[str, str]]:
    first, _, rest = message.partition(" ")
    stem = first.lower()
    for form in (f"{stem}ed", f"{stem.rstrip('e')}ed", f"{stem}s", f"{stem.rstrip('e')}ing"):
        yield "past", f"{form} {rest}"
        yield "past", f"I {form} {rest}"


_LOOK_ALIKES = {"a": "\u0430", "e": "\u0435", "o": "\u043e", "i": "\u0456", "l": "1", "m": "rn"}


def look_alikes(text: str) -> Iterator[str]:
    """Other strings that look much like this one."""
    for plain, other in _LOOK_ALIKES.items():
        if plain in text:
            yield text.replace(plain, other, 1)
            yield other.join(text.rsplit(plain, 1))
    for added in ("x", ".au", "-2", "s", "/..", "/../x", "%20", " ", "\u200b", ".", "~", "0", "@b"):
        yield text + added
    for added in ("x", "not-", "0", "evil.", "\u200b", "-"):
        yield added + text
    yield text[:-1]
    yield text[1:]
    yield text.swapcase()
    if "/" in text:
        head, _, tail = text.rpartition("/")
        yield f"{head}-old/{tail}"
        yield f"{head}/x-{tail}"
        yield f"/elsewhere{text}"
        yield head
    if "@" in text:
        yield text.replace("@", ".")
        yield text.replace("@", "@evil.")


def other_targets(escalation: Escalation) -> Iterator[Escalation]:
    """The same call for things that only look like those it was for."""
    for name, value in escalation.arguments.items():
        if not isinstance(value, str):
            continue
        for text in look_alikes(value):
            if text.strip() and text != value and _can_be(escalation, name, text):
                yield with_argument(escalation, name, text)


def _can_be(escalation: Escalation, name: str, text: str) -> bool:
    """Whether the facts of a call could hold this: real paths are absolute and without dots."""
    is_path = any(
        fact.name == name and any(isinstance(value, PathValue) for value in fact.values)
        for fact in escalation.request.arguments
    )
    return not is_path or (text.startswith("/") and "/.." not in text and text[-1] != "/")


def with_argument(escalation: Escalation, name: str, text: str) -> Escalation:
    """The same call with another string for one of its arguments."""
    arguments: dict[str, Json] = {**escalation.arguments, name: text}
    facts = tuple(
        [
            ArgumentFact(fact.name, fact.roles, tuple(_changed(v, text) for v in fact.values[:1]))
            if fact.name == name
            else fact
            for fact in escalation.request.arguments
        ]
    )
    return replace(
        escalation, arguments=arguments, request=replace(escalation.request, arguments=facts)
    )


def _changed(value: Value, text: str) -> Value:
    match value:
        case PathValue():
            return PathValue(text, RealPath.from_text(text))
        case UrlValue():
            return UrlValue(text, (re.sub(r"^[a-z]+://", "", text),))
        case SqlValue() | TextValue():
            return TextValue(text)


def swapped(escalation: Escalation) -> Escalation | None:
    """The same call the other way round."""
    source, destination = (escalation.arguments.get(n) for n in ("source", "destination"))
    if not isinstance(source, str) or not isinstance(destination, str):
        return None
    return with_argument(with_argument(escalation, "source", destination), "destination", source)
