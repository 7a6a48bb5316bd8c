"""A moment of a boot in a file: what is read back, and what is no such moment."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.model.values import BootMoment, boot_moment


@given(st.text(), st.floats(min_value=-1e10, max_value=1e10))
def test_what_is_written_is_read_back(boot: str, seconds: float) -> None:
    moment = BootMoment(boot, seconds)
    assert boot_moment(moment.as_json()) == moment


def test_whole_seconds_are_seconds() -> None:
    read = boot_moment({"boot": "b", "seconds": 5})
    assert read == BootMoment("b", 5.0)
    assert read is not None
    assert isinstance(read.seconds, float)


def test_anything_else_says_nothing_of_the_kind() -> None:
    cases: list[object] = [
        None,
        [],
        "b",
        {},
        {"boot": "b"},
        {"seconds": 1.0},
        {"boot": "b", "seconds": 1.0, "more": 1},
        {"boot": 7, "seconds": 1.0},
        {"boot": None, "seconds": 1.0},
        {"boot": "b", "seconds": True},
        {"boot": "b", "seconds": "1"},
        {"boot": "b", "seconds": None},
        {"boot": "b", "seconds": 1e300},
        {"boot": "b", "seconds": -(10**400)},
        {"boot": "b", "seconds": math.nan},
    ]
    assert [value for value in cases if boot_moment(value) is not None] == []
