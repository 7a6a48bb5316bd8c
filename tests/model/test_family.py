"""Families of commands in words, and what the disk says of them."""

from ironcurtain_proxy.model.family import ANY, Family
from ironcurtain_proxy.model.place import NOWHERE, Place

MAKE = Family(program=("make",), kept=("test", f"a{ANY}"), around=("CI=1", "> out"))


def test_assignments_stand_before_a_family_and_redirections_behind_it() -> None:
    assert MAKE.words() == "CI=1 make test a* > out"
    exact = Family(program=("rm",), kept=("x",), is_general=False)
    assert exact.words() == "exactly rm x"


def test_what_was_not_looked_up_has_no_meaning() -> None:
    assert NOWHERE.meaning_of(MAKE) is None
    place = Place(meanings=((MAKE, "digest"),))
    assert place.meaning_of(MAKE) == "digest"
    assert place.meaning_of(Family(program=("make",))) is None
