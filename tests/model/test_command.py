"""The nouns of a shell command."""

from ironcurtain_proxy.model.request import ParsedCommand, SimpleCommand, Word


def test_a_known_word_begins_as_it_is_and_an_unknown_one_up_to_what_is_not_known() -> None:
    assert Word("--to=x*").prefix == "--to=x*"
    assert Word(None, "--to=*").prefix == "--to="
    assert Word(None).prefix == ""


def test_every_command_has_those_of_texts_that_a_shell_is_handed() -> None:
    inner = SimpleCommand(words=(Word("rm"),))
    text = Word("rm", command=ParsedCommand(commands=(inner,)))
    outer = SimpleCommand(words=(Word("sh"), Word("-c"), text))
    assert list(ParsedCommand(commands=(outer,)).every_command()) == [outer, inner]


def test_loose_words_of_texts_are_found_too() -> None:
    text = Word("rm", command=ParsedCommand(unreadable="odd", loose_words=("b",)))
    outer = SimpleCommand(words=(Word("sh"), text))
    parsed = ParsedCommand(commands=(outer,), unreadable="odd", loose_words=("a",))
    assert list(parsed.every_loose_word()) == ["a", "b"]
