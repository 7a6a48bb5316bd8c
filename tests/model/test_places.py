"""Texts that a server takes for a name, and that look like a path or a URL."""

import pytest

from ironcurtain_proxy.model.request import PathValue, TextValue, may_be_a_place
from ironcurtain_proxy.model.values import RealPath
from tests.tables import table


def test_a_path_or_a_url_may_be_a_place() -> None:
    cases = [
        *("/etc/passwd", " ~/.ssh", "./x", "../x", "..\\x", "https://a.org", "a/../../b", "a/.."),
        *(
            "..",
            ".",
            "a\\..\\b",
            "C:\\Users",
            "c:/Users",
            "\\\\host\\share",
            "$HOME/x",
            "${HOME}/x",
        ),
        *(
            "%USERPROFILE%\\x",
            "file:/etc/passwd",
            "FILE:x",
            "https:evil.example",
            "data:text/plain,x",
        ),
        *("..%2f..%2fx", "%2Fetc%2Fpasswd", "a%5C..%5Cb", "\x00/etc/passwd"),
    ]
    assert [text for text in cases if not may_be_a_place(TextValue(text))] == []


@pytest.mark.parametrize(
    "text",
    table("model/places.a_name_is_no_place", list[str]),
)
def test_a_name_is_no_place(text: str) -> None:
    assert not may_be_a_place(TextValue(text))


def test_what_was_read_as_a_path_is_a_place_whatever_it_looks_like() -> None:
    assert may_be_a_place(PathValue("x", RealPath.from_text("/work/x")))
