"""What is remembered of an approval, and that it never speaks of anything else."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.patterns import EscalatedCall, Places, candidates, covers
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.grant import ExactValue, Grant, GrantId, WithinDirectory
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    PathValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Json, RealPath

pytestmark = pytest.mark.requirement("X-12")

HOST = "https://github.com/a"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOME = RealPath.from_text("/home/me")
PROTECTED = (RealPath.from_text("/home/me/.ssh"), RealPath.from_text("/srv/state/audit"))


def path(text: str) -> PathValue:
    return PathValue(text, RealPath.from_text(text))


def fact(name: str, roles: ArgumentRole | tuple[ArgumentRole, ...], *values: Value) -> ArgumentFact:
    return ArgumentFact(name, (roles,) if isinstance(roles, str) else roles, values)


def a_call(
    *facts: ArgumentFact,
    roles: tuple[ArgumentRole, ...] = (),
    arguments: Mapping[str, Json] | None = None,
    tool: str = "read_file",
    server: str = "filesystem",
) -> EscalatedCall:
    """A call whose arguments, unless given, are the facts' own texts."""
    given_as: dict[str, Json] = {found.name: [v.text for v in found.values] for found in facts}
    return EscalatedCall(
        server=server,
        tool=tool,
        definition="d1",
        request=AccessRequest(
            server=server, tool=tool, annotated=True, has_arguments=True, arguments=facts
        ),
        arguments=given_as if arguments is None else arguments,
        roles=roles or tuple(role for found in facts for role in found.roles),
    )


def places(*directories: str) -> Places:
    return Places(
        directories=frozenset(map(RealPath.from_text, directories)), home=HOME, protected=PROTECTED
    )


def remembered(call: EscalatedCall, *directories: str) -> Grant | None:
    found = candidates(call, places(*directories))
    if not found:
        return None
    return Grant(id=GrantId("g"), pattern=found[0], created=NOW, source="e", reason="r")


def reading(*texts: str) -> EscalatedCall:
    return a_call(fact("path", "read-path", *map(path, texts)))


def pushing(*domains: str, repository: str = "/work/repo", **arguments: Json) -> EscalatedCall:
    """A push: the repository lies in the workspace, so only the remote escalates."""
    return a_call(
        fact("path", "read-path", path(repository)),
        fact("remote", "git-remote-url", UrlValue("origin", domains)),
        fact("branch", "branch-name"),
        fact("force", "none"),
        fact("delete", "none"),
        roles=("git-remote-url",),
        arguments={"path": repository, "remote": "origin", **arguments},
        server="git",
        tool="git_push",
    )


def description(call: EscalatedCall, *directories: str) -> str:
    found = candidates(call, places(*directories))
    return found[0].description if found else ""


def allows(first: EscalatedCall, second: EscalatedCall, *directories: str) -> bool:
    grant = remembered(first, *directories)
    assert grant is not None
    assert covers(grant, first, NOW)
    return covers(grant, second, NOW)


