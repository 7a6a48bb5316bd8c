"""Sub-commands that only read one repository of a host are one kind; nothing else joins it."""

from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.request import CommandPlace, Family
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.kinds import wider
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT, covers
from tests.tables import table


def covered(approved: str, then: str) -> bool:
    granted = families_of(parse_command(approved), PROJECT) or ()
    return bool(granted) and covers(granted, parse_command(then), PROJECT)


def families(command: str) -> object:
    return families_of(parse_command(command), PROJECT)


def test_what_a_person_takes_for_one_thing_is_one_family() -> None:
    cases = table("shell/families.one_thing", list[tuple[str, str]])
    assert [(one, other) for one, other in cases if families(one) != families(other)] == []


def test_nothing_else_joins_the_kind() -> None:
    cases = table("shell/families.no_kind", list[str])
    assert [
        (other, approved)
        for other in cases
        for approved in ["gh pr view 1", "gh api repos/a/b/pulls/1"]
        if families(other) == families(approved)
    ] == []


@pytest.mark.parametrize(
    "other",
    [
        "gh api repos/a/b/pulls/1/comments/2/replies -F body=@/etc/passwd",
        "gh api repos/a/b/pulls/1/comments/2/replies -f body=x -f event=APPROVE",
        "gh api -X DELETE repos/a/b/pulls/1/comments/2/replies -f body=x",
        "gh api -X POST -X DELETE repos/a/b/pulls/1/comments/2/replies -f body=x",
        "gh api repos/a/c/pulls/1/comments/2/replies -f body=x",
        "gh api repos/a/b/pulls/1/comments/2/replies --input x -f body=x",
    ],
)
def test_a_request_that_writes_something_else_is_another_family(other: str) -> None:
    assert families("gh api repos/a/b/pulls/1/comments/2/replies -f body=x") != families(other)


def graphql(query: str, more: str = "") -> str:
    return f"gh api graphql -f query='{query}'{more}"


THREADS = '{ repository(owner: "me", name: "app") { pullRequest(number: 5) { id } } }'
RESOLVE = 'mutation { a: resolveReviewThread(input: {threadId: "X}"}) { thread { id } } }'


def test_queries_of_pull_requests_read_the_repository_as_other_sub_commands_do() -> None:
    approved = "gh pr view 5 --repo me/app"
    named = "query($o: String!, $n: String!) { repository(owner: $o, name: $n) { issues { id } } }"
    assert covered(approved, graphql(THREADS, " --jq .data"))
    assert covered(approved, graphql(named, " -F o=me -F n=app"))
    assert covered(graphql(THREADS), "gh pr checks 7 --repo me/app")


def test_a_query_of_more_than_one_repository_is_not_reading_of_it() -> None:
    cases = [
        graphql(RESOLVE), graphql(THREADS.replace("app", "other")), graphql("{ viewer { login } }"),
        graphql(THREADS.replace("pullRequest(number: 5)", "object(expression: \"HEAD:.env\")")),
        graphql(THREADS.replace("{ id }", "{ author { ... on User { repositories { id } } } }")),
        graphql(THREADS + " mutation { deleteRef(input: {}) { id } }"),
        graphql(THREADS.replace("{ repository", "{ x: viewer { login } repository")),
        graphql(THREADS, " --hostname evil.example"), "gh api graphql -F query=@x.graphql",
        graphql(THREADS, " --input x.json"), graphql(THREADS, " -f query=@x"),
        graphql("subscription { a { id } }"), 'gh api graphql -f query="$Q"',
    ]  # fmt: skip
    assert [then for then in cases if covered(graphql(THREADS), then)] == []


@pytest.mark.parametrize(
    "read",
    [
        "author { ... on User { email } }",
        "headRepository { issues(first: 1) { nodes { title } } }",
        "commits(first: 1) { nodes { commit { tree { entries { name } } } } }",
        "timelineItems(first: 1) { nodes { ... on CrossReferencedEvent { source { id } } } }",
        "title: bodySecretOfTheFuture",
        "...F } } } fragment F on PullRequest { author { ... on User { email } } x { y {",
        "title @include(if: true) { email }",
    ],
)
def test_a_field_that_nobody_named_is_not_reading_of_a_repository(read: str) -> None:
    assert not covered(graphql(THREADS), graphql(THREADS.replace("{ id }", f"{{ {read} }}")))


