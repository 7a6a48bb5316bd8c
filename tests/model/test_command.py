"""The nouns of a shell command."""

from ironcurtain_proxy.model.command import ParsedCommand, SimpleCommand, Word


def test_a_known_word_begins_as_it_is_and_an_unknown_one_up_to_what_is_not_known() -> None:
    assert Word("--to=x*").prefix == "--to=x*"
    assert Word(None, "--to=*").prefix == "--to="
    assert Word(None).prefix == ""


def test_every_command_has_those_of_texts_that_a_shell_is_handed() -> None:
    inner = SimpleCommand(words=(Word("rm"),))
    text = Word("rm", command=ParsedCommand(commands=(inner,)))
    outer = SimpleCommand(words=(Word("sh"), Word("-c"), text))
    assert list(ParsedCommand(commands=(outer,)).every_command()) == [outer, inner]