# --- what is remembered ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "directories", "expected"),
    [
        pytest.param(
            reading("/srv/out/hosts"),
            (),
            "Let read_file read files below /srv/out (server filesystem)",
            id="a file: the directory it lies in",
        ),
        pytest.param(
            reading("/home/me/outside"),
            ("/home/me/outside",),
            "Let read_file read ~/outside, read files below ~/outside (server filesystem)",
            id="a directory: itself",
        ),
        pytest.param(
            reading("/home/me/notes.txt"),
            (),
            "Let read_file read ~/notes.txt (server filesystem)",
            id="a file in the home directory: that file",
        ),
        pytest.param(
            reading("/home/me"),
            ("/home/me",),
            "Let read_file read /home/me (server filesystem)",
            id="the home directory: it, not what lies in it",
        ),
        pytest.param(
            reading("/home"),
            ("/home",),
            "Let read_file read /home (server filesystem)",
            id="a directory that contains the home directory",
        ),
        pytest.param(
            reading("/srv/state/x"),
            (),
            "Let read_file read /srv/state/x (server filesystem)",
            id="beside a protected path: that file",
        ),
        pytest.param(
            reading("/vmlinuz"),
            (),
            "Let read_file read /vmlinuz (server filesystem)",
            id="in the root directory: that file",
        ),
        pytest.param(
            reading("/"),
            ("/",),
            "Let read_file read / (server filesystem)",
            id="the root directory",
        ),
        pytest.param(
            reading("/data/a/hosts", "/data/a/fstab", "/srv/b/x"),
            (),
            "Let read_file read files below /data/a, read files below /srv/b (server filesystem)",
            id="several files, each directory once",
        ),
        pytest.param(
            pushing("github.com/acme/w", "gitlab.com/acme/w", force=True),
            ("/work/repo",),
            "Let git_push read /work/repo, use the git remote github.com/acme/w, "
            "use the git remote gitlab.com/acme/w (server git, force=true, without branch or "
            "delete)",
            id="a remote: where it leads, from which repository, and how",
        ),
        pytest.param(
            a_call(
                fact("owner", "github-owner", TextValue("Acme")),
                fact("repo", "github-repo", TextValue("w")),
                server="github",
                tool="issue",
            ),
            (),
            "Let issue use the GitHub owner acme, use the GitHub repository w (server github)",
            id="identifiers, exactly",
        ),
        pytest.param(
            reading("/tmp/x\u202e\n/y"),
            (),
            "Let read_file read files below /tmp/x\\u202e\\n (server filesystem)",
            id="what would mislead the eye is escaped",
        ),
    ],
)
def test_a_pattern_says_what_it_remembers(
    call: EscalatedCall, directories: tuple[str, ...], expected: str
) -> None:
    """G14."""
    assert description(call, *directories) == expected


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(a_call(fact("to", "email-address", TextValue("a@b.io"))), id="opaque role"),
        pytest.param(
            a_call(fact("path", ("read-path", "write-history"), path("/r"))), id="rewrites history"
        ),
        pytest.param(
            a_call(fact("path", ("read-path", "delete-history"), path("/r"))), id="deletes history"
        ),
        pytest.param(a_call(fact("path", "read-path")), id="names nothing"),
        pytest.param(a_call(), id="has no arguments"),
        pytest.param(replace(reading("/etc/hosts"), definition=""), id="its tool is not known"),
        pytest.param(
            a_call(fact("url", "fetch-url", UrlValue("file:///etc", ("",)))), id="a URL of no host"
        ),
        pytest.param(
            a_call(fact("r", "git-remote-url", UrlValue("ext::x", ("ext",), ordinary=False))),
            id="a remote that runs a helper",
        ),
        pytest.param(
            a_call(fact("path", "read-path", TextValue("/etc"))), id="a value that is no path"
        ),
        pytest.param(
            a_call(
                fact("path", "write-history", path("/r")),
                fact("remote", "git-remote-url", UrlValue("o", ("github.com/a/b",))),
                roles=("git-remote-url",),
            ),
            id="a remote of a repository whose history would be rewritten",
        ),
        pytest.param(
            a_call(
                fact("path", ("identifier", "write-history"), path("/r")),
                fact("remote", "git-remote-url", UrlValue("o", ("github.com/a/b",))),
                roles=("git-remote-url",),
            ),
            id="the same, where the repository is also a name",
        ),
        pytest.param(
            a_call(
                fact("path", "read-path", path("/etc/hosts")), arguments={"mode": [{"deep": True}]}
            ),
            id="a flag that is a list",
        ),
        pytest.param(
            a_call(
                fact("urls", "fetch-url", UrlValue(HOST, ("github.com",)), UrlValue("v", ("",)))
            ),
            id="a URL that leads nowhere beside one that can be remembered",
        ),
        pytest.param(
            a_call(
                fact("path", "read-path", path("/etc/hosts")), arguments={"mode": {"deep": True}}
            ),
            id="a flag that is an object",
        ),
    ],
)
def test_what_no_pattern_can_hold_cannot_be_remembered(call: EscalatedCall) -> None:
    assert candidates(call, places()) == ()


def test_a_path_is_remembered_by_its_directory_unless_it_goes_by_its_name() -> None:
    asked = RealPath.from_text("/usr/share/x/file")
    (found,) = places().constraints("read-path", asked)
    assert found == WithinDirectory("read-path", RealPath.from_text("/usr/share/x"))
    (alone,) = replace(places(), alone=True).constraints("read-path", asked)
    assert alone == ExactValue("read-path", "/usr/share/x/file")


# --- what a grant speaks of ------------------------------------------------------------------


def test_a_directory_that_was_listed_is_remembered_and_the_one_above_it_is_not() -> None:
    """G14."""
    listed = reading("/home/me/outside")
    assert allows(listed, reading("/home/me/outside/x"), "/home/me/outside")
    assert not allows(listed, reading("/home/me/.ssh/id"), "/home/me/outside")
    assert not allows(listed, reading("/home/me"), "/home/me/outside")
    assert not allows(listed, reading("/home/me/outside-not"), "/home/me/outside")


def test_a_call_of_several_directories_can_come_again() -> None:
    """G23."""
    both = reading("/data/a/hosts", "/srv/b/x")
    assert allows(both, both)
    assert allows(both, reading("/srv/b/y"))
    assert allows(both, reading("/srv/b/y", "/data/a/fstab", "/data/a/ssl/cert"))
    assert not allows(both, reading("/srv/b/y", "/var/x"))


