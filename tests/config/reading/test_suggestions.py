"""`did you mean`: a spelling is repaired, and what is done stays what it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.config.reading.document import nearest
from tests.tables import table

SQLITE = ["read_query", "list_tables", "describe_table", "append_insight"]
VERBS = ("read", "write", "create", "delete", "list", "get", "set", "push", "pull", "send", "drop")


def test_another_verb_is_never_suggested() -> None:
    cases = [
        ("write_query", SQLITE),
        ("create_table", SQLITE),
        ("purge_query", SQLITE),
        ("writeQuery", ["readQuery"]),
        ("writequery", ["readquery"]),
        ("getfile", ["setfile"]),
        ("git/git_push", ["git/git_pull"]),
        ("lock_issue", ["unlock_issue"]),
        ("undelete_file", ["delete_file"]),
        ("disable_user", ["enable_user"]),
        ("unsubscribe", ["subscribe"]),
        ("fs.write", ["fs.read"]),
        ("allowRead", ["allowWrite", "denyRead"]),
        ("delete_files", ["read_files", "write_files"]),
        ("table", ["drop_table"]),
        ("remove_file", ["move_file"]),
    ]
    assert [(word, known) for word, known in cases if nearest(word, known) != ""] == []


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    table("config/reading/suggestions.a_misspelling_is_repaired", list[tuple[str, list[str], str]]),
)
def test_a_misspelling_is_repaired(word: str, known: list[str], meant: str) -> None:
    assert nearest(word, known) == meant


@given(
    st.sampled_from(VERBS),
    st.sampled_from(VERBS),
    st.sampled_from(("query", "table", "file_contents", "issue_comment", "s")),
    st.sampled_from(("{}_{}", "git_{}_{}", "{}-{}", "db.{}.{}", "{}{}")),
)
def test_names_that_differ_in_their_verb_are_not_taken_for_each_other(
    one: str, other: str, noun: str, form: str
) -> None:
    if one != other:
        assert nearest(form.format(one, noun), [form.format(other, noun)]) == ""
