"""Paths, decisions and rules as values."""

import pytest

from ironcurtain_proxy.model.conditions import NamedByCondition
from ironcurtain_proxy.model.decision import Allow, Deny, Escalate, Ground, effect_of
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.policy import Floor, Policy, Rule
from ironcurtain_proxy.model.server import ServerSpec, ToolDefinition
from ironcurtain_proxy.model.values import RealPath, list_of, object_of, text_of


@pytest.mark.parametrize("text", ["/", "/a", "/a/b", "/a/ b/c"])
def test_a_path_reads_as_it_was_written(text: str) -> None:
    assert str(RealPath.from_text(text)) == text


def test_json_of_another_kind_counts_as_empty() -> None:
    for read, value, empty in ((object_of, {"a": 1}, {}), (list_of, [1], []), (text_of, "a", "")):
        assert read(value) == value
        assert read(None) == empty


def test_empty_components_do_not_count() -> None:
    assert RealPath.from_text("//a///b/") == RealPath(("a", "b"))


def test_every_decision_has_its_word() -> None:
    ground = Ground("r", "because")
    assert [effect_of(d) for d in (Allow(ground), Escalate(ground), Deny(ground))] == [
        "allow",
        "escalate",
        "deny",
    ]


def test_a_value_is_equal_whatever_its_notes_say_and_to_its_own_kind_alone() -> None:
    assert SandboxOpening() == SandboxOpening(for_later=True) != SandboxOpening(hosts=("a",))
    assert "no opening" not in (SandboxOpening(), SandboxOpening(for_later=True))


def test_a_rule_of_any_layer_makes_a_policy_ask_who_named_a_target() -> None:
    named = NamedByCondition(roles=frozenset({"fetch-url"}), by=frozenset({"user"}))
    rules = (Rule(name="r", effect="escalate", reason="", namedBy=named),)
    assert Policy(rules=rules).asks_who_named
    assert Policy(rules=(), floors=(Floor(rules=rules, asks=True),)).asks_who_named
    assert not Policy(rules=()).asks_who_named


def test_rules_are_found_in_file_order_wherever_they_are_indexed() -> None:
    rules = (
        Rule(name="any", effect="allow", reason=""),
        Rule(name="tool", effect="allow", reason="", tools=frozenset({"t"})),
        Rule(name="server", effect="allow", reason="", servers=frozenset({"s"})),
        Rule(
            name="both", effect="allow", reason="", tools=frozenset({"t"}), servers=frozenset({"s"})
        ),
        Rule(name="other", effect="allow", reason="", tools=frozenset({"u"})),
        Rule(
            name="elsewhere",
            effect="allow",
            reason="",
            tools=frozenset({"t"}),
            servers=frozenset({"v"}),
        ),
        Rule(name="role", effect="allow", reason="", roles=frozenset({"read-path"})),
    )
    book = Policy(rules=rules).book
    assert [r.name for r in book.about("s", "t", None)] == ["any", "tool", "server", "both", "role"]
    assert [r.name for r in book.about("s", "t", "fetch-url")] == ["any", "tool", "server", "both"]
    assert book.about("s", "t", None) is book.about("s", "t", None)


def test_secrets_of_a_server_do_not_show_when_it_is_printed() -> None:
    spec = ServerSpec(
        name="s", annotations="s", command="c", env={"A": "hush-1"}, credentials={"B": "hush-2"}
    )
    assert "hush" not in repr(spec)


def test_a_tool_may_have_no_schema() -> None:
    assert ToolDefinition("s", "t", {"name": "t"}).input_schema is None
