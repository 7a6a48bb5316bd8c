"""`login` and `logout`, with a real authorization server, beside a running proxy."""

import subprocess
import sys

import httpx
import pytest

from tests import program
from tests.downstream.remote.authorization import Authority, authority, guarded_site, site
from tests.downstream.remote.site import Site, serving
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import text
from tests.program import PROXY, ROOT

__all__ = ["authority", "site"]


def configure(built: Installation, site: Site) -> None:
    built.servers["far"] = {"url": site.url, "addresses": ["127.0.0.1"]}
    built.annotations["far"] = {"echo": {}}
    built.rules = [rule("far", server=["far"], tool=["echo"])]
    built.write_policy()


def log_in(built: Installation) -> subprocess.CompletedProcess[str]:
    """The command, and the browser that opens the page which it prints."""
    command = [*PROXY, "login", "far", "--no-browser"]
    with subprocess.Popen(
        command, env=built.environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        page = [process.stdout.readline() for _ in range(2)][1].strip()
        answer = httpx.get(page, follow_redirects=True, trust_env=False)
        assert "You are logged in" in answer.text
        rest = process.stdout.read()
    return subprocess.CompletedProcess(command, process.returncode, rest, "")


def test_a_running_session_uses_a_login_and_loses_it_with_the_logout(
    installation: Installation, site: Site, authority: Authority
) -> None:
    configure(installation, site)
    client = installation.start()
    assert client.tool_names() == []
    said = client.errors.read_text("utf-8")
    assert "ironcurtain-proxy login far" in said
    done = log_in(installation)
    assert (done.returncode, done.stdout.startswith("logged in to far by http://")) == (0, True)
    client.notification("notifications/tools/list_changed")
    assert text(client.call("echo", {})) == "done"
    out = program.run([*PROXY, "logout", "far"], installation.environment())
    assert (out.returncode, out.stdout) == (0, "logged out of far\n")
    assert authority.tokens == {}
    refused = text(client.call("echo", {}))
    assert "wants a login" in refused
    assert "ironcurtain-proxy login" not in refused
    again = program.run([*PROXY, "logout", "far"], installation.environment())
    assert (again.returncode, again.stderr) == (1, "ironcurtain-proxy: there is no login to far\n")


def test_a_server_that_greets_anybody_and_wants_a_token_later_can_be_logged_in_to(
    installation: Installation, authority: Authority
) -> None:
    with serving(guarded_site(authority, greets_anybody=True)) as site:
        configure(installation, site)
        done = log_in(installation)
        assert (done.returncode, done.stdout.startswith("logged in to far by http://")) == (0, True)
        client = installation.start()
        assert text(client.call("echo", {})) == "done"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("near", "runs on this machine: it needs no login"),
        ("nobody", 'there is no server "nobody"; the servers over HTTP are: far, keyed, own'),
        ("keyed", "has a header Authorization in its entry"),
        ("own", "without a person"),
    ],
)
def test_a_server_that_cannot_be_logged_in_to_is_refused_with_a_line(
    installation: Installation, server: str, words: str
) -> None:
    url = "https://mcp.example/mcp"
    own = {"clientId": "me", "clientSecret": "x", "issuer": url, "grant": "client-credentials"}
    installation.servers = {
        "near": {"command": sys.executable},
        "far": {"url": url},
        "keyed": {"url": url, "headers": {"authorization": "Bearer x"}},
        "own": {"url": url, "oauth": {**own}},
    }
    done = program.run([*PROXY, "login", server], installation.environment())
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""
