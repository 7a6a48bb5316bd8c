"""Policies that are refused, and what they are told."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.config.policy.policy_file import PolicyReader, Purpose
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.values import Json, RealPath
from tests.config.files import RULE, policy, replaced, said, write

HOME = Path("/home/ada")


def read(
    path: Path,
    document: Json,
    lists: dict[str, tuple[str, ...]] | None = None,
    purpose: Purpose = "enforce",
) -> tuple[tuple[Rule, ...], list[str]]:
    report = Report()
    file = PolicyReader(home=HOME, lists=lists, purpose=purpose, report=report).read(
        write(path / "compiled-policy.json", document)
    )
    return () if file is None else file.rules, said(report)


def test_a_rule_is_read_with_all_its_conditions(tmp_path: Path) -> None:
    (rule,), problems = read(tmp_path, policy(RULE))
    assert problems == []
    assert (rule.name, rule.effect, rule.reason) == ("allow-notes", "allow", "Notes may be read.")
    assert set(rule.roles or ()) == {"read-path"}
    assert set(rule.servers or ()) == {"filesystem"}
    assert set(rule.tools or ()) == {"read_file"}
    assert rule.paths is not None
    assert rule.paths.within == RealPath(("home", "ada", "notes"))
    assert rule.domains is not None
    assert rule.domains.allowed == {"example.com"}
    assert rule.lists[0].allowed == {"acme"}


@pytest.mark.requirement("C-25")
@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        (("then",), "Deny", '"Deny" is not one of allow, deny, escalate [deny]'),
        (("then",), "block", '"block" is not one of allow, deny, escalate'),
        (("then",), None, "must be one of allow, deny, escalate, not null"),
        (("if", "tools"), ["x"], "unknown key [tool]"),
        (("if", "servers"), ["x"], "unknown key [server]"),
        (("if", "paths", "inside"), "/", "unknown key"),
        (("if",), [], "must be an object, not a list"),
        (("if", "server"), "git", "must be a list, not text"),
        (("if", "server"), None, "must be a list, not null"),
        (("if", "paths"), None, "must be an object, not null"),
        (("if", "tool", 0), 7, "must be text, not a number"),
        (("if", "tool", 0), "", "must not be empty"),
        (("if", "paths", "within"), "notes", "must be an absolute path, or begin with ~/"),
        (("if", "paths", "within"), "~bob/x", "must be an absolute path, or begin with ~/"),
        (("if", "paths", "within"), "", "must not be empty"),
        (
            ("if", "lists", 0, "matchType"),
            "domain",
            '"domain" is not one of domains, emails, identifiers [domains]',
        ),
        (("name",), "", "must not be empty"),
        (("if", "Roles"), ["read-path"], "unknown key [roles]"),
    ],
    ids=str,
)
def test_a_rule_with_a_slip_is_refused_with_its_place(
    where: tuple[str | int, ...], value: Json, problem: str, tmp_path: Path
) -> None:
    """G1."""
    document = policy(RULE, replaced(RULE, where, value))
    if where != ("name",):
        document = replaced(document, ("rules", 1, "name"), "second")
    place = "$.rules[1]" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in where)
    assert read(tmp_path, document)[1] == [f"{place}: {problem}"]


def test_an_unknown_role_is_refused_with_the_nearest(tmp_path: Path) -> None:
    problems = read(tmp_path, policy(replaced(RULE, ("if", "roles", 0), "read_path")))[1]
    assert len(problems) == 1
    assert problems[0].startswith('$.rules[0].if.roles[0]: "read_path" is not one of branch-name, ')
    assert problems[0].endswith("[read-path]")


@pytest.mark.parametrize("key", ["name", "if", "then"])
def test_a_rule_without_a_necessary_part_is_refused(key: str, tmp_path: Path) -> None:
    """G1: a missing `then` was forwarded, a missing `if` matched everything."""
    rule = {k: v for k, v in RULE.items() if k != key}
    assert read(tmp_path, policy(rule))[1] == [f"$.rules[0].{key}: is missing"]


def test_all_slips_are_found_at_once(tmp_path: Path) -> None:
    document = policy(
        replaced(RULE, ("then",), "block"), replaced(RULE, ("if", "tools"), []), extra=1
    )
    assert len(read(tmp_path, document)[1]) == 4  # two slips, the name twice, an unknown key


def test_comments_and_what_the_original_writes_are_taken(tmp_path: Path) -> None:
    document = policy(
        {**RULE, "_comment": "why", "if": {"_todo": 1}},
        constitutionHash="x",
        inputHash="y",
        serverName="git",
        listDefinitions=[
            {
                "name": "news",
                "type": "domains",
                "principle": "",
                "generationPrompt": "",
                "requiresMcp": False,
            }
        ],
        skippedServers=[{"serverName": "x", "reason": "y"}],
        _comment="mine",
    )
    assert read(tmp_path, document)[1] == []


def test_an_empty_condition_restricts_nothing(tmp_path: Path) -> None:
    (rule,), _ = read(tmp_path, policy({"name": "all", "if": {}, "then": "escalate"}))
    assert (rule.roles, rule.servers, rule.tools, rule.paths) == (None, None, None, None)


def test_empty_lists_are_not_the_same_as_none(tmp_path: Path) -> None:
    (rule,), _ = read(
        tmp_path, policy({"name": "none", "if": {"roles": [], "server": []}, "then": "allow"})
    )
    assert rule.roles == frozenset()
    assert rule.servers == frozenset()


def test_capitals_in_lists_are_kept_and_those_of_hosts_do_not_matter(tmp_path: Path) -> None:
    """G21."""
    rule = replaced(RULE, ("if", "lists", 0, "allowed"), ["Provos"])
    rule = replaced(rule, ("if", "domains", "allowed"), ["*.Example.COM", "GitHub.com/Acme/W"])
    (found,), _ = read(tmp_path, policy(rule))
    assert found.lists[0].allowed == {"Provos"}
    assert found.domains is not None
    assert found.domains.allowed == {"*.example.com", "github.com/Acme/W"}


def test_the_root_is_a_directory_like_any_other(tmp_path: Path) -> None:
    """G22."""
    (rule,), problems = read(tmp_path, policy(replaced(RULE, ("if", "paths", "within"), "/")))
    assert problems == []
    assert rule.paths is not None
    assert rule.paths.within == RealPath(())


def test_a_directory_is_where_its_links_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    rule = replaced(RULE, ("if", "paths", "within"), f"{tmp_path}/link/../link/x")
    (found,), _ = read(tmp_path, policy(rule))
    assert found.paths is not None
    assert str(found.paths.within) == f"{tmp_path.resolve()}/real/x"


def test_two_rules_of_one_name_are_refused_but_replayed(tmp_path: Path) -> None:
    problem = '$.rules[1].name: "allow-notes" names two rules'
    for purpose in ("enforce", "replay"):
        report = Report()
        file = write(tmp_path / "p.json", policy(RULE, RULE))
        PolicyReader(home=HOME, purpose=purpose, report=report).read(file)
        assert said(report) == [problem]
        assert report.has_errors == (purpose == "enforce")


LISTED = replaced(RULE, ("if", "domains", "allowed"), ["first.com", "@news", "last.com"])


def test_a_list_is_expanded_in_its_place(tmp_path: Path) -> None:
    (rule,), problems = read(tmp_path, policy(LISTED), {"news": ("BBC.com", "cnn.com")})
    assert problems == []
    assert rule.domains is not None
    assert rule.domains.allowed == {"first.com", "bbc.com", "cnn.com", "last.com"}


@pytest.mark.parametrize(
    ("lists", "extra", "problem"),
    [
        (None, {}, 'there is no file of lists: "@news" is empty'),
        (
            {"sites": ()},
            {"listDefinitions": [{"name": "news", "type": "domains"}]},
            '"@news" is not resolved yet: it is empty',
        ),
        ({"newz": ()}, {}, 'there is no list "@news" [@newz]'),
    ],
    ids=["no file of lists", "defined but not resolved", "unknown"],
)
def test_a_list_that_is_missing_matches_nothing(
    lists: dict[str, tuple[str, ...]] | None, extra: dict[str, Json], problem: str, tmp_path: Path
) -> None:
    """G31. A literal `@news` must not match either, wherever it turns up."""
    (rule,), problems = read(tmp_path, policy(LISTED, **extra), lists)
    assert problems == [f"$.rules[0].if.domains.allowed[1]: {problem}"]
    assert rule.domains is not None
    assert rule.domains.allowed == {"first.com", "last.com"}


def keys(document: Json, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key of a document, by place."""
    found: list[tuple[str | int, ...]] = []
    items = document.items() if isinstance(document, dict) else enumerate(document)  # type: ignore[arg-type]
    for part, inner in items:
        if isinstance(part, str):
            found.append((*place, part))
        if isinstance(inner, dict | list):
            found.extend(keys(inner, (*place, part)))
    return found


