"""A call in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.approval.summary import MAX_CHARACTERS, summary
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
)
from tests.approval.subjects import unhurried

pytestmark = pytest.mark.requirement("E-37")

KEY_TEXT = "sk-abc"


def path(name: str, role: ArgumentRole, *texts: str) -> ArgumentFact:
    return ArgumentFact(name, (role,), tuple(PathValue(t, RealPath.from_text(t)) for t in texts))


def url(*texts: str) -> ArgumentFact:
    return ArgumentFact("url", ("fetch-url",), tuple(UrlValue(t, ("a.org",)) for t in texts))


def mask(text: str) -> str:
    return text.replace(KEY_TEXT, "***")


def of(
    tool: str,
    *facts: ArgumentFact,
    arguments: Arguments | None = None,
    command: str | None = None,
) -> str:
    request = AccessRequest(
        server="s", tool=tool, annotated=True, has_arguments=True, arguments=facts
    )
    return summary(request, {} if arguments is None else arguments, command, mask)


WRITE = path("path", "write-path", "/work/a.txt")
BODY = ArgumentFact("content", ("none",), (TextValue("x"),))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of("run", command="ls -l"), "Execute: ls -l"),
        (
            of("write_file", WRITE, BODY, arguments={"content": "héllo"}),
            "Write to /work/a.txt (6 bytes)",
        ),
        (of("write_file", WRITE, arguments={"content": ""}), "Write to /work/a.txt (0 bytes)"),
        (of("save", WRITE, arguments={"text": "abc"}), "Write to /work/a.txt (3 bytes)"),
        (of("edit_file", WRITE, arguments={"content": "x"}), "Edit file: /work/a.txt"),
        (of("create_directory", WRITE), "Tool: create_directory"),
        (of("write_file", WRITE, arguments={"content": 3}), "Tool: write_file"),
        (of("delete_file", path("p", "delete-path", "/work/a")), "Delete: /work/a"),
        (
            of("delete", path("p", "delete-path", "/a", "/b", "/c")),
            "Delete: /a and 2 more",
        ),
        (
            of("move_file", path("p", "delete-path", "/a"), path("q", "write-path", "/b")),
            "Tool: move_file",
        ),
        (of("browse", url("https://a.org/x")), "Navigate to: https://a.org/x"),
        (
            of("browse", url("https://a.org/", "https://b.org/")),
            "Navigate to: https://a.org/ and 1 more",
        ),
        (of("delete_file", path("p", "delete-path")), "Tool: delete_file"),
        (of("browse", url()), "Tool: browse"),
        (of("anything"), "Tool: anything"),
    ],
)
def test_a_call_is_summed_up_by_what_it_names(found: str, expected: str) -> None:
    assert found == expected


def test_a_command_and_a_url_are_cut_at_two_hundred_characters() -> None:
    for length, cut in ((MAX_CHARACTERS, False), (MAX_CHARACTERS + 1, True)):
        text = "ü" * length
        expected = "ü" * MAX_CHARACTERS + ("..." if cut else "")
        assert of("run", command=text) == f"Execute: {expected}"
        assert of("browse", url(text)) == f"Navigate to: {expected}"


def test_secrets_are_masked_before_anything_is_cut() -> None:
    assert of("run", command=f"curl -H {KEY_TEXT}") == "Execute: curl -H ***"
    assert of("browse", url(f"https://a.org/?k={KEY_TEXT}")) == "Navigate to: https://a.org/?k=***"
    for role, tool in (("write-path", "edit_file"), ("delete-path", "delete")):
        named: ArgumentRole = "write-path" if role == "write-path" else "delete-path"
        assert KEY_TEXT not in of(tool, path("p", named, f"/work/{KEY_TEXT}"))
    # A secret on the cut would leave its beginning behind.
    almost = "x" * (MAX_CHARACTERS - 3) + KEY_TEXT
    assert "sk" not in of("run", command=almost)


def test_what_cannot_be_seen_is_shown_as_an_escape() -> None:
    assert of("run", command="ls\nAllowed: yes") == "Execute: ls\\nAllowed: yes"
    assert of("del\u202eete") == "Tool: del\\u202eete"
    assert of("delete", path("p", "delete-path", "/a\nb")) == "Delete: /a\\nb"


@unhurried
@given(st.text(), st.none() | st.text())
def test_a_summary_is_one_line_that_can_be_seen(tool: str, command: str | None) -> None:
    assert of(tool, command=command).isprintable()


def test_half_a_character_in_the_content_does_not_stop_the_question() -> None:
    assert of("write_file", WRITE, arguments={"content": "\ud800"}).endswith("(3 bytes)")
