"""`policy.yaml`: what it compiles to, and what it refuses with line and column."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.policy.policy_file import PolicyFile, PolicyReader
from ironcurtain_proxy.config.policy.short_form import MAX_BYTES, ShortReader
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.values import RealPath


def read(text: str | bytes, report: Report | None = None) -> PolicyFile | None:
    report = report or Report()
    reader = PolicyReader(home=Path("/home/me"), report=report)
    data = text.encode() if isinstance(text, str) else text
    return ShortReader(reader=reader).read_bytes(data, "p.yaml")


def rules(text: str) -> tuple[Rule, ...]:
    report = Report()
    found = read(text, report)
    assert not report.problems
    assert found is not None
    return found.rules


def refused(text: str | bytes) -> list[str]:
    report = Report()
    read(text, report)
    assert report.has_errors
    return [str(problem) for problem in report.problems]


def test_the_form_of_one_line_is_one_rule_for_each_tool() -> None:
    found = rules('allow sqlite: [list_tables, read_query]\nask sqlite: "*"\n')
    assert [(r.name, r.effect, r.everywhere) for r in found] == [
        ("allow-sqlite-list_tables", "allow", False),
        ("allow-sqlite-read_query", "allow", False),
        ("ask-sqlite", "escalate", True),
    ]
    assert [set(rule.servers or ()) for rule in found] == [{"sqlite"}] * 3
    assert [set(rule.tools or ()) for rule in found] == [{"list_tables"}, {"read_query"}, set()]


def test_rules_grouped_by_verb_are_the_same_rules() -> None:
    one = rules("allow sqlite: [a, b]\nallow git: c\n")
    assert rules("allow: {sqlite: [a, b], git: c}\n") == one


def test_conditions_become_those_of_the_long_form() -> None:
    text = """
deny filesystem:
  - tools: [move_file]
    within: [~/a, /b]
    reason: Keep it.
ask fetch: {tools: "*", hosts: "*.example.com", contained: false}
deny "*": {tools: write_file, names: [.env*], except: .env.example, roles: write-path}
"""
    first, second, hosts, names = rules(text)
    assert first.paths is not None
    assert second.paths is not None
    assert (first.paths.within, second.paths.within) == (
        RealPath.from_text("/home/me/a"),
        RealPath.from_text("/b"),
    )
    assert "delete-path" in first.paths.roles
    assert first.reason == "Keep it."
    assert (first.name, second.name) == ("deny-filesystem-move_file", "deny-filesystem-move_file-2")
    assert hosts.domains is not None
    assert hosts.domains.allowed == {"*.example.com"}
    assert not hosts.contained
    assert names.servers is None
    assert names.names is not None
    assert names.names.matching == {".env*"}
    assert names.names.unless == {".env.example"}
    assert names.names.roles == {"write-path"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ask x: [a,\n  no]\n", 'p.yaml: $["ask x"][1]: line 2, column 3: YAML reads this as true'),
        ("ask x: [010]\n", "line 1, column 9: YAML reads this as a number: put it in quotes"),
        ("ask x: [~]\n", "YAML reads this as nothing: put it in quotes"),
        ("ask x: 2026-01-01\n", "YAML reads this as"),
        ("ask x: [1:30]\n", "YAML reads this as a number"),
        ("ask x: a\nask x: b\n", "line 2, column 1: the key occurs twice"),
        ("on: {x: a}\n", "a key must be text"),
        ("permit x: a\n", '(did you mean "allow"?)'),
        ("allow x: {tool: a}\n", '(did you mean "tools"?)'),
        ('allow "*": "*"\n', "allows every tool of every server: name the server"),
        ("ask x: []\n", "names no tool"),
        ("ask x: {tools: a, within: b}\n", "must be an absolute path, or begin with ~/"),
        ("ask x: {tools: a, within: /b, hosts: c}\n", "cannot be combined with within"),
        ("ask x: {tools: a, except: b}\n", "is for a rule that allows, or for one with names"),
        ("ask x: {tools: a, roles: b}\n", "is not one of"),
        ("a: &a [b]\nask x: *a\n", "anchors and aliases are not supported"),
        ("base: shipped\nask x: &a b\n", "line 2, column 8: anchors and aliases"),
        ("ask x: !!str a\n", "tags are not supported"),
        ("ask x: !!python/object:os.system a\n", "tags are not supported"),
        ("ask x: a\n---\nask y: b\n", "is not YAML"),
        ("ask x: [a\n", "at line 2, column 1"),
        ("- a\n", "must be an object"),
        ("", "is empty"),
        (b"\xff", "is not UTF-8"),
        ("ask x: " + "[" * 1000, "nested too deeply"),
        (b"#" * (MAX_BYTES + 1), "is larger than 128 KiB"),
        ("base: shiped\n", '(did you mean "shipped"?)'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_slip_is_refused_with_its_line_and_column(text: str | bytes, said: str) -> None:
    assert any(said in problem for problem in refused(text)), refused(text)


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{b}: &{b} [{', '.join(['*' + a] * 9)}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert any("anchors" in one for one in refused("\n".join(lines)))


def test_what_allows_leaves_out_names_and_the_shipped_names_of_secrets() -> None:
    plain, named = rules(
        'allow f:\n  - {tools: a, except: "*.sql"}\n  - {tools: b, names: "*.md"}\n'
    )
    assert plain.excepting is not None
    assert plain.excepting.matching == frozenset({"*.sql"})
    assert (named.excepting, named.names is None) == (None, False)
    (both,) = rules('allow f: {tools: a, within: /b, except: ["@secrets", "*.sql"]}\n')
    assert both.excepting is not None
    assert both.excepting.matching >= {"*.sql", ".env/**", ".ssh/**"}
    assert ".env.example" in both.excepting.unless


def test_sql_is_bounded_by_what_it_does() -> None:
    assert [rule.sql for rule in rules("allow db: {tools: query, sql: reads}\n")] == ["reads"]
    assert any("is not one of reads" in said for said in refused("ask db: {tools: q, sql: runs}\n"))


@pytest.mark.parametrize(
    "host",
    ["https://evil.com/", "evil.com:443", "*evil.com", "evil.*", "evil.com.", "döcs.rs", "a b",
     "me@evil.com", "*.", "**", "http:evil.com"],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["deny", "ask", "allow"])
def test_a_host_that_can_never_match_is_refused(verb: str, host: str) -> None:
    text = f'{verb} fetch:\n  - tools: fetch\n    hosts: ["docs.rs", "{host}"]\n'
    assert "never matches" in refused(text)[0]
    assert "line 3" in refused(text)[0]


@pytest.mark.parametrize("host", ["*", "*.x.org", "X.org/path", "localhost", "127.0.0.1", "[::1]"])
def test_a_host_that_can_match_is_taken(host: str) -> None:
    (rule,) = rules(f'deny fetch:\n  - tools: fetch\n    hosts: "{host}"\n')
    assert rule.domains is not None


@pytest.mark.parametrize("within", ["~/x/*", "/srv/*/keys", "~/**"])
def test_a_wildcard_in_a_directory_is_refused(within: str) -> None:
    text = f'deny filesystem:\n  - tools: write_file\n    within: "{within}"\n'
    assert "leave out the *" in refused(text)[0]


def test_a_choice_of_names_in_braces_is_refused() -> None:
    text = 'deny filesystem:\n  - tools: write_file\n    names: "{.env,*.pem}"\n'
    assert "no wildcard but *" in refused(text)[0]


def test_braces_without_a_choice_are_a_name() -> None:
    rules('deny filesystem:\n  - tools: write_file\n    names: "{{name}}"\n')