@pytest.mark.parametrize("read", ["mentionableUsers", "vulnerabilityAlerts", "environments"])
def test_people_alerts_and_deployments_are_not_reading_of_a_repository(read: str) -> None:
    other = THREADS.replace("pullRequest(number: 5)", f"issues: {read}(first: 5)")
    assert not covered(graphql(THREADS), graphql(other))


def test_threads_and_checks_of_a_pull_request_are_reading_of_a_repository() -> None:
    read = (
        "reviewThreads(first: 9) { edges { node { isResolved comments(last: 1) { nodes { ...C } } }"
        " } } commits(last: 1) { nodes { commit { statusCheckRollup { contexts(first: 9) { nodes {"
        " ... on CheckRun { name conclusion detailsUrl } } } } } } }"
    )
    named = " fragment C on PullRequestReviewComment { body path author { login } }"
    assert covered(graphql(THREADS), graphql(THREADS.replace("{ id }", f"{{ {read} }}") + named))


@pytest.mark.parametrize(
    "more", ["-w", "--json title -qenv", "--json title -q env", "--json title -cqenv.GH_TOKEN"]
)
def test_a_page_in_the_browser_or_a_filter_that_shows_the_token_is_no_reading(more: str) -> None:
    assert not covered("gh pr view 5", f"gh pr view {more} 5")


def test_a_mutation_is_the_names_of_its_changes() -> None:
    assert covered(graphql(RESOLVE), graphql(RESOLVE.replace("X}", "Y")))
    assert not covered(graphql(RESOLVE), graphql("mutation { deleteRef(input: {}) { id } }"))
    assert not covered(graphql(RESOLVE), graphql(THREADS))


def test_a_list_of_fields_that_is_none_joins_nothing_however_long_it_is() -> None:
    for fields in ("a" * 5000 + "-", "a," * 5000 + "-", "name,assignableUsers"):
        assert not covered("gh repo view --json name", f"gh repo view --json {fields}")
    assert covered("gh repo view --json name", "gh repo view --json name,url")


_MAIN: Final = "/home/me/src/cli"
_WORKTREE: Final = CommandPlace(
    directory=f"{_MAIN}/.worktrees/1", workspace=f"{_MAIN}/.worktrees/1", home="/home/me",
    has_repository=True, writable=("/tmp",), repository=f"{_MAIN}/.git",
)  # fmt: skip


def _in_worktree(command: str, place: CommandPlace = _WORKTREE) -> tuple[Family, ...] | None:
    return families_of(parse_command(command), place, held=True)


def test_the_first_worktree_of_the_repository_is_one_matter() -> None:
    (family,) = _in_worktree(f"sed -n 1,9p {_MAIN}/cmd/x.go") or ()
    for command in (f"cd {_MAIN} && head docs/a.md", f"cat {_MAIN}/go.mod"):
        (other,) = _in_worktree(command) or ()
        assert family.widened() in wider(other)


@pytest.mark.parametrize(
    "command",
    [
        "cat M/../other/a.txt", "cat ~/src/a.txt", "find M -type f", "rg x M", "grep -r x M",
        "cat M/*/.env", "cat M/.env", "cat M/server.key", "cat M/{a,.env}", "cat M/$x",
        "cat ~/.ssh/id_rsa", "cat M-other/a.txt", "cat M/.git/../../x", "tree M", "cp M/a.txt .",
        "cat M/a.txt > M/b.txt", "cd M && cat $(ls)", "cat M/.netrc", "sed -i s/a/b/ M/a.txt",
        "cd M && cat ../x", "cat M/a.txt ~/b.txt", "grep -f ~/x M/a.txt", "rm M/a.txt",
    ],
)  # fmt: skip
def test_an_approval_of_the_first_worktree_covers_nothing_else(command: str) -> None:
    (family,) = _in_worktree(f"cat {_MAIN}/go.mod") or ()
    found = _in_worktree(command.replace("M", _MAIN))
    below = family.widened()
    assert not found or any(below not in (one, *wider(one)) for one in found)


@pytest.mark.parametrize("repository", ["/home/me/.git", "/home/.git", "/.git", "/srv/bare.git"])
def test_a_home_with_a_repository_is_no_matter_of_its_own(repository: str) -> None:
    place = replace(_WORKTREE, repository=repository)
    assert not [one for one in _in_worktree("cat ~/a.txt", place) or () if one.wide]
