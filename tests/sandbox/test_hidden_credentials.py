"""What a sandbox hides of a home directory, on a real disk."""

from pathlib import Path

import pytest

from ironcurtain_proxy.credentials import places_of
from ironcurtain_proxy.sandbox.profile import Hidden
from ironcurtain_proxy.sandbox.shell_setup import Credentials, hidden_in, present


def _made(home: Path, *files: str) -> None:
    for file in files:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text("x")


def _hidden(home: Path, needed: tuple[str, ...] = (), **environ: str) -> Hidden:
    return hidden_in(str(home), present(places_of(str(home), environ)), needed)


def test_a_place_is_hidden_if_it_exists_and_its_program_may_get_it(tmp_path: Path) -> None:
    _made(tmp_path, ".config/gh/hosts.yml", ".npmrc")
    found = _hidden(tmp_path)
    assert set(found.closed) == {f"{tmp_path}/.config/gh", f"{tmp_path}/.npmrc"}
    assert found.lent["gh"] == (f"{tmp_path}/.config/gh",)
    assert "kubectl" not in found.lent


def test_copies_beside_a_place_are_hidden_and_lent_to_nobody(tmp_path: Path) -> None:
    copies = (".netrc~", ".netrc.bak", ".git-credentials.2026-01-01", ".config/gh.old/hosts.yml")
    _made(tmp_path, *copies, ".netrc.md", ".config/ghostty/config", ".ssh-notes")
    found = _hidden(tmp_path)
    hidden = {f"{tmp_path}/{one.removesuffix('/hosts.yml')}" for one in copies}
    assert set(found.closed) == hidden
    assert found.lent == {}


def test_a_file_among_others_is_hidden_with_its_directory_and_the_others_are_shown(
    tmp_path: Path,
) -> None:
    _made(tmp_path, ".cargo/credentials.toml", ".cargo/config.toml", ".cargo/bin/x")
    (tmp_path / ".cargo/link").symlink_to(tmp_path / ".cargo/credentials.toml")
    found = _hidden(tmp_path)
    assert found.closed == (f"{tmp_path}/.cargo",)
    assert set(found.shown) == {f"{tmp_path}/.cargo/config.toml", f"{tmp_path}/.cargo/bin"}


def test_a_link_is_hidden_at_what_it_leads_to(tmp_path: Path) -> None:
    _made(tmp_path, "dotfiles/netrc")
    (tmp_path / ".netrc").symlink_to(tmp_path / "dotfiles/netrc")
    assert f"{tmp_path}/dotfiles" in _hidden(tmp_path).closed


@pytest.mark.parametrize(
    ("variable", "value", "file"),
    [
        ("KUBECONFIG", "{}/a/kube:{}/b/kube", "b/kube"),
        ("XDG_CONFIG_HOME", "{}/xdg", "xdg/gh/hosts.yml"),
        ("DOCKER_CONFIG", "{}/d", "d/config.json"),
        ("CARGO_HOME", "{}/cargo", "cargo/credentials.toml"),
        ("XDG_RUNTIME_DIR", "{}/run", "run/containers/auth.json"),
    ],
)
def test_a_variable_moves_a_place(tmp_path: Path, variable: str, value: str, file: str) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    _made(other, file)
    closed = _hidden(home, (), **{variable: value.replace("{}", str(other))}).closed
    assert any(str(other / file).startswith(one) for one in closed)


def test_no_variable_hides_a_device_the_home_or_the_workspace(tmp_path: Path) -> None:
    environ = {"HISTFILE": "/dev/null", "DOCKER_CONFIG": str(tmp_path), "KUBECONFIG": "/"}
    assert _hidden(tmp_path, (), **environ).closed == ()
    work = tmp_path / "work"
    work.mkdir()
    assert _hidden(tmp_path, (str(work),), DOCKER_CONFIG=str(work)).closed == ()


def test_what_a_server_s_entry_names_is_its_own(tmp_path: Path) -> None:
    _made(tmp_path, ".kube/config", ".npmrc")
    found = _hidden(tmp_path, (f"{tmp_path}/.kube/config",))
    assert found.closed == (f"{tmp_path}/.npmrc",)


def test_the_stamp_changes_when_a_credential_appears_or_is_replaced(tmp_path: Path) -> None:
    hidden = Credentials.of(places_of(str(tmp_path), {}), ())
    before = hidden.stamp()
    _made(tmp_path, ".netrc")
    after = hidden.stamp()
    assert after != before
    assert [*hidden.existing()] == [f"{tmp_path}/.netrc"]
    (tmp_path / "new").write_text("y")
    (tmp_path / "new").rename(tmp_path / ".netrc")
    assert hidden.stamp() != after
