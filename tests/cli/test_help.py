"""The help of every command, and the words that it offers."""

import argparse
import gc
import re
from collections.abc import Iterable, Iterator
from typing import get_args

import pytest

from ironcurtain_proxy.audit.shipping import Style
from ironcurtain_proxy.auto_confirm.session_files import NAMES
from ironcurtain_proxy.cli import main, parser_of
from ironcurtain_proxy.cli.arguments import COMMANDS
from ironcurtain_proxy.cli.audit import _FORMATS
from ironcurtain_proxy.config.policy.short_form import VERBS
from ironcurtain_proxy.config.presets import PRESETS
from ironcurtain_proxy.config.schemas import FILES
from ironcurtain_proxy.hooks.dialects import DIALECTS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_ends_with_the_exit_status(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    shown, complained = capsys.readouterr()
    assert complained == ""
    assert gc.isenabled()
    assert left.value.code == 0
    assert f"ironcurtain-proxy {command}" in shown
    assert "examples" in shown
    assert "exit status: 0" in shown.partition("examples")[2]


def helps_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.format_help()
    for action in parser._actions:
        for inner in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from helps_of(inner)


def test_every_action_of_a_command_has_help_of_its_own() -> None:
    helps = [*helps_of(parser_of(COMMANDS))]
    assert len(set(helps)) == len(helps) > len(COMMANDS) * 1.5
    lacking = [
        shown for shown in helps[1:] if not re.search(r"(?s)example.+\nexit status: 0", shown)
    ]
    assert not lacking


def choices_of(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return choices_of(action.choices[words[0]], words[1:])
    named = [one for one in parser._actions if words[0] in (one.dest, *one.option_strings)]
    return [*(named[0].choices or ())]


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("init --preset", PRESETS),
        ("hooks install --preset", PRESETS),
        ("rehearse --preset", ["shipped", *PRESETS]),
        ("hooks install client", DIALECTS),
        ("config schema file", FILES),
        ("complain --expect", VERBS.values()),
        ("audit ship --format", get_args(Style)),
        ("audit export --format", _FORMATS),
        ("window name", NAMES),
    ],
)
def test_help_offers_exactly_the_words_that_the_command_takes(
    words: str, taken: Iterable[str]
) -> None:
    command = words.split()
    assert choices_of(parser_of(command[:1]), command) == [*taken]
