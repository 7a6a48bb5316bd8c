"""Which kind of operation a command is."""

from typing import get_args

import pytest

from ironcurtain_proxy.shell.operations import DANGER, ShellOperation, operation_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT
from tests.tables import table


def test_every_operation_has_a_place_in_the_order() -> None:
    assert set(DANGER) == set(get_args(ShellOperation))
    assert len(set(DANGER.values())) == len(DANGER)


@pytest.mark.requirement("B-12", "B-80", "B-81", "B-82", "B-83", "B-84")
@pytest.mark.parametrize(
    ("operation", "texts"),
    table("shell/effects.operations", list[tuple[str, list[str]]]),
)  # fmt: skip
def test_a_command_is_the_most_dangerous_of_its_parts(operation: str, texts: list[str]) -> None:
    found = {text: operation_of(parse_command(text), PROJECT) for text in texts}
    assert found == dict.fromkeys(texts, operation)
