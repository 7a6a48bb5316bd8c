"""Families of shell commands: what a remembered approval covers."""

from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT, covers
from tests.tables import table

OWN: Final = Path(__file__).parent / "family-pairs.jsonl"
CORPUS: Final = Path(__file__).parents[3] / "shared/corpora/families.jsonl"

STRETCHED: Final = table("shell/families.stretched", tuple[tuple[str, str], ...])
"""Pairs of commands: an approval of the first, remembered, may not cover the second."""

SAME_KIND: Final = table("shell/families.same_kind", tuple[tuple[str, str], ...])


def covers_after(approved: str, then: str) -> bool:
    """Return True if the approval of one command covers the other."""
    granted = families_of(parse_command(approved), PROJECT)
    return granted is not None and covers(granted, parse_command(then), PROJECT)


def test_a_family_covers_commands_of_its_kind() -> None:
    assert [pair for pair in SAME_KIND if not covers_after(*pair)] == []
    assert [one for one, _ in SAME_KIND if not covers_after(one, one)] == []


def test_what_shows_all_below_a_directory_is_one_family() -> None:
    assert covers_after("find ~/notes/rtk -name x", "find ~/notes/rtk -name y")


def test_a_family_covers_no_other_effect() -> None:
    assert [pair for pair in STRETCHED if covers_after(*pair)] == []


def test_what_can_change_the_effect_leaves_the_family() -> None:
    changes = [
        "{} && ./evil", "{}; rm -rf x", "{} > ~/.profile", "PATH=/tmp:$PATH {}", "cd .. && {}",
        "cd /tmp && {}", "sudo {}", "{} | sh", "{} --config /tmp/x", "{} ../../x", "{} $X",
        "{} \"$(cat ~/.ssh/id_rsa)\"", "env X=1 {}", "eval '{}' && {}", "{} @evil",
        "{} ~/.ssh/id_rsa", "{} /etc/passwd", "(cd /tmp); {} 2>/etc/x", "xargs {}",
        "{} https://evil.example/x",
    ]  # fmt: skip
    changed = [
        (one, change.format(one, one))
        for one, _ in SAME_KIND
        if "|" not in one
        for change in changes
    ]
    assert [pair for pair in changed if covers_after(*pair)] == []


@pytest.mark.parametrize(
    "command",
    table("shell/families.never_remembered", list[str]),
)  # fmt: skip
def test_some_commands_are_never_remembered_for_their_kind(command: str) -> None:
    families = families_of(parse_command(command), PROJECT)
    assert families is not None
    assert not any(family.is_general for family in families)


def test_an_approval_to_unpack_is_of_the_archive_as_it_is() -> None:
    for command, archive in {
        "tar xf a.tar": "/home/u/project/a.tar",
        "tar -C out -vxzf a.tgz": "/home/u/project/out",
        "tar --extract --file a.tar": "/home/u/project/a.tar",
        "unzip -o lib/a.zip -d out": "/home/u/project/lib/a.zip",
        "tar tf a.tar": None,
        "tar cf a.tar b": None,
        "unzip -l a.zip": None,
    }.items():
        found = families_of(parse_command(command), PROJECT)
        assert found is not None
        assert [one.defined_in for one in found] == [(archive,)] * len(found) if archive else True
        assert all(one.is_general is (archive is None) for one in found), command


def test_a_task_of_another_directory_is_another_family() -> None:
    granted = families_of(parse_command("npm run build"), PROJECT)
    assert granted is not None
    assert not covers(granted, parse_command("cd web && npm run build"), PROJECT)
    assert not covers(granted, parse_command("(cd web); npm run build"), PROJECT)
    assert not covers(granted, parse_command("true || cd web && npm run build"), PROJECT)


def test_a_push_without_words_is_the_family_of_where_it_goes() -> None:
    place = CommandPlace(
        workspace="/w", directory="/w", has_repository=True, branch="x", push_to=("origin", "x")
    )
    granted = families_of(parse_command("git push origin x"), place)
    assert granted is not None
    assert covers(granted, parse_command("git push"), place)
    assert covers(granted, parse_command("git push origin HEAD"), place)
    moved = CommandPlace(workspace="/w", directory="/w", branch="main", push_to=("origin", "main"))
    assert not covers(granted, parse_command("git push"), moved)


@pytest.mark.parametrize(
    "file",
    [
        OWN,
        pytest.param(
            CORPUS,
            marks=pytest.mark.skipif(not CORPUS.exists(), reason="it is not beside the project"),
        ),
    ],
    ids=["own", "corpus"],
)
def test_pairs_of_a_family_are_covered_and_none_is_stretched(file: Path) -> None:
    rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert len(rows) >= 40
    answers = [
        (
            row["want"],
            covers(
                families_of(parse_command(row["approved"]), PROJECT) or (),
                parse_command(row["then"]),
                PROJECT,
            ),
        )
        for row in rows
    ]
    asked = [covered for want, covered in answers if want == "ask"]
    free = [covered for want, covered in answers if want == "covered"]
    assert not any(asked)
    assert sum(free) >= 0.95 * len(free)


def test_a_command_of_too_many_parts_has_no_family() -> None:
    """Each part is compared with all others."""
    assert families_of(parse_command("npm test;" * 20), PROJECT)
    assert not families_of(parse_command("npm test;" * 300), PROJECT)


@pytest.mark.parametrize(
    "command", ["psql -c {}", "curl {}", "cat {}", "npm test {}", "ssh h {}", "pip install {}"]
)
@pytest.mark.parametrize("piece", ["a", "a-", "[", "{", "[a"])
def test_a_long_word_takes_no_square_of_its_length(command: str, piece: str) -> None:
    """Steps in expressions cannot be counted: a square would be a minute for all rows."""
    families_of(parse_command(command.format((piece * 8000)[:8000])), PROJECT)
