"""What a person gets to see of a request."""

import ctypes
import os
import select
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.cli.review_screen.waiting_list import detail_of
from ironcurtain_proxy.mailbox.answering import ShownChange, changes_of, file_change
from ironcurtain_proxy.mailbox.display import (
    Field,
    also_of,
    banner,
    margin,
    reasons_of,
    rows,
    summary,
    visible,
)
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest
from ironcurtain_proxy.mailbox.messages import Owner, read_request, request_bytes, request_name
from ironcurtain_proxy.model.values import Json
from tests.mailbox.mailbox_fixture import CLOCK, escalation, within
from tests.tables import table

INVISIBLE = table("mailbox/display.invisible", dict[str, tuple[str, str]])


def test_what_does_not_show_itself_is_shown() -> None:
    assert [(text, shown) for text, shown in INVISIBLE.values() if visible(text) != shown] == []


def test_a_tool_with_a_long_name_is_named_to_its_end_in_the_details_of_its_call() -> None:
    one = pending({"path": "/etc/" + "x" * 300})
    one = PendingRequest(one.directory, replace(one.request, tool="read" * 70 + "_and_delete"))
    lines = [line.plain for line in detail_of(one, ShownChange([]), 40).lines]
    end = next(place for place, line in enumerate(lines) if line.endswith("…"))
    assert "_and_delete" in "".join(lines[: end + 1])


def test_ordinary_text_is_shown_as_it_is() -> None:
    assert visible("Grüße, 世界 🙂 C:\\x") == "Grüße, 世界 🙂 C:\\x"


def pending(arguments: dict[str, Json]) -> PendingRequest:
    asked = escalation(arguments=arguments, candidates=(within("/etc"),))
    raw = request_bytes(asked, Owner(1, ""))
    request = read_request(request_name(asked.id), raw)
    assert request is not None
    return PendingRequest(Path("/box"), request)


@given(st.text(), st.text())
def test_no_argument_can_write_to_the_terminal_or_begin_a_line(name: str, value: str) -> None:
    one = pending({name: value, "other": [value, {"x": value}]})
    first, *rest = banner(one, 1, CLOCK.now())
    assert first.startswith("[1] files/read_file")
    assert all(line.startswith("    ") for line in rest)
    assert all(line.isprintable() for line in (first, *rest))


@given(st.text(), st.integers(46, 120))
def test_nothing_but_a_name_stands_in_the_first_columns(value: str, width: int) -> None:
    """An argument must not wrap to where a field of its own would stand."""
    words = f"x{' ' * 60}rule   harmless {value}"
    for line in rows(Field("path", (visible(words),)), width)[1:]:
        assert line.startswith(" " * (margin(width) - 3))
        assert len(line) <= width


@given(st.text(), st.integers(46, 120))
def test_the_headline_writes_no_field_either(value: str, width: int) -> None:
    one = pending({"path": f"x{' ' * 60}    rule   harmless {value}"})
    shown = banner(one, 1, CLOCK.now(), width=width)
    headline = shown[: shown.index(next(line for line in shown if "argument path" in line))]
    assert all(line.startswith("      : ") for line in headline[1:])


@pytest.mark.requirement("E-37")
def test_a_banner_says_everything() -> None:
    lines = banner(pending({"path": "/etc/hosts", "lines": [1, 2]}), 3, CLOCK.now(), ["-a", "+b"])
    text = "\n".join(lines)
    for word in (
        "[3] files/read_file path=/etc/hosts",
        "left)",
        "Reads outside the workspace",
        "outside-workspace",
        "session-1",
        "argument path",
        "argument lines",
        "+b",
        "Allow files/read_file read-path within /etc",
    ):
        assert word in text


def test_a_long_argument_is_not_cut() -> None:
    text = "\n".join(f"line {number}" for number in range(3000))
    assert "line 2999" in "\n".join(banner(pending({"content": text}), 1, CLOCK.now()))


def test_an_edit_is_shown_as_a_diff() -> None:
    edits: Json = [{"oldText": "a\nb\nc", "newText": "a\nB\nc"}, {"oldText": "x", "newText": ""}]
    lines = changes_of("edit_file", {"path": "/x", "edits": edits})
    assert "-b" in lines
    assert "+B" in lines
    assert "-x" in lines


def test_a_write_is_shown_against_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one\ntwo\n")
    lines = changes_of("write_file", {"path": str(file), "content": "one\n2\u202e\n"})
    assert "-two" in lines
    assert "+2\\u202e" in lines
    assert changes_of("write_file", {"path": str(tmp_path / "new"), "content": "x"}) == [
        "(a new file)",
        "@@ -0,0 +1 @@",
        "+x",
    ]


def test_an_edit_of_a_file_is_shown_in_its_place_with_its_surroundings(tmp_path: Path) -> None:
    file = tmp_path / "calc.py"
    file.write_text("".join(f"line {number}\n" for number in range(20)))
    edits: Json = [{"oldText": "line 9\n", "newText": "LINE 9\n"}]
    assert changes_of("edit_file", {"path": str(file), "edits": edits}) == [
        "@@ -7,7 +7,7 @@",
        " line 6",
        " line 7",
        " line 8",
        "-line 9",
        "+LINE 9",
        " line 10",
        " line 11",
        " line 12",
    ]
    assert file.read_text().count("LINE") == 0


