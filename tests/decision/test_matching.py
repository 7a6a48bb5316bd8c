"""Hosts and lists, case by case."""

import pytest

from ironcurtain_proxy.decision.authorizer import authorize
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.condition_reading import host_matches, is_public_host
from ironcurtain_proxy.model.conditions import ListCondition
from ironcurtain_proxy.model.decision import Allow
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import ArgumentFact, TextValue
from tests.decision.test_authorizer import request
from tests.tables import named, table


@pytest.mark.parametrize(
    ("domain", "pattern", "expected"),
    named("decision/matching.host_patterns", tuple[str, str, bool]),
)
def test_host_patterns(domain: str, pattern: str, expected: bool) -> None:
    assert host_matches(domain, frozenset({pattern})) is expected


@pytest.mark.parametrize(
    "host", table("decision/matching.a_star_never_stands_for_what_is_local", list[str])
)
def test_a_star_never_stands_for_what_is_local_or_no_host(host: str) -> None:
    """G11."""
    assert not is_public_host(host)
    assert not host_matches(host, frozenset({"*"}))


@pytest.mark.parametrize(
    "host",
    ["example.com", "1.example.com", "0x7f.com", "a.example.co.uk", "xn--bcher-kva.example.org"],
)
def test_a_star_stands_for_public_hosts(host: str) -> None:
    assert is_public_host(host)


def test_an_empty_list_matches_nothing() -> None:
    assert not host_matches("github.com", frozenset())


@pytest.mark.parametrize(
    "ending",
    sorted(
        {"corp", "home", "home.arpa", "internal", "intranet", "invalid", "lan", "local"}
        | {"localdomain", "localhost", "onion", "private", "svc", "test", "lacolhost.com"}
        | {"localtest.me", "lvh.me", "nip.io", "sslip.io", "vcap.me", "xip.io"}
    ),
)
def test_a_star_stands_for_no_name_below_an_ending_that_leads_here_or_nowhere(ending: str) -> None:
    for host in (f"a.{ending}", f"a.b.{ending}", f"A.{ending.upper()}."):
        assert not is_public_host(host)
    assert is_public_host(f"{ending}.example.com")


@pytest.mark.parametrize(
    ("owner", "repository", "allowed"),
    [("acme", "tool", True), ("acme", "other", False), ("evil", "tool", False)],
)
def test_a_rule_on_pairs_wants_both_of_a_pair_on_their_lists(
    owner: str, repository: str, *, allowed: bool
) -> None:
    def listed(role: ArgumentRole, value: str) -> ListCondition:
        return ListCondition(
            roles=frozenset({role}), allowed=frozenset({value}), kind="identifiers"
        )

    pair = (listed("github-owner", "acme"), listed("github-repo", "tool"))
    rule = Rule(name="pair", effect="allow", reason="pair", lists=pair)
    call = request(
        ArgumentFact("owner", ("github-owner",), (TextValue(owner),)),
        ArgumentFact("repo", ("github-repo",), (TextValue(repository),)),
        server="github",
        tool="x",
    )
    assert isinstance(authorize(call, Policy(rules=(rule,))), Allow) is allowed
