"""What a sandbox would refuse is known before anybody is asked."""

import pytest

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.sandbox.profile import Profile
from ironcurtain_proxy.sandbox.reach import obstacle

PROFILE = Profile(
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


def path(text: str) -> PathValue:
    return PathValue(text, RealPath.from_text(text))


@pytest.mark.parametrize(
    ("text", "role", "is_let"),
    [
        ("/work/a", "write-path", True),
        ("/work/a", "delete-path", True),
        ("/worker/a", "write-path", False),
        ("/etc/hosts", "read-path", True),
        ("/etc/hosts", "write-path", False),
        ("/home/.ssh/id", "read-path", False),
        ("/work/policy/x", "write-path", False),
        ("/work/policy/x", "read-path", False),
        ("/state/audit", "read-path", False),
        ("/state/fs.cwd/x", "read-path", True),
        ("/state/fs.cwd/x", "write-path", True),
    ],
)
def test_paths(text: str, role: ArgumentRole, is_let: bool) -> None:
    assert (obstacle(PROFILE, call(path(text), role)) is None) == is_let


def test_a_server_without_network_reaches_no_host() -> None:
    url = UrlValue("https://a.org/x", ("a.org",))
    assert "no network" in (obstacle(PROFILE, call(url, "fetch-url")) or "")
    some = Profile(allowed_domains=("b.org",))
    assert obstacle(some, call(url, "fetch-url")) is None


def test_what_is_neither_a_path_nor_a_host_is_not_the_sandbox_s() -> None:
    assert obstacle(PROFILE, call(TextValue("x"), "github-owner")) is None
