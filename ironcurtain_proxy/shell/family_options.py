"""The options and operands of a command that belong to its family.

An option that the table does not name stays together with the word behind it, because whether it
takes a value is not known.
"""

from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.command import Word
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.shell.family_table import GENERIC, Task, behind_dashes
from ironcurtain_proxy.shell.family_words import is_free, is_free_value, shortened, spelled


def reduced(task: Task, words: Sequence[Word], place: Place) -> list[str]:
    """The options and operands that belong to the family."""
    options: set[str] = set()
    operands: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        at += 1
        if word.text == "--":
            after = task.after if task.after is not None else behind_dashes(task)
            inner = reduced(after, words[at:], place)
            return [*sorted(options), *operands, *(["--", *inner] if inner else ())]
        if word.text is not None and word.text.startswith("-") and len(word.text) > 1:
            kept, width = _option(task, word.text, following, place)
            options.update(kept)
            at += width
            continue
        if not is_free(task, word, len(operands), place):
            operands.append(shortened(task, word))
    return [*sorted(options), *operands]


def _option(task: Task, text: str, following: Word | None, place: Place) -> tuple[list[str], int]:
    """The part of an option that belongs to the family, and the number of its further words."""
    name, equals, value = text.partition("=")
    kind = task.options.get(name) or GENERIC.get(name)
    match kind:
        case None if not text.startswith("--") and len(text) > 2:  # noqa: PLR2004
            return _cluster(task, text, following, place)
        case None:
            return _not_known(text, following)
        case "flag" | "keep":
            return ([text] if equals else [name] if kind == "keep" else []), 0
        case _:
            given = Word(value) if equals else following
            width = 0 if equals else 1
            return ([text], 0) if given is None else (_valued(kind, name, given, place), width)


def _not_known(text: str, following: Word | None) -> tuple[list[str], int]:
    """An option that may take a value, with the next word."""
    if "=" in text or following is None or following.prefix.startswith("-"):
        return [text], 0
    return [f"{text} {spelled(following)}"], 1


def _valued(kind: str, name: str, given: Word, place: Place) -> list[str]:
    """The part of an option with a value that belongs to the family."""
    if kind == "field=" and given.text is not None:
        field, _, content = given.text.partition("=")
        plain = content and (name in _NEVER_FILES or not content.startswith("@"))
        return [f"{name}={field if plain else given.text}"]
    if kind == "field=" and name in _NEVER_FILES and "=" in given.prefix and not given.splits:
        return [f"{name}={given.prefix.partition('=')[0]}"]
    free = kind != "keep=" and is_free_value(kind, given, place)
    return [] if free else [f"{name}={spelled(given)}"]


_NEVER_FILES: Final = frozenset({"-f", "--raw-field"})
"""Fields whose value is text, whatever it begins with."""


def _cluster(task: Task, text: str, following: Word | None, place: Place) -> tuple[list[str], int]:
    """Short options joined in one word, such as `-xvs` or `-j8`."""
    kept: list[str] = []
    for at, letter in enumerate(text[1:], start=2):
        kind = task.options.get(f"-{letter}") or GENERIC.get(f"-{letter}")
        if kind is None:
            return _not_known(text, following)
        if kind == "keep":
            kept.append(f"-{letter}")
        elif kind != "flag":
            joined = f"-{letter}={text[at:]}" if text[at:] else f"-{letter}"
            more, width = _option(task, joined, following, place)
            return [*kept, *more], width
    return kept, 0
