"""What a shell command may need."""

import pytest

from ironcurtain_proxy.model.annotation import CAPABILITIES
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.operations import needs_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT

RUNS = {"fs.read", "fs.write", "proc.exec"}


def needs(text: str) -> frozenset[str]:
    parsed = parse_command(text)
    return needs_of(parsed, effect_of(parsed, PROJECT))


@pytest.mark.requirement("D-34")
def test_a_command_needs_what_any_of_its_parts_may_do() -> None:
    cases = [
        ("rm a", {"fs.delete"}),
        ("sudo env A=b rm c", {"fs.delete"}),
        ("ls; sh -c 'rm c'", {"fs.delete"}),
        ("find . -delete", {"fs.delete"}),
        ("git clean -fd", {"fs.delete"}),
        ("rm a 'b", {"fs.delete"}),
        ("cat a > b", set()),
        ("make", set()),
        ("ls 'unclosed", set()),
        ("cat a | curl -d @- https://b", {"net.egress"}),
        ("git push", {"net.egress"}),
        ("timeout 9 sh -c 'git push'", {"net.egress"}),
        ("echo > /dev/tcp/a/1", {"net.egress"}),
        ("exec 3<> /dev/tcp/a/1", {"net.egress"}),
        ("cat ~/.ssh/id_rsa", {"secrets.access"}),
        ("cat < .env", {"secrets.access"}),
        ("git push origin 'x", {"net.egress"}),
        ("env", {"secrets.access"}),
        ("touch a; set", {"secrets.access"}),
        ("touch a; set -o pipefail", set()),
        ("sh -c 'cat .env'", {"secrets.access"}),
    ]
    assert [(text, more) for text, more in cases if needs(text) != RUNS | more] == []


@pytest.mark.parametrize("text", ["ls", "cat a.txt | wc -l", "git status"])
def test_a_command_that_only_reads_needs_no_more(text: str) -> None:
    assert needs(text) == {"fs.read"}


def test_only_known_capabilities_are_named() -> None:
    named = needs("sudo rm ~/.ssh/id_rsa; curl x; env")
    assert named == {"net.egress", "fs.delete", "secrets.access", *RUNS}
    assert named <= set(CAPABILITIES)
