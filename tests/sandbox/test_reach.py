"""What a sandbox would refuse is known before anybody is asked."""

import pytest

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.sandbox.denials import closed_hosts, obstacle, opening_of
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from tests.tables import table

PROFILE = SandboxProfile(
    allow_write=("/work", "/state/fs.cwd"),
    allow_read=("/state/fs.cwd",),
    deny_read=("/state", "/home/.ssh", "/work/policy"),
    deny_write=("/work/policy",),
)


def call(value: Value, *roles: ArgumentRole) -> AccessRequest:
    return AccessRequest(
        server="s",
        tool="t",
        annotated=True,
        has_arguments=True,
        arguments=(ArgumentFact("a", roles, (value,)),),
    )


def fetch(host: str) -> AccessRequest:
    return call(UrlValue(f"https://{host}/x", (host,)), "fetch-url")


def path(text: str) -> PathValue:
    return PathValue(text, RealPath.from_text(text))


@pytest.mark.parametrize(
    ("text", "role", "is_let"), table("sandbox/reach.paths", list[tuple[str, str, bool]])
)
def test_paths(text: str, role: ArgumentRole, is_let: bool) -> None:
    assert (obstacle(PROFILE, call(path(text), role)) is None) == is_let


def test_a_server_without_network_reaches_no_host() -> None:
    assert "no network" in (obstacle(PROFILE, fetch("a.org")) or "")


ONLINE = SandboxProfile(
    allowed_domains=("one.org", "*.two.org", "10.0.0.1", "localhost", "UPPER.org"),
    denied_domains=("secret.two.org", "*.deep.two.org"),
)


@pytest.mark.parametrize(
    ("host", "is_let"), table("sandbox/leads.closed_hosts", list[tuple[str, bool]])
)
def test_a_host_that_the_sandbox_keeps_closed_is_an_obstacle(host: str, is_let: bool) -> None:
    """As srt itself compares them; `test_sandbox_domains` tries it for real."""
    found = obstacle(ONLINE, fetch(host))
    assert (found is None) == is_let
    assert closed_hosts(ONLINE, fetch(host)) == (() if is_let else (host,))
    if not is_let:
        assert f"reach {host} (sandbox.network.allowedDomains): https://{host}/x" in str(found)


def test_an_address_is_no_name_that_a_wildcard_stands_for() -> None:
    assert obstacle(SandboxProfile(allowed_domains=("*.0.0.1",)), fetch("10.0.0.1")) is not None


@pytest.mark.parametrize(
    "value",
    [
        UrlValue("/srv/repo.git", ("/srv/repo.git",), ordinary=False),
        UrlValue("file:///srv/repo.git", ("/srv/repo",), ordinary=False),
        UrlValue("origin", ("../sibling.git",), ordinary=False),
        UrlValue("", ("",), ordinary=False),
        UrlValue("ext::sh -c x", ("/:sh -c x",), ordinary=False),
        UrlValue("http://[", ("http://[",)),
    ],
    ids=lambda value: value.text,
)
def test_a_remote_that_is_no_host_is_no_obstacle(value: UrlValue) -> None:
    assert obstacle(PROFILE, call(value, "git-remote-url")) is None
    assert closed_hosts(PROFILE, call(value, "git-remote-url")) == ()


def test_every_host_of_a_remote_has_to_be_open() -> None:
    both = UrlValue("origin", ("one.org/a/b", "other.org/a/b"))
    assert "other.org" in (obstacle(ONLINE, call(both, "git-remote-url")) or "")
    assert closed_hosts(ONLINE, call(both, "git-remote-url")) == ("other.org",)
    assert obstacle(ONLINE, call(UrlValue("origin", ("one.org/a/b",)), "git-remote-url")) is None


def test_what_is_neither_a_path_nor_a_host_is_not_the_sandbox_s() -> None:
    assert obstacle(PROFILE, call(TextValue("x"), "github-owner")) is None


def test_a_host_that_the_sandbox_cannot_be_told_is_said_before_anybody_is_asked() -> None:
    assert "full name" in str(opening_of(PROFILE, fetch("registry"), ()))
    assert "full name" in str(opening_of(PROFILE, call(path("/work/a"), "write-path"), ["db"]))
    found = opening_of(PROFILE, fetch("localhost"), ("registry.internal",))
    assert isinstance(found, SandboxOpening)
    assert found.hosts == ("localhost", "registry.internal")


def test_what_a_command_writes_outside_is_opened_unless_it_is_closed_to_all() -> None:
    nothing = AccessRequest(server="s", tool="t", annotated=True, has_arguments=True, arguments=())

    def opened(text: str) -> object:
        return opening_of(PROFILE, nothing, (), [RealPath.from_text(text)])

    assert opened("/work/a") is None
    assert opened("/outside/a") == SandboxOpening(paths=(RealPath.from_text("/outside/a"),))
    for closed in ("/work/policy/rules.json", "/state/x", "/home/.ssh/authorized_keys"):
        assert isinstance(opened(closed), str)
