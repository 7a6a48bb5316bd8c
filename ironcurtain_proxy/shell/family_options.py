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
from ironcurtain_proxy.shell.grammar import Option


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
    """Return the part of an option that belongs to the family, and how many further words it has.

    What the grammar does not state for certain stays, with the word behind it.
    """
    name, equals, value = text.partition("=")
    option = task.options.get(name) or GENERIC.get(name)
    if option is None and not text.startswith("--") and len(text) > 2:  # noqa: PLR2004
        return _cluster(task, text, following, place)
    if option is None:
        return _not_known(text, following)
    if option.arity in {"none", "optional"} and not equals:
        return ([name] if option.stays else []), 0
    if option.arity == "none":
        return [text], 0
    given = Word(value) if equals else following
    if given is None or (not equals and option.arity == "attached"):
        return [text], 0
    return _valued(option, name, given, place), 0 if equals else 1


def _not_known(text: str, following: Word | None) -> tuple[list[str], int]:
    """Return an option that may take a value, with the next word."""
    if "=" in text or following is None or following.prefix.startswith("-"):
        return [text], 0
    return [f"{text} {spelled(following)}"], 1


def _valued(option: Option, name: str, given: Word, place: Place) -> list[str]:
    """Return the part of an option with a value that belongs to the family."""
    if option.kind == "v" and given.text is not None:
        field, _, content = given.text.partition("=")
        plain = content and (name in _NEVER_FILES or not content.startswith("@"))
        return [f"{name}={field if plain else given.text}"]
    if option.kind == "v" and name in _NEVER_FILES and "=" in given.prefix and not given.splits:
        return [f"{name}={given.prefix.partition('=')[0]}"]
    free = not option.stays and is_free_value(option.kind, given, place)
    return [] if free else [f"{name}={spelled(given)}"]


_NEVER_FILES: Final = frozenset({"-f", "--raw-field"})
"""Fields whose value is text, whatever it begins with."""


def _cluster(task: Task, text: str, following: Word | None, place: Place) -> tuple[list[str], int]:
    """Short options joined in one word, such as `-xvs` or `-j8`."""
    kept: list[str] = []
    for at, letter in enumerate(text[1:], start=2):
        option = task.options.get(f"-{letter}") or GENERIC.get(f"-{letter}")
        if option is None:
            return _not_known(text, following)
        if option.arity != "none":
            joined = f"-{letter}={text[at:]}" if text[at:] else f"-{letter}"
            more, width = _option(task, joined, following, place)
            return [*kept, *more], width
        if option.stays:
            kept.append(f"-{letter}")
    return kept, 0
