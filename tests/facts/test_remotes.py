"""Which remotes an argument names, and whose configuration says where they lead."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.arguments import Refusal
from ironcurtain_proxy.facts.git import GitRemotes, _git_environment, _read_settings
from ironcurtain_proxy.facts.git_process import GitOutput
from ironcurtain_proxy.facts.pushes import RemoteReader
from ironcurtain_proxy.model.request import UrlValue, Value
from ironcurtain_proxy.model.values import Json, RealPath
from tests.facts.test_git import EVIL, GOOD, INSTEAD, ORIGIN, environment, home, remotes, repository

__all__ = ["home", "remotes", "repository"]


def read(  # noqa: PLR0913  what tests vary
    remotes: GitRemotes,
    tool: str,
    value: Json,
    *,
    cwd: str | None = None,
    inside: str | None = None,
    plain: bool = False,
    of_git: bool = True,
) -> tuple[Value, ...] | Refusal:
    place = None if inside is None else RealPath.from_text(inside)
    reader = RemoteReader(cwd=cwd, plain_urls_only=plain)
    return reader.read(tool, value, place, remotes, of_git=of_git)


def hosts(found: tuple[Value, ...] | Refusal) -> list[tuple[str, ...]]:
    assert not isinstance(found, Refusal), found
    return [one.domains for one in found if isinstance(one, UrlValue)]


def only(found: tuple[Value, ...] | Refusal) -> Value:
    assert not isinstance(found, Refusal), found
    (one,) = found
    return one


def test_a_clone_is_not_rewritten_by_the_repository_the_server_stands_in(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    """What a clone reads is the user's configuration: a workspace must not lead it elsewhere, nor
    make an evil destination look good."""
    workspace = repository(INSTEAD.replace("evil", "other"))
    [cloned] = hosts(read(remotes, "git_clone", GOOD, cwd=workspace))
    assert cloned[0].startswith("github.com")
    [cloned] = hosts(read(remotes, "git_clone", GOOD, cwd=workspace, inside=workspace))
    assert cloned[0].startswith("github.com")


def test_a_push_is_rewritten_by_the_repository_it_goes_out_from(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    workspace = repository(INSTEAD)
    [pushed] = hosts(read(remotes, "git_push", GOOD, inside=workspace))
    assert pushed[0].startswith("evil.example.com")
    [pushed] = hosts(read(remotes, "git_push", GOOD, cwd=workspace))
    assert pushed[0].startswith("evil.example.com")


def test_a_name_without_a_repository_leads_nowhere(remotes: GitRemotes) -> None:
    assert isinstance(read(remotes, "git_push", "origin"), Refusal)
    [pushed] = hosts(read(remotes, "git_push", GOOD))
    assert pushed[0].startswith("github.com")


@pytest.mark.parametrize("value", [None, "", []])
def test_a_remote_left_out_is_the_default_of_a_tool_that_contacts_one(
    value: Json, repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    """G9."""
    workspace = repository(ORIGIN)
    [pushed] = hosts(read(remotes, "git_push", value, inside=workspace))
    assert pushed[0].startswith("github.com")
    for found in (
        read(remotes, "git_push", value),
        read(remotes, "git_push", value, inside=workspace, of_git=False),
        read(remotes, "git_status", value, inside=workspace),
    ):
        assert hosts(found) in ([], [()], [("",)])


def test_several_remotes_are_each_a_value(remotes: GitRemotes) -> None:
    assert len(hosts(read(remotes, "git_push", [GOOD, EVIL]))) == 2


def test_more_remotes_than_anybody_has_are_refused(remotes: GitRemotes) -> None:
    assert isinstance(read(remotes, "git_push", [GOOD] * 1000), Refusal)


def test_an_empty_remote_among_others_is_refused(remotes: GitRemotes) -> None:
    """It stands for no default, and no rule was written about a host without a name."""
    values: list[list[Json]] = [[GOOD, ""], ["", GOOD], [""], ["", ""]]
    for value in values:
        found = read(remotes, "git_push", value)
        assert isinstance(found, Refusal)
        assert "empty remote" in found.reason


@pytest.mark.parametrize("value", [0, 1, -1.5, True, False, {}, {"url": GOOD}])
@pytest.mark.parametrize("tool", ["git_push", "git_fetch", "git_clone", "other"])
def test_a_remote_that_is_no_text_is_refused(
    tool: str, value: Json, repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    """A server may make text of it, and git take that for the name of a remote or a directory."""
    found = read(remotes, tool, value, inside=repository(ORIGIN))
    assert isinstance(found, Refusal)
    assert "must be a string" in found.reason


def test_without_a_default_a_remote_left_out_is_none_and_an_empty_one_leads_to_no_host(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    """The server gets the empty text: what it makes of it is settled by no list of hosts."""
    workspace = repository("")
    assert read(remotes, "git_push", None, inside=workspace) == ()
    for tool, inside in (("git_push", workspace), ("git_push", None), ("git_status", workspace)):
        assert hosts(read(remotes, tool, "", inside=inside)) == [("",)]
        assert read(remotes, tool, None, inside=inside) == ()
        assert read(remotes, tool, [], inside=inside) in ((), (UrlValue("", ("",), False),))


def test_a_remote_is_ordinary_only_if_all_that_it_leads_to_is(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    workspace = repository(ORIGIN)
    for value in (None, "origin"):
        found = only(read(remotes, "git_push", value, inside=workspace))
        assert isinstance(found, UrlValue)
        assert found.ordinary
    repository(f"\tpushurl = {GOOD}\n\tpushurl = ext::sh -c true\n")
    for value in (None, "origin"):
        found = only(read(remotes, "git_push", value, inside=workspace))
        assert isinstance(found, UrlValue)
        assert len(found.domains) == 2
        assert not found.ordinary


def test_an_unclear_url_is_refused_where_only_plain_ones_are_taken(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    unclear = "https://github.com\\@evil.example.com/x.git"
    assert isinstance(read(remotes, "git_push", unclear, plain=True), Refusal)
    [clear] = hosts(read(remotes, "git_push", GOOD, plain=True))
    assert clear[0].startswith("github.com")
    workspace = repository(ORIGIN)
    [named] = hosts(read(remotes, "git_push", "origin", inside=workspace, plain=True))
    assert named[0].startswith("github.com")


def test_an_unclear_url_is_read_where_any_is_taken(remotes: GitRemotes) -> None:
    """A comparison with other implementations wants their answer, not a refusal."""
    unclear = "https://github.com\\@evil.example.com/x.git"
    [found] = hosts(read(remotes, "git_push", unclear, plain=False))
    assert found


def test_a_directory_by_the_name_of_nothing_is_no_repository(
    repository: Callable[[str], str], remotes: GitRemotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(repository(ORIGIN))
    (here.parent / "None").symlink_to(here)
    monkeypatch.chdir(here.parent)
    assert read(remotes, "git_push", None) == ()


# --- git that fails ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [2, 3, 128, 129, -9])
def test_settings_of_a_git_that_failed_are_not_known(status: int) -> None:
    assert _read_settings(GitOutput(status=status, text="")) is None
    assert _read_settings(GitOutput(status=status, text="a.b\nc\0")) is None


def test_no_setting_is_not_a_failure() -> None:
    assert _read_settings(GitOutput(status=1, text="")) == {}


FAILING_GIT = """#!/bin/sh
case "$*" in *git-common-dir*) echo /; exit 1 ;; esac
exec {git} "$@"
"""


def test_a_git_that_cannot_say_where_it_keeps_its_files_names_no_destination(
    tmp_path: Path, home: Path, repository: Callable[[str], str]
) -> None:
    """Names of an old kind lie in those files; what could not be looked at may be there."""
    workspace = repository(ORIGIN)
    whole = GitRemotes(environment(home))
    assert not isinstance(whole.destinations("elsewhere", workspace, "push"), Refusal)
    git = next(f"{place}/git" for place in os.get_exec_path() if Path(place, "git").is_file())
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(FAILING_GIT.format(git=git))
    (programs / "git").chmod(stat.S_IRWXU)
    own = {**environment(home), "PATH": f"{programs}:{os.environ['PATH']}"}
    failing = GitRemotes(own)
    assert isinstance(failing.destinations("elsewhere", workspace, "push"), Refusal)
    assert isinstance(read(failing, "git_push", "elsewhere", inside=workspace), Refusal)
    (programs / "git").write_text("#!/bin/sh\nexit 128\n")
    for value in ("origin", None, ""):
        broken = GitRemotes(own)
        assert isinstance(read(broken, "git_push", value, inside=workspace), Refusal)


def test_git_writes_no_trace_and_takes_no_lock(
    tmp_path: Path, home: Path, repository: Callable[[str], str]
) -> None:
    trace = tmp_path / "trace"
    own = {"GIT_TRACE": str(trace), "GIT_TRACE2_EVENT": str(trace), "GIT_TRACE_SETUP": str(trace)}
    seeing = GitRemotes({**environment(home), **own})
    assert seeing.destinations("origin", repository(ORIGIN), "push") == (GOOD,)
    assert not trace.exists()
    asked = _git_environment({**environment(home), **own, "EDITOR": "x"}, ())
    assert asked["GIT_OPTIONAL_LOCKS"] == "0"
    assert asked["GIT_TERMINAL_PROMPT"] == "0"
    assert not [name for name in asked if name.startswith("GIT_TRACE") or name == "EDITOR"]


@pytest.mark.parametrize("value", [[GOOD, 7], [7], [None], [[GOOD]], [None, "origin"]])
def test_what_is_no_text_among_remotes_is_refused_as_that(remotes: GitRemotes, value: Json) -> None:
    assert isinstance(read(remotes, "git_push", value), Refusal)
    refused = read(remotes, "git_fetch", value)
    assert isinstance(refused, Refusal)
    assert "too many" not in refused.reason
    many = read(remotes, "git_fetch", [GOOD] * 17)
    assert isinstance(many, Refusal)
    assert "too many" in many.reason


def test_the_name_of_a_remote_is_no_url_that_could_be_unclear(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    place = repository(f'[remote "origin"]\n\turl = {GOOD}\n')
    (found,) = hosts(read(remotes, "git_push", "origin", inside=place, plain=True))
    assert found[0].startswith("github.com")
    (found,) = hosts(read(remotes, "git_clone", "git@github.com:acme/w.git", plain=True))
    assert found[0].startswith("github.com")
    unclear = read(remotes, "git_push", "https://github.com\\@evil.example/x", plain=True)
    assert isinstance(unclear, Refusal)
