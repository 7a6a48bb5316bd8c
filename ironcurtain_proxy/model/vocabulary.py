"""Vocabularies written as text: a list of a hundred words reads better without quotes."""


def words(text: str) -> frozenset[str]:
    """A set of words from a text with blanks between them."""
    return frozenset(text.split())


def word_list(text: str) -> tuple[str, ...]:
    """The words of a text with blanks between them, in its order."""
    return tuple(text.split())
