"""What the engine takes a call for."""

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine.extraction import (
    CallSubject,
    are_feature_branches,
    branches_of,
    subject_of,
)
from ironcurtain_proxy.auto_confirm.engine.interaction import ROLE_OPERATIONS, Interaction
from ironcurtain_proxy.auto_confirm.engine_tables import TABLES
from ironcurtain_proxy.model.annotation import ArgumentRole
from tests.auto_confirm.engine import calls
from tests.auto_confirm.engine.calls import call, path_fact, text_fact, url_fact


def operations(interaction: Interaction) -> set[str]:
    return {touch.operation for touch in subject_of(interaction).touches}


@pytest.mark.requirement("B-12")
def test_a_command_is_what_its_parser_says() -> None:
    cases = [
        ("safe", "shell-safe"), ("rm", "shell-rm"), ("dd", "shell-dd-mount"),
        ("mount", "shell-dd-mount"), ("install", "install"), ("test", "test"),
        ("deploy", "deploy"), ("git-pull", "git-pull"), ("git-fetch", "git-fetch"),
        ("git-commit", "git-commit"), ("git-push", "git-push"),
        ("git-force-push", "git-force-push"), ("database", "database"), ("other", "unknown"),
        ("something new", "unknown"), ("", "unknown"),
    ]  # fmt: skip
    assert [
        (word, operation)
        for word, operation in cases
        if operations(calls.shell(word)) - {"read"} != {operation}
    ] == []


@pytest.mark.requirement("B-12")
def test_a_call_is_what_its_roles_name_and_switches_say() -> None:
    cases = [
        (calls.read("/srv/a"), {"read"}),
        (calls.edit("/srv/a"), {"edit"}),
        (calls.delete(), {"delete"}),
        (calls.fetch(), {"network"}),
        (calls.git("git_log"), {"read", "unknown"}),
        (calls.git("git_add", files=["a"]), {"edit", "read"}),
        (calls.git("git_commit", message="--amend"), {"git-commit"}),
        (calls.git("git_commit", amend=True), {"git-commit", "unknown"}),
        (calls.git("git_reset"), {"unknown", "read"}),
        (calls.git("git_pull", remote="--upload-pack=x"), {"git-pull", "unknown"}),
        (calls.push(), {"git-push"}),
        (calls.git("git_push", force=True), {"git-push", "git-force-push"}),
        (calls.git("git_push", force="false"), {"git-push", "git-force-push"}),
        (calls.git("git_push", forceWithLease=True), {"git-push", "git-force-push"}),
        (calls.git("git_push", force=False, tags=None), {"git-push"}),
        (calls.git("git_push", refspec="+feature/x"), {"git-push", "git-force-push"}),
        (calls.git("git_push", args=["-f"]), {"git-push", "git-force-push"}),
        (calls.git("git_push", options={"deep": [{"--force": 1}]}), {"git-push", "git-force-push"}),
        (
            call("filesystem", "edit_file", path_fact("path", "/a", roles=("read-path",))),
            {"read", "edit"},
        ),
        (calls.git("git_push", mode="mirror"), {"git-push", "git-force-push"}),
        (calls.shell(None), {"unknown", "read"}),
        (call("memory", "read_graph"), {"read"}),
        (call("memory", "create_entities", entities=[]), {"edit"}),
        (call("memory", "delete_entities", entityNames=["a"]), {"delete"}),
        (call("odd", "get_secret"), {"unknown"}),
        (call("odd", "run_tests", safe="yes"), {"unknown"}),
        (call("odd", "deployService"), {"deploy"}),
        (call("odd", "sql_query"), {"database"}),
        (call("odd", "git_push"), {"git-push"}),
        (call("odd", "git_push", force=True), {"git-push", "git-force-push"}),
        (call("odd", "read_file", force=True), {"unknown"}),
        (call("github", "push_files"), {"git-push"}),
        (call("github", "merge_pull_request"), {"git-push"}),
        (call("github", "fork_repository"), {"unknown"}),
        (call("mail", "get_mail", text_fact("to", "a@b", role="email-address")), {"unknown"}),
    ]
    assert [
        (interaction, found) for interaction, found in cases if operations(interaction) != found
    ] == []


@pytest.mark.parametrize(
    ("tool", "role", "found"),
    [
        ("read_notes", "read-path", {"read"}),
        ("update_notes", "read-path", {"read", "unknown"}),
        ("update_notes", "write-path", {"edit"}),
        ("read_notes", "delete-path", {"delete"}),
        ("frobnicate", "read-path", {"read", "unknown"}),
        ("read_and_delete", "read-path", {"read", "delete"}),
        ("publish_page", "read-path", {"read", "deploy"}),
        ("read_history", "delete-history", {"delete"}),
    ],
)
def test_of_a_tool_that_is_not_known_name_and_roles_must_agree(
    tool: str, role: ArgumentRole, found: set[str]
) -> None:
    assert operations(call("odd", tool, path_fact("path", "/srv/a", roles=(role,)))) == found


def test_a_server_that_only_calls_its_tool_like_a_known_one_gains_nothing() -> None:
    assert operations(call("odd", "git_pull")) == {"unknown"}
    assert operations(call("odd", "read_graph")) == {"unknown"}


def test_a_transport_that_runs_a_program_is_not_understood() -> None:
    remote = url_fact("remote", "ext::sh", "ext::sh", role="git-remote-url", ordinary=False)
    assert operations(calls.git("git_pull", remote)) == {"git-pull", "unknown"}


