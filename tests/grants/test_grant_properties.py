"""What no grant covers, however it came to be."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.grants.patterns import (
    HISTORY,
    PINNED,
    EscalatedCall,
    Places,
    candidates,
    covers,
    has_expired,
    is_of,
)
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.grant import (
    Constraint,
    ExactValue,
    Grant,
    GrantId,
    GrantPattern,
    OnHost,
    SameFlag,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import TextValue, UrlValue
from ironcurtain_proxy.model.values import Json, RealPath
from tests.grants.test_book import NOW, a_call, fact, path

pytestmark = pytest.mark.requirement("X-12")


def grant(*constraints: Constraint, definition: str = "d1", tool: str = "read_file") -> Grant:
    pattern = GrantPattern(
        server="filesystem",
        tool=tool,
        definition=definition,
        constraints=constraints,
        description="it",
    )
    return Grant(
        id=GrantId("g1"), pattern=pattern, created=NOW, expires=None, source="human", reason="so"
    )


def within(role: ArgumentRole, directory: str = "/data") -> WithinDirectory:
    return WithinDirectory(role, RealPath.from_text(directory))


READ = a_call(fact("path", "read-path", path("/data/a")))


def test_the_grants_of_this_file_would_cover() -> None:
    assert covers(grant(within("read-path")), READ, NOW)


def test_a_grant_without_a_constraint_on_a_role_covers_nothing() -> None:
    left_out = a_call(fact("path", "read-path"), arguments={}, roles=("read-path",))
    flag = SameFlag("path", None)
    assert not covers(grant(), READ, NOW)
    assert not covers(grant(), a_call(arguments={}), NOW)
    assert not covers(grant(flag), left_out, NOW)


def test_a_call_without_roles_is_covered_by_no_grant() -> None:
    assert not covers(grant(within("read-path")), a_call(arguments={"text": "x"}), NOW)


@pytest.mark.parametrize("role", sorted(HISTORY))
def test_no_grant_covers_a_change_of_history(role: ArgumentRole) -> None:
    call = a_call(fact("path", role, path("/data/a")))
    assert not covers(grant(within(role)), call, NOW)
    mixed = a_call(fact("path", ("read-path", role), path("/data/a")))
    assert not covers(grant(within("read-path"), within(role)), mixed, NOW)


@given(st.sampled_from(["/data/a", "/data", "/", "/data2/a", "/other"]))
def test_a_grant_for_a_directory_covers_what_lies_in_it(place: str) -> None:
    call = a_call(fact("path", "read-path", path(place)))
    inside = place.startswith("/data/")
    assert covers(grant(within("read-path")), call, NOW) is inside


def test_each_value_of_a_role_must_be_covered() -> None:
    both = a_call(fact("paths", "read-path", path("/data/a"), path("/etc/passwd")))
    assert not covers(grant(within("read-path")), both, NOW)
    assert covers(grant(within("read-path"), within("read-path", "/etc")), both, NOW)


def test_each_role_of_a_call_must_be_covered() -> None:
    move = a_call(
        fact("from", "read-path", path("/data/a")), fact("to", "write-path", path("/data/b"))
    )
    assert not covers(grant(within("read-path")), move, NOW)
    assert covers(grant(within("read-path"), within("write-path")), move, NOW)


def test_a_constraint_on_a_role_that_the_call_leaves_out_is_not_met() -> None:
    assert not covers(grant(within("read-path"), within("write-path")), READ, NOW)


@pytest.mark.parametrize(
    ("domains", "ordinary", "covered"),
    [
        (("github.com",), True, True),
        (("github.com",), False, False),
        ((), True, False),
        (("github.com", "evil.example"), True, False),
        (("github.com", "gitlab.com"), True, True),
        (("evil.example",), True, False),
    ],
)
def test_every_host_of_a_url_must_be_granted(
    domains: tuple[str, ...], ordinary: bool, covered: bool
) -> None:
    url = UrlValue(text="https://github.com/x", domains=domains, ordinary=ordinary)
    call = a_call(fact("url", "fetch-url", url))
    given = grant(
        OnHost("fetch-url", "https://github.com"), OnHost("fetch-url", "https://gitlab.com")
    )
    assert covers(given, call, NOW) is covered


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("https://a.example/other", True),
        ("http://a.example/x", False),
        ("https://a.example:8443/x", False),
        ("ftp://a.example/x", False),
        ("//a.example/x", False),
        ("https://a.example:x/", False),
    ],
)
def test_a_remembered_https_host_is_neither_http_nor_another_port(text: str, covered: bool) -> None:
    def asked(text: str) -> EscalatedCall:
        return a_call(fact("url", "fetch-url", UrlValue(text=text, domains=("a.example",))))

    [pattern] = candidates(asked("https://a.example/x"), Places(directories=frozenset()))
    assert covers(grant(*pattern.constraints), asked(text), NOW) is covered


@pytest.mark.parametrize("role", ["read-path", "write-path", "delete-path"])
def test_a_remembered_file_does_not_cover_its_directory(role: ArgumentRole) -> None:
    def asked(text: str) -> EscalatedCall:
        return a_call(fact("path", role, path(text)))

    there = RealPath.from_text("/data")
    [of_file] = candidates(asked("/data/a"), Places(directories=frozenset()))
    assert covers(grant(*of_file.constraints), asked("/data/b"), NOW)
    assert not covers(grant(*of_file.constraints), asked("/data"), NOW)
    [of_all] = candidates(asked("/data"), Places(directories=frozenset({there})))
    assert covers(grant(*of_all.constraints), asked("/data"), NOW)
    assert covers(grant(*of_all.constraints), asked("/data/a"), NOW)


def test_a_grant_of_another_kind_covers_no_url() -> None:
    url = UrlValue(text="/data/a", domains=("github.com",), ordinary=True)
    call = a_call(fact("url", "fetch-url", url))
    assert not covers(grant(ExactValue("fetch-url", "/data/a")), call, NOW)


@pytest.mark.parametrize(
    ("text", "covered"), [("acme", True), ("Acme", True), ("acme2", False), ("", False)]
)
def test_an_exact_value_is_that_value(text: str, covered: bool) -> None:
    call = a_call(fact("owner", "github-owner", TextValue(text)))
    assert covers(grant(ExactValue("github-owner", "acme")), call, NOW) is covered


def test_an_exact_path_is_no_directory() -> None:
    given = grant(ExactValue("read-path", "/data"))
    assert covers(given, a_call(fact("path", "read-path", path("/data"))), NOW)
    assert not covers(given, READ, NOW)


def with_flag(value: object) -> EscalatedCall:
    arguments = {"path": ["/data/a"], **({} if value is None else {"force": value})}
    return a_call(fact("path", "read-path", path("/data/a")), arguments=arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, False, 1, 0, "true", "x"])
def test_a_flag_that_came_to_a_call_is_not_covered(value: object) -> None:
    assert not covers(grant(within("read-path")), with_flag(value), NOW)


def test_a_flag_is_what_it_was() -> None:
    given = grant(within("read-path"), SameFlag("force", True))
    assert covers(given, with_flag(True), NOW)
    for value in (False, None, 1, "true"):
        assert not covers(given, with_flag(value), NOW)


def test_a_role_may_stay_left_out_and_must_not_come() -> None:
    given = grant(within("read-path"), SameFlag("to", None))

    def call(*values: str) -> EscalatedCall:
        return a_call(
            fact("path", "read-path", path("/data/a")),
            fact("to", "write-path", *[path(value) for value in values]),
            arguments={"path": ["/data/a"], **({"to": list(values)} if values else {})},
        )

    assert covers(given, call(), NOW)
    assert not covers(given, call("/data/b"), NOW)
    assert not covers(grant(within("read-path")), call(), NOW)


@pytest.mark.parametrize("definition", ["", "d2"])
def test_a_tool_that_is_no_longer_what_it_was_is_not_covered(definition: str) -> None:
    changed = grant(within("read-path"), definition=definition)
    assert isinstance(changed.pattern, GrantPattern)
    assert not is_of(changed.pattern, READ)
    assert not covers(changed, READ, NOW)


def test_another_tool_is_not_covered() -> None:
    assert not covers(grant(within("read-path"), tool="write_file"), READ, NOW)


def test_a_tool_whose_definition_is_not_known_is_not_covered() -> None:
    unknown = EscalatedCall(
        server="filesystem",
        tool="read_file",
        definition="",
        request=READ.request,
        arguments=READ.arguments,
        roles=READ.roles,
    )
    assert not covers(grant(within("read-path"), definition=""), unknown, NOW)


def test_a_grant_ends_at_its_moment() -> None:
    def until(seconds: int) -> Grant:
        pattern = grant(within("read-path")).pattern
        ends = NOW + timedelta(seconds=seconds)
        return Grant(
            id=GrantId("g1"),
            pattern=pattern,
            created=NOW,
            expires=ends,
            source="human",
            reason="so",
        )

    assert not has_expired(until(1), NOW)
    assert has_expired(until(0), NOW)
    assert covers(until(1), READ, NOW)
    assert not covers(until(0), READ, NOW)
    assert not covers(until(-1), READ, NOW)


@pytest.mark.parametrize("role", sorted(PINNED))
def test_a_call_that_names_no_resource_is_covered_by_no_grant(role: ArgumentRole) -> None:
    """Its other words alone do not say what it does."""
    fact_of = fact("to", role, TextValue("x"))
    call = replace(a_call(fact_of, arguments={"to": "x"}), roles=())
    assert call.open_roles == ()
    assert not covers(grant(ExactValue(role, "x"), SameFlag("to", "x")), call, NOW)


@pytest.mark.parametrize(
    "name",
    [
        *("force", "Force", "force_with_lease", "--force", "dryRun", "dry_run", "no-verify"),
        *(
            "mergeMethod",
            "event",
            "mode",
            "op",
            "share_permission"[6:],
            "visibility",
            "sub-command",
        ),
        *("recursive", "overwrite", "amend", "confirm", "delete", "action", "state", "strategy"),
        *("http_method", "requestMethod", "HTTPMethod", "operation-type"),
    ],
)
def test_an_argument_that_changes_what_a_call_does_must_be_what_it_was(name: str) -> None:
    """However it is spelled, and whatever its type."""
    place = fact("path", "read-path", path("/data/a"))
    kept = grant(within("read-path"), SameFlag(name, "merge"))
    same = a_call(place, arguments={"path": "/data/a", name: "merge"})
    other = a_call(place, arguments={"path": "/data/a", name: "squash"})
    assert covers(kept, same, NOW)
    assert not covers(kept, other, NOW)
    assert not covers(grant(within("read-path")), same, NOW)


@pytest.mark.parametrize(
    "options", [{"dryRun": False}, {"a": [{"force": "yes"}]}, [{"http_method": "DELETE"}]]
)
def test_what_changes_a_call_inside_an_object_is_no_part_of_a_grant(options: Json) -> None:
    """A dry run was approved, and a deletion is none."""
    place = fact("path", "read-path", path("/data/a"))
    kept = grant(within("read-path"))
    assert not covers(kept, a_call(place, arguments={"path": "/data/a", "more": options}), NOW)
    plain = a_call(place, arguments={"path": "/data/a", "more": [{"text": "force"}, {"op": None}]})
    assert covers(kept, plain, NOW)


@pytest.mark.parametrize("role", ["branch-name", "email-address", "share-permission"])
def test_who_gets_it_and_where_it_ends_up_is_part_of_a_grant(role: ArgumentRole) -> None:
    """G14."""
    assert role in PINNED
