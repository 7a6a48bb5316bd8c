"""Families of commands in words, and what the disk says of them."""

from ironcurtain_proxy.model.request import ANY, NOWHERE, OWN_BRANCH, CommandPlace, Family

MAKE = Family(program=("make",), kept=("test", f"a{ANY}"), around=("CI=1", "> out"))


def test_assignments_stand_before_a_family_and_redirections_behind_it() -> None:
    assert MAKE.words() == "CI=1 make test a* > out"
    exact = Family(program=("rm",), kept=("x",), is_general=False)
    assert exact.words() == "exactly rm x"


def test_what_was_not_looked_up_has_no_meaning() -> None:
    assert NOWHERE.meaning_of(MAKE) is None
    place = CommandPlace(meanings=((MAKE, "digest"),))
    assert place.meaning_of(MAKE) == "digest"
    assert place.meaning_of(Family(program=("make",))) is None


def test_a_family_is_widened_to_its_wider_one_and_else_stays() -> None:
    wide = (("git", "push"), ("origin", OWN_BRANCH))
    push = Family(program=("git", "push"), kept=("origin", "fix/a"), meaning="m", wide=wide)
    assert push.widened() == Family(program=wide[0], kept=wide[1], meaning="m")
    assert push.widened().widened() == push.widened()


def test_the_wider_family_is_no_part_of_what_a_family_is() -> None:
    plain = Family(program=("git", "push"), kept=("origin", "fix/a"))
    wide = (("git", "push"), ("origin", OWN_BRANCH))
    assert Family(program=plain.program, kept=plain.kept, wide=wide) == plain
