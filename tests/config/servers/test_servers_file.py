"""Servers in the original's form and in a client's."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.servers.servers_file import parse_servers
from ironcurtain_proxy.model.server import ServerSpec, ShownTools
from ironcurtain_proxy.model.values import Json
from tests.config.files import said

HOME = Path("/home/ada")


def read(document: Json) -> tuple[tuple[ServerSpec, ...], Report]:
    report = Report()
    return parse_servers(DocumentNode(document, "f", report), HOME), report


def problems(document: Json) -> list[str]:
    return said(read(document)[1])


def test_the_originals_form_is_read() -> None:
    """G34: the last argument stays what the operator wrote."""
    (spec,), report = read(
        {
            "_comment": "mine",
            "files": {
                "_comment": "x",
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
                "env": {"A": "b"},
                "description": "Files",
                "cwd": "~/work",
                "sandbox": {"network": {"allowedDomains": ["GitHub.com"]}},
            },
        }
    )
    assert report.problems == ()
    assert spec == ServerSpec(
        name="files",
        annotations="filesystem",
        command="npx",
        args=("-y", "@modelcontextprotocol/server-filesystem", "."),
        env={"A": "b"},
        cwd="/home/ada/work",
        sandbox={"network": {"allowedDomains": ["GitHub.com"]}},
        allowed_domains=("github.com",),
        description="Files",
    )


def test_a_clients_own_file_is_read_and_its_keys_are_warnings() -> None:
    (spec,), report = read(
        {
            "inputs": [],
            "mcpServers": {
                "git": {
                    "type": "stdio",
                    "command": "uvx",
                    "args": ["mcp-server-git"],
                    "alwaysAllow": ["git_push"],
                    "timeout": 60,
                }
            },
        }
    )
    assert spec.annotations == "git"
    assert not report.has_errors
    assert said(report) == [
        "$.inputs: unknown key, ignored",
        "$.mcpServers.git.alwaysAllow: unknown key, ignored",
        "$.mcpServers.git.timeout: unknown key, ignored",
    ]


def test_a_misspelt_key_of_ours_is_refused_in_our_form_and_named_in_a_clients() -> None:
    server: dict[str, Json] = {"command": "x", "sandobx": False}
    report = read({"a": server})[1]
    assert said(report) == ["$.a.sandobx: unknown key [sandbox]"]
    assert report.has_errors
    report = read({"mcpServers": {"a": server}})[1]
    assert said(report) == ["$.mcpServers.a.sandobx: unknown key, ignored [sandbox]"]
    assert not report.has_errors


@pytest.mark.parametrize(
    "server",
    [{"url": "https://mcp.example.com", "disabled": True}, {"command": "x", "disabled": True}],
)
def test_what_we_cannot_or_should_not_start_is_left_out_with_a_warning(server: Json) -> None:
    servers, report = read({"mcpServers": {"a": server, "b": {"command": "y"}}})
    assert [spec.name for spec in servers] == ["b"]
    assert len(report.problems) == 1
    assert not report.has_errors


def test_a_server_with_a_slip_is_refused_with_its_place() -> None:
    cases: list[tuple[Json, str]] = [
        ({}, "$.a.command: is missing"),
        ({"command": ""}, "$.a.command: must not be empty"),
        ({"command": "x", "args": "y"}, "$.a.args: must be a list, not text"),
        ({"command": "x", "args": ["a\0b"]}, "$.a.args[0]: must not hold NUL"),
        ({"command": "x", "env": {"A": 1}}, "$.a.env.A: must be text, not a number"),
        (
            {"command": "x", "env": {"A=B": ""}},
            '$.a.env["A=B"]: is not a name for an environment variable',
        ),
        ({"command": "x", "cwd": "sub"}, "$.a.cwd: must be an absolute path, or begin with ~/"),
        (
            {"command": "x", "sandbox": {"filesystem": {"allowwrite": []}}},
            "$.a.sandbox.filesystem.allowwrite: unknown key [allowWrite]",
        ),
        (
            {"command": "x", "sandbox": {"limits": {"memoryMB": 100}}},
            "$.a.sandbox.limits.memoryMB: unknown key [memoryMb]",
        ),
        (
            {"command": "x", "sandbox": {"limits": {"memoryMb": 1}}},
            "$.a.sandbox.limits.memoryMb: must be from 64 to 1073741824",
        ),
        (
            {"command": "x", "sandbox": {"network": {"services": ["localhost"]}}},
            "$.a.sandbox.network.services[0]: must be a host and a port, such as 127.0.0.1:5432",
        ),
        (
            {"command": "x", "sandbox": {"network": {"services": ["169.254.169.254:80"]}}},
            "$.a.sandbox.network.services[0]: must be a host and a port, such as 127.0.0.1:5432",
        ),
        (
            {"command": "x", "sandbox": {"network": {"services": ["a:1", "b:1"]}}},
            "$.a.sandbox.network.services[1]: 1 is the port of another service, too",
        ),
        (
            {"command": "x", "sandbox": {"network": {"services": ["a:65536"]}}},
            "$.a.sandbox.network.services[0]: 65536 is no port",
        ),
        (
            {"builtin": "shell", "sandbox": {"network": {"services": ["a:1"]}}},
            "$.a.sandbox.network.services: our own shell reaches no services",
        ),
        (
            {"command": "x", "sandbox": {"network": True}},
            "$.a.sandbox.network: must be an object, not true or false",
        ),
        (
            {"command": "x", "sandbox": None},
            "$.a.sandbox: must be an object or true or false, not null",
        ),
        ({"command": "x", "annotations": ""}, "$.a.annotations: must not be empty"),
        ({"command": "x", "type": "http"}, '$.a.type: "http" is not one of stdio'),
        (7, "$.a: must be an object, not a number"),
    ]
    assert [
        (server, problem) for server, problem in cases if problem not in problems({"a": server})
    ] == []


def test_no_value_of_an_environment_is_shown() -> None:
    document: Json = {"a": {"command": "x", "env": {"KEY": ["s3cret"]}, "args": [{"k": "s3cret"}]}}
    assert "s3cret" not in " ".join(problems(document))


@pytest.mark.parametrize("names", [("a", "a__b"), ("a", "a_"), ("x__y", "x")])
def test_names_that_could_be_mixed_up_are_refused(names: tuple[str, str]) -> None:
    """G32."""
    report = read({name: {"command": "x"} for name in names})[1]
    assert report.has_errors
    assert "could be taken for" in said(report)[0]


@pytest.mark.parametrize("names", [("a", "a_b"), ("a", "ab"), ("git", "git2"), ("A", "a")])
def test_names_that_only_look_alike_are_taken(names: tuple[str, str]) -> None:
    assert problems({name: {"command": "x"} for name in names}) == []


@pytest.mark.parametrize("name", ["proxy", "", " a", "a/b", "a\nb", "x" * 101, "a\0"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    assert read({name: {"command": "x"}})[1].has_errors


def test_two_servers_may_share_one_annotation_name() -> None:
    servers, report = read(
        {
            "one": {"command": "uvx", "args": ["mcp-server-git"]},
            "two": {"command": "x", "annotations": "git"},
        }
    )
    assert [spec.annotations for spec in servers] == ["git", "git"]
    assert report.problems == ()


def test_sandbox_false_is_kept_as_it_is() -> None:
    (spec,), _ = read({"a": {"command": "x", "sandbox": False}})
    assert spec.sandbox is False


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        ({"allow": ["read_*"]}, ShownTools(allow=("read_*",))),
        ({"deny": ["*"]}, ShownTools(deny=("*",))),
        (["a", "b?"], ShownTools(allow=("a", "b?"))),
        (["*"], ShownTools()),
    ],
)
@pytest.mark.parametrize("entry", [{"command": "x"}, {"url": "https://mcp.example.com/mcp"}])
def test_an_entry_names_the_tools_that_are_shown(
    tools: Json, shown: ShownTools, entry: dict[str, Json]
) -> None:
    (spec,), report = read({"mcpServers": {"a": {**entry, "tools": tools}}})
    assert report.problems == ()
    assert spec.tools == shown


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ({"alow": []}, "$.a.tools.alow: unknown key [allow]"),
        ({"allow": ["read", ""]}, "$.a.tools.allow[1]: must not be empty"),
        ({"allow": "read"}, "$.a.tools.allow: must be a list, not text"),
    ],
)
def test_a_misspelt_choice_of_tools_is_refused(tools: Json, problem: str) -> None:
    report = read({"a": {"command": "x", "tools": tools}})[1]
    assert said(report) == [problem]
    assert report.has_errors


def test_what_is_denied_is_not_shown_whatever_is_allowed() -> None:
    tools = ShownTools(allow=("read_*", "list"), deny=("*_admin",))
    names = ("read_file", "read_admin", "list", "lists", "READ_file")
    assert [tools.has(name) for name in names] == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ({"command": "x"}, "sandbox.network.allowedDomains"),
        ({"command": "x", "sandbox": False}, "allowedDomains"),
        ({"url": "https://mcp.example.com/mcp"}, "allowedDomains"),
    ],
)
def test_a_server_that_may_show_pages_of_no_host_is_warned_of(
    entry: dict[str, Json], where: str
) -> None:
    message = f"every page is declined: no host is named in {where}"
    assert problems({"a": {**entry, "ask": ["url"]}}) == [f"$.a.ask: {message}"]


def test_a_server_without_a_sandbox_has_a_place_for_its_hosts() -> None:
    entry: dict[str, Json] = {"command": "x", "allowedDomains": ["Example.com"], "ask": ["url"]}
    (spec,), report = read({"a": {**entry, "sandbox": False}})
    assert report.problems == ()
    assert spec.allowed_domains == ("example.com",)
    message = "is for servers without a sandbox: write sandbox.network.allowedDomains"
    assert problems({"a": entry})[0] == f"$.a.allowedDomains: {message}"
