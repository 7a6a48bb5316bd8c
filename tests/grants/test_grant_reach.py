"""Whatever is approved: a grant covers the call it came from, and nothing far from it."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.grants.patterns import FLAGS, HISTORY, EscalatedCall, covers
from ironcurtain_proxy.model.annotation import RESOURCE_ROLES, ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.request import PathValue, TextValue, UrlValue, Value
from ironcurtain_proxy.model.values import Json
from tests.examples import examples
from tests.grants.test_book import NOW, PROTECTED, a_call, fact, path, remembered

pytestmark = pytest.mark.requirement("X-12")

# --- properties ------------------------------------------------------------------------------

DIRECTORIES = ("/", "/a", "/ab", "/a/b", "/home", "/home/me", "/home/me/x", "/srv/state", "/work")
PATHS = (*DIRECTORIES, "/a/f", "/ab/f", "/a/b/f", "/home/me/f", "/home/me/.ssh/id", "/work/f")
HOSTS = ("github.com/a/b", "github.com/a/c", "github.com", "evil.example", "")
NAMED: tuple[ArgumentRole, ...] = (
    *("read-path", "read-path", "write-path", "delete-path", "write-history"),
    *("fetch-url", "git-remote-url", "github-owner", "none", "branch-name"),
)
MORE = ("force", "recursive", "mode", "text", "novel")


def values_of(role: ArgumentRole) -> st.SearchStrategy[Value]:
    match ROLE_TRAITS[role].category:
        case "path":
            return st.sampled_from(PATHS).map(path)
        case "url":
            hosts = st.lists(st.sampled_from(HOSTS[:4]), min_size=1, max_size=2)
            return hosts.map(lambda found: UrlValue("u", tuple(found)))
        case _:
            return st.sampled_from(("acme", "other")).map(TextValue)


@st.composite
def calls(draw: st.DrawFn) -> EscalatedCall:
    names = draw(st.lists(st.sampled_from(("p", "q", "r")), unique=True, min_size=1, max_size=2))
    facts = []
    for name in names:
        role = draw(st.sampled_from(NAMED))
        found = draw(st.lists(values_of(role), max_size=2))
        facts.append(fact(name, role, *found))
    flags = draw(
        st.dictionaries(
            st.sampled_from(MORE), st.sampled_from((True, False, "x", None)), max_size=2
        )
    )
    resources = [r for found in facts for r in found.roles if r in RESOURCE_ROLES]
    roles = draw(st.lists(st.sampled_from(resources), max_size=2)) if resources else []
    given_as: dict[str, Json] = {f.name: f.values[0].text for f in facts if f.values}
    return replace(a_call(*facts, arguments={**given_as, **flags}), roles=tuple(roles))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[EscalatedCall, EscalatedCall]:
    """A call and one like it: of two calls that have nothing in common there is nothing to say."""
    first = draw(calls())
    facts = tuple(
        replace(found, values=tuple(draw(st.lists(values_of(found.roles[0]), max_size=2))))
        if draw(st.booleans())
        else found
        for found in first.request.arguments
    )
    arguments = dict(first.arguments)
    for found in facts:
        arguments.pop(found.name, None)
        if found.values:
            arguments[found.name] = found.values[0].text
    if draw(st.integers(0, 3)) == 0:
        arguments[draw(st.sampled_from(MORE))] = draw(st.sampled_from((True, False, "x")))
    second = replace(first, request=replace(first.request, arguments=facts), arguments=arguments)
    return first, second


known_directories = st.frozensets(st.sampled_from(DIRECTORIES), max_size=3)


@given(calls(), known_directories)
def test_every_candidate_covers_the_call_it_came_from(
    call: EscalatedCall, directories: frozenset[str]
) -> None:
    grant = remembered(call, *directories)
    assume(grant is not None)
    assert grant is not None
    assert covers(grant, call, NOW)


@settings(max_examples=examples(300))
@given(pairs(), known_directories)
def test_a_grant_covers_only_what_lies_where_the_approved_call_went(
    pair: tuple[EscalatedCall, EscalatedCall], directories: frozenset[str]
) -> None:
    """The specification, once more and naively: nothing that a person did not approve passes."""
    first, second = pair
    grant = remembered(first, *directories)
    if grant is None or not covers(grant, second, NOW):
        return
    assert not HISTORY.intersection(second.open_roles)
    for name in MORE:
        if name in FLAGS or True in (
            isinstance(first.arguments.get(name), bool),
            isinstance(second.arguments.get(name), bool),
        ):
            assert first.arguments.get(name) == second.arguments.get(name)
    for role in second.open_roles:
        approved = first.values(role)
        for value in second.values(role):
            if isinstance(value, UrlValue):
                assert set(value.domains) <= hosts_of(approved)
            else:
                assert any(is_near(value, known, directories) for known in approved)
            if isinstance(value, PathValue):
                assert not is_everything(value, approved)


def hosts_of(values: tuple[Value, ...]) -> set[str]:
    return {host for value in values if isinstance(value, UrlValue) for host in value.domains}


def is_near(value: Value, approved: Value, directories: frozenset[str]) -> bool:
    if not isinstance(value, PathValue) or not isinstance(approved, PathValue):
        return value == approved
    if value == approved:
        return True
    base = approved.text if approved.text in directories else approved.text.rpartition("/")[0]
    return value.text.startswith(f"{base}/") or value.text == base


def is_everything(value: PathValue, approved: tuple[Value, ...]) -> bool:
    """Whether it is protected, and was not named itself."""
    is_protected = any(value.path.is_within(closed) for closed in PROTECTED)
    return is_protected and not any(
        isinstance(known, PathValue) and any(known.path.is_within(p) for p in PROTECTED)
        for known in approved
    )


@given(calls(), known_directories)
def test_a_grant_is_void_for_another_tool_server_definition_or_a_changed_flag(
    call: EscalatedCall, directories: frozenset[str]
) -> None:
    grant = remembered(call, *directories)
    assume(grant is not None)
    assert grant is not None
    flipped = {**call.arguments, "force": not call.arguments.get("force")}
    for other in (
        replace(call, tool="write_file"),
        replace(call, server="other"),
        replace(call, definition="d2"),
        replace(call, definition=""),
        replace(call, arguments=flipped),
    ):
        assert not covers(grant, other, NOW)
