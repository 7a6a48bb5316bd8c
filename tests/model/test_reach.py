"""What a process can touch, and what one call is let into besides."""

from ironcurtain_proxy.model.grant import SandboxOpening, shown_host
from ironcurtain_proxy.model.reply import NotTaken
from ironcurtain_proxy.model.request import CommandPlace, Family
from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath

WORKSPACE, OWN = RealPath.from_text("/w"), RealPath.from_text("/tmp/own")


def test_an_opening_names_each_host_and_path() -> None:
    opening = SandboxOpening(hosts=("a.example",), paths=(RealPath.from_text("/srv/x"),))
    assert opening.words() == ("host a.example", "write /srv/x")


def test_a_process_writes_in_the_workspace_and_in_what_is_its_own_alone() -> None:
    inside = (RealPath.from_text("/w/a"), OWN)
    assert SandboxRestrictions(writable=inside, temporary=OWN, is_offline=True).writes_only_in(
        WORKSPACE
    )
    assert not SandboxRestrictions(writable=inside, temporary=None, is_offline=True).writes_only_in(
        WORKSPACE
    )


def test_a_family_reaches_the_hosts_that_were_found_for_it_and_no_others() -> None:
    push, install = Family(program=("git", "push")), Family(program=("npm", "ci"))
    place = CommandPlace(hosts=((push, ("a.example", "b.example")), (install, ("a.example",))))
    assert place.hosts_of(push) == ("a.example", "b.example")
    assert place.hosts_of(Family(program=("gh", "pr"))) == ()
    assert place.every_host() == ("a.example", "b.example")


def test_an_opening_names_another_one_only_where_it_has_each_of_its_places() -> None:
    path, other = RealPath.from_text("/srv/x"), RealPath.from_text("/srv/y")
    whole = SandboxOpening(hosts=("a.example", "b.example"), paths=(path,), reads=(other,))
    assert whole.names(None)
    assert whole.names(whole)
    assert whole.names(SandboxOpening(hosts=("b.example",)))
    assert not whole.names(SandboxOpening(hosts=("c.example",)))
    assert not whole.names(SandboxOpening(paths=(other,)))
    assert not whole.names(SandboxOpening(reads=(path,)))


def test_a_host_that_imitates_another_one_is_marked_for_a_person_and_not_in_the_record() -> None:
    opening = SandboxOpening(hosts=("xn--pple-43d.com", "a.example"), paths=(OWN,))
    first, *others = opening.shown()
    assert first.startswith("host xn--pple-43d.com (shown as \u0430pple.com: ")
    assert (first.split(" (")[0], *others) == opening.words()


def test_a_host_that_no_name_of_letters_stands_for_is_marked_all_the_same() -> None:
    assert shown_host("xn--\u0430.com").startswith("xn--\u0430.com (shown as xn--\u0430.com: ")


def test_what_is_not_taken_is_told_on_one_line_whatever_its_name() -> None:
    assert str(NotTaken("a", "a control place")) == "a (a control place)"
    assert str(NotTaken("\udcff", "no text")) == "\\udcff (no text)"
