"""What the operator wrote becomes what a server may touch, in srt's words."""

import fcntl
import os
from collections.abc import Mapping

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.config.servers.recognition import needs_of
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.directory import SandboxSettings, sealed, unsafe_no_sandbox
from ironcurtain_proxy.sandbox.launch import NODE_PROXY, Confinement, confine, with_pools
from ironcurtain_proxy.sandbox.private_tmp import PrivateTmp
from ironcurtain_proxy.sandbox.profile import (
    SandboxProfile,
    SandboxSurroundings,
    profile_of,
    shown_limits,
)

AROUND = SandboxSurroundings(
    home="/home/me",
    own=("/home/me/.ironcurtain", "/policy"),
    code=("/opt/proxy",),
    keys=("/home/me/.ssh",),
    real=lambda path: path,
    workspace="/work",
    writable=("/docs",),
)
CWD = "/home/me/.ironcurtain/sessions/1/s.cwd"


def spec(sandbox: Mapping[str, Json] | None = None) -> ServerSpec:
    return ServerSpec(
        name="s", annotations="s", command="run", args=("-x", "a b"), cwd=CWD, sandbox=sandbox
    )


@pytest.mark.requirement("C-12")
def test_by_default_no_network_and_writes_only_where_policy_may_let_them() -> None:
    assert profile_of(spec(), AROUND) == SandboxProfile(
        allow_write=(CWD, "/work", "/docs"),
        allow_read=(CWD, "/work"),
        deny_read=("/home/me/.ironcurtain", "/policy", "/home/me/.ssh"),
        deny_write=(
            *("/policy", "/home/me/.ssh", "/opt/proxy"),
            *("/home/me/.npm/_logs", "/home/me/.claude/debug"),
        ),
    )


def test_what_a_server_reports_to_stays_closed_although_everything_else_is_open() -> None:
    around = replace(AROUND, never=needs_of("desktop-commander").closed)
    profile = profile_of(spec({"network": {"allowedDomains": ["*.app", "github.com"]}}), around)
    assert profile.forbids("telemetry.desktopcommander.app")
    assert not profile.may_reach("telemetry.desktopcommander.app")
    assert profile.may_reach("github.com")


@pytest.mark.requirement("C-13")
def test_an_entry_opens_more_and_closes_more() -> None:
    profile = profile_of(
        spec(
            {
                "filesystem": {
                    "allowWrite": ["~/notes", "/srv"],
                    "denyWrite": ["/work/lock"],
                    "allowRead": ["~/.ssh/known_hosts"],
                },
                "network": {"allowedDomains": ["a.org"], "deniedDomains": ["b.a.org"]},
            }
        ),
        AROUND,
    )
    assert profile.allow_write == (CWD, "/work", "/docs", "/home/me/notes", "/srv")
    assert "/work/lock" in profile.deny_write
    assert profile.allow_read[-1] == "/home/me/.ssh/known_hosts"
    assert (profile.allowed_domains, profile.denied_domains) == (("a.org",), ("b.a.org",))


def test_an_entry_can_open_the_users_keys_and_never_what_is_ours() -> None:
    profile = profile_of(spec({"filesystem": {"denyRead": []}}), AROUND)
    assert profile.deny_read == ("/home/me/.ironcurtain", "/policy")
    ours: list[Json] = ["/policy", "/policy/x", "~/.ironcurtain", "/elsewhere"]
    profile = profile_of(spec({"filesystem": {"allowRead": ours, "allowWrite": ours}}), AROUND)
    assert profile.allow_read == (CWD, "/work", "/elsewhere")
    assert profile.allow_write == (CWD, "/work", "/docs", "/elsewhere")


@pytest.mark.parametrize(
    "domain", ["*", "*.com", "https://a.org", "a.org/x", "a.org:80", "", "a b"]
)
def test_a_domain_that_would_not_be_taken_as_it_was_meant_is_refused(domain: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sandbox\.network"):
        SandboxSettings.of(SandboxProfile(allowed_domains=(domain,)))


def test_settings_cannot_be_changed_by_who_inherits_them() -> None:
    descriptor = sealed(SandboxSettings.of(SandboxProfile(allow_write=("/work",))))
    try:
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) != 0
        said = orjson.loads(os.pread(descriptor, 10_000, 0))
    finally:
        os.close(descriptor)
    assert said["filesystem"]["allowWrite"] == ["/work"]
    assert said["network"] == {"allowedDomains": [], "deniedDomains": []}


@pytest.mark.requirement("C-9", "C-11")
def test_the_servers_own_command_line_is_passed_on_word_by_word() -> None:
    launch = confine(spec(), Confinement(("srt",), SandboxProfile()))
    try:
        assert launch.sandboxed
        assert launch.argv[0] == "srt"
        # srt starts in a directory of its own; the server starts in the one that it is given.
        assert launch.argv[3] == "--"
        assert launch.argv[-3:] == ("run", "-x", "a b")
        assert launch.directory is not None
        assert launch.environment == {
            "CLAUDE_CODE_TMPDIR": CWD,
            "TMPDIR": launch.directory.path,
            "NO_UPDATE_NOTIFIER": "1",
            "npm_config_update_notifier": "false",
            "UV_LINK_MODE": "copy",
            "IRONCURTAIN_INSIDE_NODE_USE_ENV_PROXY": "1",
            "IRONCURTAIN_INSIDE_NODE_OPTIONS": f'--require="{NODE_PROXY}"',
            "IRONCURTAIN_INSIDE_PYTHONPATH": with_pools(""),
        }
    finally:
        launch.close()
        launch.remove()
    bare = unsafe_no_sandbox(spec())
    assert (bare.argv, bare.sandboxed, bare.descriptors) == (("run", "-x", "a b"), False, ())
    assert bare.directory is None


def test_a_cache_that_an_entry_names_is_used() -> None:
    own = replace(spec(), env={"UV_CACHE_DIR": "/data/uv"})
    launch = confine(own, Confinement(("srt",), SandboxProfile(), private=PrivateTmp(CWD)))
    launch.close()
    launch.remove()
    assert "UV_CACHE_DIR" not in launch.environment
    assert launch.environment["PNPM_HOME"] == "/tmp/.cache/pnpm"


def test_limits_are_those_of_the_entry_and_shown_by_what_they_are() -> None:
    mine = spec({"limits": {"memoryMb": 100, "freeDiskMb": 0}})
    limits = profile_of(mine, AROUND).limits
    assert (limits.memory_mb, limits.free_disk_mb, limits.processes) == (100, 0, 4096)
    first, second = shown_limits([mine, spec(), replace(spec(), sandbox=False), spec()])
    assert "100 MiB of memory" in first
    assert second.startswith(f"{spec().name}, {spec().name}: 4096 processes")
