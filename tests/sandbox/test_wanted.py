"""What a server was refused is read from the words of several languages, and proposed narrowly."""

from pathlib import Path

import pytest

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.wanted import RefusedWrite, folder_for, opened_for, refused_writes
from tests.tables import table

HOME = "/home/me-who-is-nobody"


@pytest.mark.parametrize(
    ("text", "path", "is_directory"),
    table("sandbox/leads.refused_places", list[tuple[str, str, bool]]),
)
def test_a_refused_place_is_read_from_its_error(text: str, path: str, is_directory: bool) -> None:
    assert refused_writes(text) == (RefusedWrite(path, is_directory),)


@pytest.mark.parametrize(
    "text",
    [
        "ENOENT: no such file or directory, open '/h/x'",
        "remote: Permission denied",
        "EROFS without a path",
        "x" * 1000,
        "mkdir " * 10_000,
    ],
)
def test_other_words_name_no_place(text: str) -> None:
    assert refused_writes(text) == ()


@pytest.mark.parametrize(
    ("path", "is_directory", "folder"),
    [
        (f"{HOME}/.tool", True, "~/.tool"),
        (f"{HOME}/.tool/deep/file", False, "~/.tool"),
        (f"{HOME}/.config/tool/x", False, "~/.config/tool"),
        (f"{HOME}/.local/share/tool/x", False, "~/.local/share/tool"),
        (f"{HOME}/.cache/tool", True, "~/.cache/tool"),
        (f"{HOME}/.toolrc", False, None),
        (f"{HOME}/.config", True, None),
        (f"{HOME}/.local/share", True, None),
        (f"{HOME}/.ssh/known_hosts", False, None),
        (f"{HOME}/.aws/x", False, None),
        (f"{HOME}/.ironcurtain/x", False, None),
        (f"{HOME}/.config/gh/hosts.yml", False, None),
        (f"{HOME}/.config/gh", True, None),
        (f"{HOME}/.cargo/registry/x", False, None),
        (f"{HOME}/.tool/id_rsa", False, None),
        (HOME, True, None),
        ("/etc/x/y", False, None),
        (f"{HOME}/../other/.tool/x", False, None),
    ],
)
def test_only_a_folder_of_one_program_is_proposed(
    path: str, is_directory: bool, folder: str | None
) -> None:
    (found,) = refused_writes(
        f"EROFS: read-only file system, {'mkdir' if is_directory else 'open'} '{path}'"
    )
    assert folder_for(found, HOME) == folder


def test_a_folder_of_the_users_own_files_is_not_hidden_by_a_private_one(tmp_path: Path) -> None:
    place = tmp_path / "Documents"
    refused = RefusedWrite(f"{place}/tasks.json", False)
    assert folder_for(refused, str(tmp_path)) == "~/Documents"
    place.mkdir()
    for number in range(100):
        (place / str(number)).touch()
    assert folder_for(refused, str(tmp_path)) is None


def test_what_is_opened_is_added_to_what_the_entry_opens() -> None:
    given: dict[str, Json] = {
        "command": "x",
        "sandbox": {"network": {"allowedDomains": ["a.b"]}, "limits": {}},
    }
    assert opened_for(given, private=["~/.x"], hosts=["a.b", "c.d"]) == {
        "command": "x",
        "sandbox": {
            "network": {"allowedDomains": ["a.b", "c.d"]},
            "limits": {},
            "filesystem": {"private": ["~/.x"]},
        },
    }
    assert opened_for({"command": "x"}) == {"command": "x"}
