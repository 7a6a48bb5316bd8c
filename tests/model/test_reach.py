"""What a process can touch, and what one call is let into besides."""

from ironcurtain_proxy.model.family import Family
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.place import Place
from ironcurtain_proxy.model.walls import Walls

WORKSPACE, OWN = RealPath.from_text("/w"), RealPath.from_text("/tmp/own")


def test_an_opening_names_each_host_and_path() -> None:
    opening = SandboxOpening(hosts=("a.example",), paths=(RealPath.from_text("/srv/x"),))
    assert opening.words() == ("host a.example", "write /srv/x")


def test_a_process_writes_in_the_workspace_and_in_what_is_its_own_alone() -> None:
    inside = (RealPath.from_text("/w/a"), OWN)
    assert Walls(writable=inside, temporary=OWN, is_offline=True).writes_only_in(WORKSPACE)
    assert not Walls(writable=inside, temporary=None, is_offline=True).writes_only_in(WORKSPACE)


def test_a_family_reaches_the_hosts_that_were_found_for_it_and_no_others() -> None:
    push, install = Family(program=("git", "push")), Family(program=("npm", "ci"))
    place = Place(hosts=((push, ("a.example", "b.example")), (install, ("a.example",))))
    assert place.hosts_of(push) == ("a.example", "b.example")
    assert place.hosts_of(Family(program=("gh", "pr"))) == ()
    assert place.every_host() == ("a.example", "b.example")
