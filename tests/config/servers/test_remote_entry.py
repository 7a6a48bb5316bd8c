"""Entries with a `url`: what is read, and what is refused before anything is connected to."""

from pathlib import Path

import pytest

from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.servers.servers_file import parse_servers
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from tests.tables import table


def read(entry: Json, *, foreign: bool = False) -> tuple[tuple[ServerSpec, ...], list[str]]:
    report = Report()
    document: Json = {"far": entry}
    root: Json = {"mcpServers": document} if foreign else document
    specs = parse_servers(DocumentNode(root, "servers", report), Path("/home/me"))
    return specs, [problem.message for problem in report.problems]


def test_a_clients_entry_is_read_as_it_stands() -> None:
    entry: Json = {
        "type": "http",
        "url": "https://MCP.example:443/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    (spec,), problems = read(entry, foreign=True)
    assert problems == []
    assert spec.remote is not None
    assert spec.remote.url == "https://mcp.example/mcp"
    assert (spec.remote.host, spec.remote.port) == ("mcp.example", 443)
    assert spec.sandbox is False
    assert spec.place == "mcp.example"


@pytest.mark.parametrize(
    ("url", "problem"),
    table("config/servers/remote_entry.a_url_that_somebody_could", list[tuple[str, str]]),
)
def test_a_url_that_somebody_could_read_otherwise_is_refused(url: str, problem: str) -> None:
    _, problems = read({"url": url})
    assert [one for one in problems if problem in one], problems


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:80/mcp", "http://localhost:3000/", "http://[::1]:3/", "http://10.0.0.1/"],
)
def test_plain_http_is_for_servers_near_by(url: str) -> None:
    assert read({"url": url})[1] == []


def test_headers_of_the_protocol_are_the_proxys_own() -> None:
    _, problems = read({"url": "https://a.example/", "headers": {"Host": "b", "X\r\n": "c"}})
    assert len(problems) == 2


def test_a_header_holds_no_line_break() -> None:
    _, problems = read({"url": "https://a.example/", "headers": {"X": "a\r\nHost: b"}})
    assert problems == ["must hold printable ASCII characters only"]


def test_the_keys_of_a_process_mean_nothing_there() -> None:
    _, problems = read({"url": "https://a.example/", "sandbox": True, "env": {"A": "b"}})
    assert problems == ["unknown key", "unknown key"]


@pytest.mark.parametrize(
    ("oauth", "found"),
    table(
        "config/servers/remote_entry.a_client_of_the_operators_has_all",
        list[tuple[dict[str, Json], list[str]]],
    ),
)
def test_a_client_of_the_operators_has_all_that_a_login_needs(
    oauth: Json, found: list[str]
) -> None:
    specs, problems = read({"url": "https://a.example/", "oauth": oauth})
    assert len(problems) == len(found)
    assert all(word in problem for word, problem in zip(found, problems, strict=True)), problems
    assert "s3cret" not in repr(specs)
