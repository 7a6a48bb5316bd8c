"""Who makes a request by its own words: shown, and never more than one line."""

import pytest

from ironcurtain_proxy.model.operation import TASKS, VERSIONS, Caller, client_name
from ironcurtain_proxy.model.values import Json


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        ({"name": "code", "version": "1.2"}, "code 1.2"),
        ({"name": "code", "version": 3}, "code"),
        ({"title": "x"}, ""),
        ({"name": "a\x1b[2J\nb", "version": " "}, "a[2Jb"),
        ({"name": "n" * 500}, "n" * 100),
    ],
)
def test_a_clients_name_is_one_short_line_of_what_can_be_seen(
    info: dict[str, Json], shown: str
) -> None:
    assert client_name(info) == shown
    assert Caller(version=VERSIONS[0], info=info).name == shown


@pytest.mark.parametrize(
    ("capabilities", "knows"),
    [
        ({"extensions": {TASKS: {}}}, True),
        ({"extensions": {"a/b": {}}}, False),
        ({"extensions": [TASKS]}, False),
        ({TASKS: {}}, False),
        ({}, False),
    ],
)
def test_a_client_that_declares_tasks_gets_them(
    capabilities: dict[str, Json], *, knows: bool
) -> None:
    assert Caller(version=VERSIONS[0], capabilities=capabilities).knows_tasks is knows
