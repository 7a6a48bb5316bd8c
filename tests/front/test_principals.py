"""Tokens and whose they are."""

from pathlib import Path

import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.front.guard import make_tokens, one_token, read_tokens

TOKEN = "t" * 40


def a_file(path: Path, text: str) -> Path:
    file = path / "tokens"
    file.write_text(text, "utf-8")
    file.chmod(0o600)
    return file


def test_each_token_has_its_principal(tmp_path: Path) -> None:
    found = read_tokens(a_file(tmp_path, f"# mine\nann {TOKEN}\n\nbob {TOKEN}2\n"))
    assert [found.of(f"Bearer {TOKEN}"), found.of(f"bearer {TOKEN}2")] == ["ann", "bob"]
    for wrong in ("", TOKEN, "Bearer ", f"Bearer {TOKEN}3", f"Basic {TOKEN}", "Bearer é"):
        assert found.of(wrong) is None


@pytest.mark.parametrize(
    "text", ["", "ann", f"ann {TOKEN} x", "ann short", f"../x {TOKEN}", f"ann {'é' * 40}"]
)
def test_a_file_that_is_no_list_of_tokens_is_refused_without_its_text(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_tokens(a_file(tmp_path, text))
    assert TOKEN not in str(raised.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = a_file(tmp_path, f"ann {TOKEN}")
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="can be used by others"):
        read_tokens(file)


def test_a_new_file_has_a_token_that_nobody_can_guess(tmp_path: Path) -> None:
    make_tokens(tmp_path / "state" / "one")
    make_tokens(tmp_path / "state" / "two")
    one, two = [(tmp_path / "state" / name).read_text("utf-8") for name in ("one", "two")]
    assert one != two
    assert len(one.split()[1]) >= 43
    assert read_tokens(tmp_path / "state" / "one").of(f"Bearer {one.split()[1]}") == "agent"


def test_a_token_without_a_name_is_the_agents() -> None:
    assert one_token(TOKEN, "PROXY_TOKEN").of(f"Bearer {TOKEN}") == "agent"
