"""What servers are told when they ask for roots."""

from ironcurtain_proxy.model.conditions import PathCondition
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.server import RemoteEndpoint, ServerSpec, initial_roots, roots_told
from ironcurtain_proxy.model.values import RealPath


def rule(name: str, within: str, effect: Effect = "allow", server: str | None = None) -> Rule:
    return Rule(
        name=name,
        effect=effect,
        reason="",
        servers=None if server is None else frozenset({server}),
        paths=PathCondition(roles=frozenset({"read-path"}), within=RealPath.from_text(within)),
    )


def test_roots_are_the_workspace_and_the_directories_of_rules_for_that_server() -> None:
    policy = Policy(
        workspace=RealPath(("ws",)),
        rules=(
            rule("again", "/ws"),
            rule("docs", "/docs", "escalate", "filesystem"),
            rule("secret", "/secret", "deny"),
            rule("others", "/others", "allow", "git"),
            rule("docs-too", "/docs"),
            Rule(name="anywhere", effect="allow", reason=""),
        ),
    )
    found = [(root.name, str(root.path)) for root in initial_roots(policy, "filesystem")]
    assert found == [("sandbox", "/ws"), ("docs", "/docs")]


def test_there_are_no_roots_without_workspace_and_directories() -> None:
    assert initial_roots(Policy(rules=()), "filesystem") == ()


def test_what_a_url_cannot_hold_is_percent_encoded() -> None:
    """G18."""
    policy = Policy(rules=(), workspace=RealPath(("a b", "100%", "ü#?")))
    (root,) = initial_roots(policy, "filesystem")
    assert root.uri == "file:///a%20b/100%25/%C3%BC%23%3F"


def test_a_server_on_another_machine_is_told_no_roots() -> None:
    policy = Policy(workspace=RealPath(("ws",)), rules=())
    here = ServerSpec(name="a", annotations="a", command="a")
    there = ServerSpec(
        name="a", annotations="a", command="", remote=RemoteEndpoint(url="https://a.example/")
    )
    assert [str(one.path) for one in roots_told(policy, here)] == ["/ws"]
    assert roots_told(policy, there) == ()
