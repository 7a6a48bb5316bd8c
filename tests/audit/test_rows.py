"""What a line of `audit tail` keeps where the terminal is narrow."""

import pytest

from ironcurtain_proxy.audit.display import CallTable, columns, entry_of


def line_of(width: int | None, argument: str = "/home/me/project/src/calc.py") -> str:
    entry = entry_of(
        {
            "seq": 17,
            "timestamp": "2026-11-21T12:00:00.000Z",
            "serverName": "filesystem",
            "toolName": "read_text_file",
            "arguments": {"path": argument},
            "policyDecision": {"status": "escalate", "reason": "outside"},
            "escalationResult": "denied",
            "decidedBy": "human",
            "refusedBy": "declined",
            "note": "use ./src",
            "result": {"status": "denied"},
        }
    )
    return CallTable(width=width, when=lambda _: "2026-11-21 12:00:00", longest_number=2).row(entry)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_terminal_shows_tool_file_and_who_decided(width: int) -> None:
    line = line_of(width)
    assert columns(line) <= width
    for words in (
        "17",
        "12:00:00",
        "REFUSED",
        "person",
        "read_text_file",
        "src/calc.py",
        '"use ./',
    ):
        assert words in line


def test_the_narrowest_terminal_keeps_the_tool() -> None:
    assert "read_text_file" in line_of(60)
    assert columns(line_of(60)) <= 60


def test_what_is_no_path_keeps_its_beginning() -> None:
    assert "git push origin" in line_of(80, "git push origin main --force-with-lease")


def test_a_path_of_wide_and_invisible_characters_stays_in_its_column() -> None:
    assert columns(line_of(80, "/" + "\u4e2d" * 40 + "\x1b[2J" + "\u202e" * 20)) <= 80


@pytest.mark.parametrize("hidden", ["\u202e", "\u3164", "\ufe0f", "\U000e0100", "\u180b"])
def test_a_path_shows_every_character_that_it_has(hidden: str) -> None:
    assert hidden.encode("unicode_escape").decode() in line_of(None, f"/a{hidden}b")


def test_in_a_pipe_nothing_is_cut() -> None:
    path = "/home/me/project/" + "a-directory/" * 8 + "calc.py"
    assert f"filesystem/read_text_file  {' ' * 4}" in line_of(None)
    line = line_of(None, path)
    assert f"  {path}  " in line
    assert "…" not in line


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("refused in the client: User rejected tool use", "REFUSED"),
        ("the client did not say how the call ended", "left"),
        ("Exit code 3", "approved"),
    ],
)
def test_what_the_client_s_user_refused_is_not_shown_as_approved(error: str, word: str) -> None:
    fields: dict[str, object] = {
        "policyDecision": {"status": "allow"},
        "escalationResult": "approved",
        "decidedBy": "client",
        "result": {"status": "error", "error": error},
    }
    assert (entry_of(fields).decision, entry_of(fields).by) == (word, "client")
