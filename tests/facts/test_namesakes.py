"""Names that are the same text to Unicode, and not the same file to the system."""

import os
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.arguments import Refusal, Speller
from ironcurtain_proxy.facts.paths import PathReader, PathReading


def read(tmp_path: Path, name: str) -> PathReading | Refusal:
    speller = Speller(home="/root", workspace=str(tmp_path), cwd=None)
    return PathReader(speller).read(name)


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        pytest.param("Kunden", "\u212aunden/k", id="a Kelvin sign for a K"),
        pytest.param("\u212aunden", "Kunden/k", id="a K for a Kelvin sign"),
        pytest.param("Priv\u00e9", "Prive\u0301", id="one character for two"),
        pytest.param("Prive\u0301", "Priv\u00e9", id="two characters for one"),
    ],
)
def test_a_missing_name_with_a_namesake_is_refused(tmp_path: Path, there: str, asked: str) -> None:
    (tmp_path / there).mkdir()
    refusal = read(tmp_path, asked)
    assert isinstance(refusal, Refusal)
    assert "another file" in refusal.reason


def test_a_namesake_is_no_reason_to_refuse_where_nothing_is_sent(tmp_path: Path) -> None:
    (tmp_path / "Kunden").mkdir()
    speller = Speller(home="/root", workspace=str(tmp_path), cwd=None)
    reading = PathReader(speller, keep_unreadable=True).read("\u212aunden/k")
    assert isinstance(reading, PathReading)


@pytest.mark.parametrize("name", ["new.txt", "n\u00e9w.txt", "Priv\u00e9"])
def test_a_name_without_namesakes_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "Priv\u00e9").mkdir()
    (tmp_path / "other").touch()
    assert isinstance(read(tmp_path, name), PathReading)


def test_a_namesake_in_the_root_directory_is_found_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def entries(place: str) -> list[str]:
        listed.append(place)
        return ["nai\u0308ve"]

    monkeypatch.setattr(os, "listdir", entries)
    assert isinstance(read(tmp_path, "/na\u00efve"), Refusal)
    assert listed == ["/"]