def test_a_listing_is_a_listing_where_it_lists() -> None:
    found = subject_of(
        call("filesystem", "list_directory", path_fact("p", "/a", roles=("read-path",)))
    )
    assert [(t.operation, str(t.path)) for t in found.touches] == [("list", "/a")]


def subject(interaction: Interaction) -> CallSubject:
    return subject_of(interaction)


@pytest.mark.requirement("B-13")
def test_the_scope_is_all_that_a_call_names() -> None:
    found = subject(calls.read("/b", "/a"))
    assert (found.scopes, found.scope) == (("/b", "/a"), "/a\n/b")
    assert subject(call("odd", "x")).scope == "odd/x"


def test_a_remote_s_scope_is_where_it_leads_not_what_it_is_called() -> None:
    assert subject(calls.push()).scopes == ("/srv/project", "localhost/acme/w")


@pytest.mark.parametrize(
    "interaction",
    [calls.shell("safe"), calls.query(), calls.strange("/a"), call("memory", "read_graph")],
)
def test_a_command_says_more_than_its_scope(interaction: Interaction) -> None:
    assert not subject(interaction).exact
    assert subject(calls.edit("/a")).exact


@pytest.mark.parametrize(
    ("current", "arguments", "expected"),
    [
        ("feature/x", {}, ("feature/x",)),
        ("refs/heads/feature/x", {}, ("feature/x",)),
        (None, {}, ("?",)),
        ("feature/x", {"ref": "main"}, ("feature/x", "main")),
        ("feature/x", {"refspec": "HEAD:main"}, ("feature/x", "main")),
        ("main", {"branch": "HEAD"}, ("main",)),
        ("feature/x", {"refspec": ":feature/y"}, ("feature/x", "?", "feature/y")),
        ("feature/x", {"branch": "feature/../main"}, ("feature/x", "?")),
        ("feature/x", {"branches": ["feature/y", 3]}, ("feature/x", "feature/y", "?")),
        ("feature/x", {"branch": "feature/*"}, ("feature/x", "?")),
        ("feature/x", {"branch": None}, ("feature/x",)),
    ],
)
def test_every_branch_that_could_be_meant_counts(
    current: str | None, arguments: dict[str, str], expected: tuple[str, ...]
) -> None:
    interaction = replace(calls.git("git_push", **arguments), branch=current)
    assert branches_of(interaction) == expected


def test_a_read_without_a_path_falls_under_no_row() -> None:
    for interaction in (call("filesystem", "read_file"), call("memory", "create_entities")):
        assert calls.decided(interaction).rows == ()
    own = calls.decided(call("memory", "read_graph"))
    assert own.rows == ("file_read_public",)


def test_of_a_forge_only_the_branch_that_is_named_counts() -> None:
    named = call("github", "push_files", text_fact("branch", "feature/x", role="branch-name"))
    assert branches_of(replace(named, branch="main")) == ("feature/x",)
    assert branches_of(call("github", "push_files")) == ()


@pytest.mark.requirement("X-10")
def test_to_read_something_else_is_another_thing_than_to_edit() -> None:
    both: tuple[ArgumentRole, ...] = ("read-path", "write-path")
    same = call("filesystem", "edit_file", path_fact("path", "/srv/a", roles=both))
    copied = call(
        "odd",
        "copy_file",
        path_fact("source", "/srv/project/.env", roles=("read-path",)),
        path_fact("destination", "/tmp/a", roles=("write-path",)),
    )
    assert subject(same).exact
    assert not subject(copied).single
    assert subject(calls.shell("install")).single


@pytest.mark.parametrize(
    ("operation", "said", "current", "branches"),
    [
        ("git-commit", ("HEAD",), "feature/x", ("feature/x",)),
        ("git-commit", ("HEAD",), None, ("?",)),
        ("git-commit", None, "feature/x", ("feature/x", "?")),
        ("git-push", ("feature/y",), "feature/x", ("feature/x", "feature/y")),
        ("git-push", ("HEAD:main",), "feature/x", ("feature/x", "main")),
        ("git-push", None, "feature/x", ("feature/x", "?")),
        ("safe", None, "feature/x", ("feature/x",)),
    ],
)
def test_a_command_changes_the_branches_it_names_and_the_current_one(
    operation: str, said: tuple[str, ...] | None, current: str | None, branches: tuple[str, ...]
) -> None:
    asked = replace(calls.shell(operation), command_branches=said, branch=current)
    assert branches_of(asked) == branches


def test_no_branch_is_not_a_feature_branch() -> None:
    assert not are_feature_branches((), ("feature/",))
    assert not are_feature_branches(("feature/a", "main"), ("feature/",))
    assert are_feature_branches(("feature/a", "fix/b"), ("feature/", "fix/"))


def test_every_role_of_an_argument_is_in_the_table() -> None:
    assert set(ROLE_OPERATIONS) == set(get_args(ArgumentRole))


def _lists(tables: object) -> Iterator[object]:
    """Yield the tables whose values are texts: operation by operation, or by server."""
    if isinstance(tables, dict):
        yield tables
        for inner in tables.values():
            yield from _lists(inner)


@pytest.mark.parametrize("name", ["tools", "roles", "raising"])
def test_no_word_of_a_table_stands_for_two_operations(name: str) -> None:
    for table in _lists(TABLES[name]):
        assert isinstance(table, dict)
        found = Counter(
            word for text in table.values() if isinstance(text, str) for word in text.split()
        )
        assert [word for word, count in found.items() if count > 1] == []
