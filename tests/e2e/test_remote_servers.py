"""A real server that is reached over HTTP, behind a proxy that an agent talks to."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from tests import program
from tests.e2e.installation import Installation
from tests.e2e.raw_client import at, text
from tests.e2e.real_servers import npm_server
from tests.program import PROXY, free_port, wait_until


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def everything(transport: str, port: int) -> Iterator[None]:
    """`server-everything`, listening."""
    process = subprocess.Popen(
        npm_server("everything", transport),
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_open(port))
        yield
    finally:
        process.kill()
        process.wait()


def configure(installation: Installation, url: str, **entry: str) -> None:
    installation.servers["far"] = {"url": url, "annotations": "everything", **entry}


@pytest.mark.parametrize(
    ("transport", "path", "kind"),
    [("streamableHttp", "mcp", "http"), ("sse", "sse", "sse"), ("sse", "sse", "http")],
)
def test_a_real_server_is_listed_and_called_over_http(
    installation: Installation, transport: str, path: str, kind: str
) -> None:
    port = free_port()
    configure(installation, f"http://127.0.0.1:{port}/{path}", type=kind)
    with everything(transport, port):
        client = installation.start()
        client.until_listed("echo", "get-sum")
        assert text(client.call("echo", {"message": "through HTTP"})) == "Echo: through HTTP"
        client.call("get-env")
        client.close()
    made, refused = installation.outcomes()
    assert made["serverHost"] == "127.0.0.1"
    assert made["sandboxed"] is False
    assert at(refused, "result", "status") == "denied"
    stderr = (installation.root / "stderr-0.txt").read_text()
    assert ("transport of 2024-11-05" in stderr) == (transport == "sse")


def test_status_and_check_say_that_nothing_of_it_is_confined(installation: Installation) -> None:
    configure(installation, "https://mcp.example/mcp")
    shown = run(installation, "status")
    assert "far, at mcp.example: no sandbox and no containment there" in shown.stdout
    assert (
        "server       far (mcp.example, annotated as everything)"
        in run(installation, "check").stdout
    )


def test_a_host_that_a_rule_denies_stops_the_start(installation: Installation) -> None:
    configure(installation, "https://mcp.example/mcp")
    installation.rules += [
        {
            "name": "not-there",
            "description": "",
            "principle": "",
            "if": {"domains": {"roles": ["fetch-url"], "allowed": ["*.example"]}},
            "then": "deny",
            "reason": "closed",
        }
    ]
    installation.write_policy()
    for command in ("check", "serve"):
        shown = run(installation, command)
        assert "rule not-there of the policy denies mcp.example" in shown.stdout + shown.stderr
        assert shown.returncode != 0


def test_a_missing_secret_stops_the_start(installation: Installation) -> None:
    installation.servers["far"] = {
        "url": "https://mcp.example/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    shown = run(installation, "serve")
    assert "TOKEN is not in serverCredentials of this server" in shown.stderr
    installation.variables["SERVER_CREDENTIALS"] = orjson.dumps({"far": {"TOKEN": "x"}}).decode()
    assert run(installation, "check").returncode == 0


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (("HTTPS_PROXY",), "HTTPS_PROXY is not used for far"),
        (("HTTP_PROXY", "all_proxy"), "all_proxy is not used for far"),
        (("HTTP_PROXY",), ""),
        (("https_proxy", "NO_PROXY=localhost,.example"), ""),
        (("https_proxy", "no_proxy=other.example"), "https_proxy is not used for far"),
    ],
)
def test_a_proxy_of_the_environment_that_is_for_a_server_is_said_to_be_unused(
    variables: tuple[str, ...], said: str, installation: Installation
) -> None:
    configure(installation, "https://mcp.example/mcp")
    for one in variables:
        name, _, value = one.partition("=")
        installation.variables[name] = value or "http://127.0.0.1:1"
    shown = run(installation, "check").stdout
    assert said in shown
    assert ("is not used for" in shown) == bool(said)


def run(installation: Installation, *command: str) -> subprocess.CompletedProcess[str]:
    return program.run([*PROXY, *command], installation.environment(), Path("/"))
