"""Hosts of a shell command: what its question names, and what an approval opens."""

import pytest

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.outward import UNKNOWN_HOST
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT
from tests.tables import table


def targets(command: str) -> list[str]:
    found = effect_of(parse_command(command), PROJECT)
    assert found.effect == "outward"
    return [one.removeprefix("host ") for one in found.targets]


def test_every_host_that_a_program_is_told_to_reach_is_named() -> None:
    cases = table("shell/targets.hosts", list[tuple[str, list[str]]])
    assert [(command, named) for command, named in cases if targets(command) != named] == []


@pytest.mark.parametrize(
    "command",
    table("shell/targets.data", list[str]),
)
def test_an_address_in_data_names_no_host(command: str) -> None:
    assert targets(command) == ["a.example"]


@pytest.mark.parametrize("command", table("shell/targets.elsewhere", list[str]))
def test_what_may_lead_a_request_elsewhere_is_an_unknown_host_and_no_family(command: str) -> None:
    found = targets(command)
    assert UNKNOWN_HOST in found
    assert not any("evil" in one for one in found)
    families = families_of(parse_command(command), PROJECT)
    assert families is None or not any(family.is_general for family in families)