def test_an_edit_stands_once_where_the_diff_shows_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "calc.py"
    file.write_text("a = 1\nb = 2\n")
    one: Json = {"oldText": "a = 1", "newText": "a = 3"}
    given: dict[str, Json] = {"path": str(file), "edits": [one]}
    assert file_change("edit_file", given).shows == {"edits"}
    plain: dict[str, Json] = {"old_string": "a = 1", "new_string": "a = 4", "replace_all": True}
    # Another server's words for the same are no part of what the difference was made of.
    given = {"path": str(file), **plain, "newText": 1, "new_str": "EVIL", "replaceAll": "EVIL"}
    assert file_change("Edit", given).shows == {*plain}
    new: dict[str, Json] = {"path": str(tmp_path / "new"), "content": "x", "text": "EVIL"}
    assert file_change("write_file", new).shows == {"content"}


@pytest.mark.parametrize(
    "given", table("mailbox/display.what_the_diff_does_not_show_in_full", list[dict[str, Json]])
)
def test_what_the_diff_does_not_show_in_full_is_shown_beside_it(
    tmp_path: Path, given: dict[str, Json]
) -> None:
    file = tmp_path / "calc.py"
    file.write_text("a = 1\nb = 2\n")
    assert file_change("write_file", {"path": str(file), **given}).shows == frozenset()


def test_an_edit_that_cannot_happen_says_so(tmp_path: Path) -> None:
    file = tmp_path / "calc.py"
    file.write_text("a = 1\n")
    edits: Json = [{"oldText": "a = 1", "newText": "a = 2"}, {"oldText": "NOT", "newText": "x"}]
    lines = changes_of("edit_file", {"path": str(file), "edits": edits})
    assert lines[0] == "(would fail: the text of edit 2 to replace is not in the file)"
    gone = changes_of("edit_file", {"path": str(tmp_path / "gone"), "edits": edits})
    assert gone[0] == "(would fail: there is no such file)"


def test_an_edit_of_every_place_is_shown_in_every_place(tmp_path: Path) -> None:
    file = tmp_path / "calc.py"
    file.write_text("a\nb\na\n")
    call: dict[str, Json] = {"file_path": str(file), "old_string": "a", "new_string": "c"}
    assert [line for line in changes_of("Edit", call) if line[0] in "+-"] == ["-a", "+c"]
    everywhere = changes_of("Edit", {**call, "replace_all": True})
    assert [line for line in everywhere if line[0] in "+-"] == ["-a", "+c", "-a", "+c"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"source": "a.py", "destination": "b.py"}, "files/read_file a.py → b.py"),
        ({"paths": ["/etc/passwd", "b", "c"]}, "files/read_file paths: 3, /etc/passwd …"),
        ({"cwd": "/srv", "command": "make\ntest"}, "files/read_file command=make …"),
        ({"command": "a" * (1 << 20)}, f"files/read_file command={'a' * 1000} …"),
        ({"edits": [{"a": 1}]}, 'files/read_file edits=[{"a":1}]'),
        ({}, "files/read_file"),
    ],
)
def test_a_headline_tells_what_a_call_is_about(arguments: dict[str, Json], told: str) -> None:
    assert summary(pending(arguments)) == told


def test_a_call_that_changes_no_text_has_no_diff() -> None:
    assert changes_of("read_file", {"path": "/etc/hosts"}) == []
    assert changes_of("send", {"path": "/etc/hosts", "content": "x"}) == []
    assert changes_of("edit_file", {"edits": "none", "path": 1}) == []


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("pipe", "binary", "", "\0"):
        lines = changes_of("write_file", {"path": str(tmp_path / name), "content": "x"})
        assert lines == ["(what the file holds now cannot be shown)"]


def test_a_device_that_an_agent_names_is_not_opened() -> None:
    """Opening alone can rewind a tape, or start a watchdog."""
    device = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        libc = ctypes.CDLL(None)
        libc.ptsname.restype = ctypes.c_char_p
        assert libc.grantpt(device) == libc.unlockpt(device) == 0
        path = libc.ptsname(device).decode()
        assert changes_of("write_file", {"path": path, "content": "x"}) != []
        watch = select.poll()
        watch.register(device, select.POLLHUP)
        assert watch.poll(0) == [], "it was opened and closed"
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
        assert watch.poll(0) == [(device, select.POLLHUP)]
    finally:
        os.close(device)


def test_the_worst_reason_stands_first() -> None:
    one = pending({"path": "/etc/hosts"})
    why = (("tool-policy", "mode"), ("engine", "odd"), ("policy", "outside"), ("secrets", "a key"))
    asked = PendingRequest(one.directory, replace(one.request, why=why))
    assert reasons_of(asked)[0].lines == ("secrets: a key",)
    (others,) = also_of(asked)
    assert others.lines == ("policy: outside", "approval mode: mode", "engine: odd")
    assert also_of(one) == []


def test_a_mode_that_asks_is_read_after_what_the_call_does() -> None:
    one = pending({"command": "curl x"})
    why, told = (("tool-policy", "mode"),), ("Fetches from x: curl.", "Runs programs: sh.")
    asked = PendingRequest(one.directory, replace(one.request, told=told, why=why))
    assert reasons_of(asked)[0].lines == told
    assert [each.lines for each in also_of(asked)] == [("approval mode: mode",)]
    alone = PendingRequest(one.directory, replace(one.request, told=(), why=why))
    assert len(reasons_of(alone)[0].lines) == 1


def test_what_the_call_does_stands_before_every_reason() -> None:
    one = pending({"path": "/etc/hosts"})
    told = ("Reads /etc/hosts, outside the workspace.",)
    for why in ((("policy", "outside"),), (("policy", "outside"), ("secrets", "a key"))):
        request = replace(one.request, told=told, why=why)
        asked = PendingRequest(one.directory, request)
        shown = reasons_of(asked)[0].lines
        assert shown[0] == told[0]
        assert len(shown) == len(told) + 1, "the worst reason is read with it"
        assert "policy: outside" in (
            *shown,
            *[text for one in also_of(asked) for text in one.lines],
        )