@given(
    where=st.sampled_from(keys(policy(RULE))),
    spelling=st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda s: s[0] != "_"),
)
def test_no_key_is_ignored_whatever_it_is_called(
    where: tuple[str | int, ...], spelling: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """G1: a misspelt condition must never become no condition."""
    document: Json = policy(RULE)
    inner: Json = document
    for part in where[:-1]:
        inner = inner[part]  # type: ignore[index]
    assert isinstance(inner, dict)
    if spelling in inner:
        return
    inner[spelling] = inner.pop(str(where[-1]))
    report = Report()
    path = write(tmp_path_factory.mktemp("p") / "p.json", document)
    PolicyReader(home=HOME, report=report).read(path)
    known = {"listDefinitions", "skippedServers", "serverName", "constitutionHash", "inputHash"}
    assert report.has_errors or (len(where) == 1 and spelling in known)


NAMED: dict[str, Json] = {
    "name": "secrets",
    "if": {"names": {"roles": ["read-path"], "matching": [".ENV", ".aws/*"], "unless": ["*.Pub"]}},
    "then": "escalate",
}


def test_names_of_files_are_read_in_lower_case(tmp_path: Path) -> None:
    (rule,), problems = read(tmp_path, policy(NAMED))
    assert problems == []
    assert rule.names is not None
    assert rule.names.roles == {"read-path"}
    assert rule.names.matching == {".env", ".aws/*"}
    assert rule.names.unless == {"*.pub"}


@pytest.mark.parametrize(
    "pattern", ["", "/etc/x", "a//b", "a/", "../x", "*", "*/*", "a?", "[ab]", "*a*b*c*", 7]
)
def test_a_pattern_that_would_not_mean_what_it_seems_to_is_refused(
    tmp_path: Path, pattern: Json
) -> None:
    _, problems = read(tmp_path, policy(replaced(NAMED, ("if", "names", "matching"), [pattern])))
    assert len(problems) == 1
    assert problems[0].startswith("$.rules[0].if.names.matching[0]: ")


@pytest.mark.parametrize("key", ["roles", "matching"])
def test_a_condition_on_names_needs_its_roles_and_its_patterns(tmp_path: Path, key: str) -> None:
    condition: dict[str, Json] = {
        name: list(READ_NAMES[name]) for name in READ_NAMES if name != key
    }
    _, problems = read(tmp_path, policy(replaced(NAMED, ("if", "names"), condition)))
    assert problems == [f"$.rules[0].if.names.{key}: is missing"]


READ_NAMES: dict[str, list[Json]] = {"roles": ["read-path"], "matching": ["x"]}
