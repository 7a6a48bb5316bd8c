"""Which operations a rule speaks of, and what servers may ask by rules."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.conditions import (
    DomainCondition,
    ListCondition,
    PathCondition,
    UriCondition,
)
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.operation import Method, is_like_a_label, label, named_in
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.values import RealPath, file_uri

READ = label("resources/read")
FETCH = label("prompts/get", "fetch")


def rule(effect: Effect = "allow", **conditions: object) -> Rule:
    return replace(Rule(name="r", effect=effect, reason=""), **conditions)


HOME = PathCondition(roles=frozenset({"read-path"}), within=RealPath.from_text("/home"))
HOSTS = DomainCondition(roles=frozenset({"fetch-url"}), allowed=frozenset({"a.example"}))
LISTED = ListCondition(
    roles=frozenset({"github-owner"}), allowed=frozenset({"acme"}), kind="identifiers"
)
NOTES = UriCondition(schemes=frozenset({"note"}))


@pytest.mark.parametrize(
    ("about", "method", "tool", "role"),
    [
        (rule(), "tools/call", "read", None),
        (rule(methods=frozenset({"resources/read"})), "resources/read", READ, None),
        (rule(prompts=frozenset({"fetch"})), "prompts/get", FETCH, None),
        (rule(uris=NOTES), "resources/read", READ, "resource-uri"),
        (rule(roles=frozenset({"read-path"})), "resources/read", READ, "read-path"),
        (rule(paths=HOME), "resources/read", READ, "read-path"),
        (rule(domains=HOSTS), "resources/read", READ, "fetch-url"),
        (rule(lists=(LISTED,)), "prompts/get", FETCH, "github-owner"),
        (rule("escalate"), "resources/read", READ, None),
        (rule("deny"), "prompts/get", FETCH, "read-path"),
    ],
)
def test_a_rule_speaks_of_what_its_conditions_name(
    about: Rule, method: Method, tool: str, role: ArgumentRole | None
) -> None:
    assert about.speaks_of(method, tool, role)


@pytest.mark.parametrize(
    ("about", "method", "tool", "role"),
    [
        # Written when there were only tools, it must open nothing else.
        (rule(), "resources/read", READ, None),
        (rule(), "prompts/get", FETCH, "read-path"),
        (rule(servers=frozenset({"notes"})), "resources/read", READ, "resource-uri"),
        (rule(paths=HOME), "resources/read", READ, "fetch-url"),
        (rule(methods=frozenset({"prompts/get"})), "resources/read", READ, None),
        (rule("deny", tools=frozenset({"read"})), "resources/read", READ, None),
        (rule(prompts=frozenset({"fetch"})), "prompts/get", label("prompts/get", "drop"), None),
        (rule(prompts=frozenset({"fetch"})), "tools/call", "fetch", None),
        (rule(uris=NOTES), "resources/read", READ, "read-path"),
        (rule("deny", uris=NOTES), "tools/call", "read", None),
    ],
)
def test_a_rule_speaks_of_nothing_else(
    about: Rule, method: Method, tool: str, role: ArgumentRole | None
) -> None:
    assert not about.speaks_of(method, tool, role)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (rule(), True),
        (rule(methods=frozenset({"tools/call", "prompts/get"})), True),
        (rule(methods=frozenset({"prompts/get"})), False),
        (rule(prompts=frozenset({"fetch"})), False),
        (rule(uris=NOTES), False),
    ],
)
def test_a_rule_of_another_operation_is_not_about_tools(about: Rule, *, said: bool) -> None:
    assert about.is_about_tools is said


def test_rules_of_every_server_concern_a_tool_beside_those_that_name_it() -> None:
    named = rule(tools=frozenset({"read"}))
    anywhere = rule("deny")
    elsewhere = rule(servers=frozenset({"other"}))
    book = Policy(rules=(anywhere, elsewhere, named)).book
    assert book.for_tool("files", "read") == (anywhere, named)


def test_a_server_may_put_the_questions_that_its_entry_and_rules_open() -> None:
    forms = frozenset[Method]({"elicitation/create"})
    texts = frozenset[Method]({"sampling/createMessage"})
    policy = Policy(
        rules=(
            rule("escalate", methods=forms, servers=frozenset({"notes"})),
            rule("allow", methods=texts),
            rule("deny", methods=forms),
            rule("allow"),
        ),
        may_ask={"files": frozenset({"sampling-tools"})},
    )
    assert policy.questions_of("notes") == {"form", "url", "sampling"}
    assert policy.questions_of("files") == {"sampling-tools", "sampling"}


def test_a_label_names_its_method_and_what_the_method_names() -> None:
    assert (READ, FETCH) == ("resources/read", "prompts/get fetch")
    assert (named_in(READ), named_in(FETCH)) == ("", "fetch")
    # A prompt may have spaces in its name.
    assert named_in(label("prompts/get", "a b")) == "a b"


def test_a_tool_is_told_from_another_operation_by_its_name() -> None:
    assert all(is_like_a_label(name) for name in (READ, FETCH))
    assert not any(is_like_a_label(name) for name in ("read", "prompts/getting", "a prompts/get"))


def test_the_uri_of_a_path_has_one_reading() -> None:
    assert file_uri("/a b/ü#?%") == "file:///a%20b/%C3%BC%23%3F%25"
    assert file_uri("/\udcff") == "file:///%FF"