@pytest.mark.parametrize(
    "file",
    [
        "/etc/passwd", "/etc/ssl/certs/x", "/usr/bin/env", "/usr/lib/x", "/usr/local/bin/x",
        "/var/log/syslog", "/var/x", "/proc/1/environ", "/root/x", "/root/.ssh/config", "/opt/x",
        "/home/other/x", "/home/other/.config/x", "/Users/other/x", "/home/me/.config/x",
        "/home/me/.ssh/config", "/home/me/x", "/srv/x", "/private/etc/hosts", "/srv/state/x",
    ],
)  # fmt: skip
def test_a_file_of_the_system_or_of_a_home_never_stands_for_its_directory(file: str) -> None:
    assert f" {file.replace('/home/me/', '~/')} (" in description(reading(file))
    assert "below" not in description(reading(file))


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        pytest.param(pushing("github.com/acme/w"), True, id="the same"),
        pytest.param(pushing("github.com/acme/w", force=None), True, id="null is absent"),
        pytest.param(pushing("github.com/acme/w", message="x"), True, id="words besides"),
        pytest.param(pushing("github.com/acme/w", force=True), False, id="with force"),
        pytest.param(pushing("github.com/acme/w", force=False), False, id="force is spoken of"),
        pytest.param(pushing("github.com/acme/w", branch="other"), False, id="another branch"),
        pytest.param(pushing("github.com/acme/w", tags="yes"), False, id="a flag of the table"),
        pytest.param(pushing("github.com/acme/w", novel=True), False, id="a switch of any name"),
        pytest.param(
            pushing("github.com/acme/w", no_verify="x"), False, id="a flag in another spelling"
        ),
        pytest.param(pushing("github.com/acme/other"), False, id="origin leads elsewhere"),
        pytest.param(
            pushing("github.com/acme/w", "evil.example/x"), False, id="origin leads there, too"
        ),
        pytest.param(
            pushing("github.com/acme/w", repository="/work/other"), False, id="another repository"
        ),
    ],
)
def test_a_plain_push_is_remembered_as_a_plain_push(again: EscalatedCall, expected: bool) -> None:
    """G14."""
    assert allows(pushing("github.com/acme/w"), again, "/work/repo") is expected


def test_a_forced_push_does_not_stand_for_one_with_something_that_equals_true() -> None:
    forced = pushing("github.com/acme/w", force=True)
    assert not allows(forced, pushing("github.com/acme/w", force=1), "/work/repo")
    assert not allows(forced, pushing("github.com/acme/w"), "/work/repo")


def test_a_role_that_did_not_escalate_then_is_not_covered_when_it_does() -> None:
    moving = (
        fact("source", "read-path", path("/etc/hosts")),
        fact("destination", "write-path", path("/work/x")),
    )
    first = a_call(*moving, roles=("read-path",))
    assert allows(first, a_call(*moving, roles=("read-path",)))
    assert not allows(first, a_call(*moving, roles=("read-path", "write-path")))
    assert not allows(first, a_call(*moving, roles=("write-path",)))
    assert not allows(first, replace(first, roles=()))


def test_a_role_that_escalated_while_it_was_left_out_must_be_left_out_again() -> None:
    def searching(*where: Value, path_: str = "/srv/a/x") -> EscalatedCall:
        found = (fact("path", "read-path", path(path_)), fact("into", "write-path", *where))
        arguments: dict[str, Json] = {"path": path_}
        if where:
            arguments["into"] = where[0].text
        return a_call(*found, arguments=arguments)

    assert allows(searching(), searching())
    assert allows(searching(), searching(path_="/srv/a/z")), "what was given is no flag"
    assert not allows(searching(), searching(path("/srv/a/y")))
    assert not allows(searching(path("/srv/a/y")), searching())


def test_an_exact_path_is_compared_as_it_is() -> None:
    assert not allows(reading("/home/me/Notes"), reading("/home/me/notes"))
    assert not allows(reading("/home/me/Notes"), reading("/home/me/Notes/below"))


def test_an_argument_of_two_roles_needs_both() -> None:
    both: tuple[ArgumentRole, ...] = ("read-path", "write-path")
    edit = a_call(fact("path", both, path("/srv/a/x")))
    assert allows(edit, a_call(fact("path", both, path("/srv/a/y"))))
    assert not allows(a_call(fact("path", "read-path", path("/srv/a/x"))), edit)


def test_a_grant_ends_when_it_expires() -> None:
    grant = remembered(reading("/srv/a/hosts"))
    assert grant is not None
    timed = replace(grant, expires=NOW + timedelta(minutes=10))
    assert covers(timed, reading("/srv/a/hosts"), NOW + timedelta(minutes=5))
    assert not covers(timed, reading("/srv/a/hosts"), NOW + timedelta(minutes=10))
