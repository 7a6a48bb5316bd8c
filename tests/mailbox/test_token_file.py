"""The file of a token: whose, how long, and what is said of a wrong one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import read_token

TOKEN = "s3cret-" * 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("line_end", ["", "\n", "\r\n"])
def test_a_token_is_one_line(path: Path, line_end: str) -> None:
    path.write_bytes((TOKEN + line_end).encode())
    assert read_token(path) == TOKEN


@pytest.mark.parametrize("length", [32, 4096])
def test_it_has_32_to_4096_characters(path: Path, length: int) -> None:
    path.write_text("x" * length + "\n")
    assert len(read_token(path)) == length


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x" * 31,
        b"x" * 31 + b"\n",
        b"x" * 4097,
        b"x" * 100_000,
        b"x" * 32 + b"\n\n",
        b"x" * 32 + b"\n" + b"y" * 32,
        b"x" * 32 + b" ",
        b"x" * 32 + b"\0",
        "é".encode() * 32,
    ],
    ids=lambda raw: f"{len(raw)} bytes",
)
def test_any_other_content_is_refused_and_not_shown(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    with pytest.raises(ConfigurationError, match="one line of 32 to 4096") as caught:
        read_token(path)
    assert str(path) in str(caught.value)
    assert "xxxx" not in str(caught.value)


def _linked(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _foreign(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_linked, "is a symbolic link"),
        (_pipe, "is not a regular file"),
        (_directory, "is not a regular file"),
        (_foreign, "belongs to another user"),
        (Path.unlink, "cannot be read"),
    ],
)
def test_what_is_no_file_of_ours_is_refused(
    path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(path)
    with pytest.raises(ConfigurationError, match=words):
        read_token(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666, 0o610])
def test_a_file_that_others_can_use_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600") as caught:
        read_token(path)
    assert "s3cret" not in str(caught.value)
