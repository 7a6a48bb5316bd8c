"""Whether an operator's file can be replaced is known before anything is written."""

import os
from pathlib import Path

import pytest

from ironcurtain_proxy.config.migration import why_not_exchanged

NOBODY = 65534


def as_nobody(file: Path) -> str:
    """What the function says to a user who is in no group but its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.write(writer, why_not_exchanged(file).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = said.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_owner_or_group_is_said_to_be_one(tmp_path: Path) -> None:
    for place in (tmp_path, *tmp_path.parents):
        if not place.stat().st_mode & 1:
            place.chmod(place.stat().st_mode | 0o011)
    own = tmp_path / "own"
    own.mkdir()
    file = own / "mcp.json"
    file.write_text("{}")
    os.chown(own, NOBODY, NOBODY)
    os.chown(file, NOBODY, NOBODY)
    assert as_nobody(file) == ""
    os.chown(file, NOBODY, 0)
    assert as_nobody(file) == "belongs to the group root, of which you are no member"
    os.chown(file, 0, NOBODY)
    assert as_nobody(file) == "belongs to root"
    os.chown(file, NOBODY, NOBODY)
    os.chown(own, 0, 0)
    assert as_nobody(file) == f"cannot be replaced, because {own} is not writable for you"
    assert why_not_exchanged(file) == ""


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert "No such file" in why_not_exchanged(tmp_path / "missing")
