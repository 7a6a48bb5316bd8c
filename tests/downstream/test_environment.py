"""G15: what a server finds in its environment, and what of it is secret."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.downstream.environment import (
    child_environment,
    missing_container_variables,
    secrets_of,
)
from ironcurtain_proxy.model.server import ServerSpec
from tests.downstream.scripted_servers import OPTIONS, running, scripted, text_of
from tests.tables import table


def spec(
    *args: str, command: str = "docker", env: dict[str, str], credentials: dict[str, str]
) -> ServerSpec:
    return ServerSpec(
        name="s", annotations="s", command=command, args=args, env=env, credentials=credentials
    )


def test_a_server_gets_the_base_its_env_and_its_credentials_and_nothing_else() -> None:
    """G15."""
    parent = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "MCP_SERVERS_CONFIG": "{}",
        "SERVER_CREDENTIALS": "{}",
        "OPENAI_API_KEY": "k",
        "LD_PRELOAD": "x.so",
    }
    given = spec(env={"PATH": "/own", "A": "${HOME}"}, credentials={"A": "c", "T": "t"})
    assert child_environment(given, parent) == {
        "PATH": "/own",
        "HOME": "/h",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "A": "c",
        "T": "t",
    }


def test_a_python_server_that_tells_a_set_tells_it_alike_at_each_start(tmp_path: Path) -> None:
    """mcp-shell-server names its commands in the order of a set, and pins would hold that."""
    program = "print({f'word{n}' for n in range(40)})"

    def told(home: str, **env: str) -> str:
        given = spec("-c", program, command=sys.executable, env=env, credentials={})
        environment = child_environment(given, {"HOME": home})
        return subprocess.check_output([given.command, *given.args], env=environment).decode()

    assert told("/home/a") == told("/home/a") != ""
    assert told("/home/a") != told("/home/b")
    assert told("/home/a", PYTHONHASHSEED="1") == told("/home/b", PYTHONHASHSEED="1")
    for command in ("uvx", "/x/pipx", "python3.12"):
        of_launcher = spec(command=command, env={}, credentials={})
        assert "PYTHONHASHSEED" in child_environment(of_launcher, {})
    script = tmp_path / "mcp-server"
    script.write_text(f"#!{sys.executable}\nimport mcp\n")
    assert child_environment(spec(command=str(script), env={}, credentials={}), {})
    for command in ("node", shutil.which("env") or "", str(tmp_path), "python3/x"):
        assert child_environment(spec(command=command, env={}, credentials={}), {}) == {}


def test_credentials_and_what_is_named_like_one_are_secret() -> None:
    given = spec(
        env={"API_KEY": "key-value", "MAX_TOKENS": "5", "db_password": "pass", "URL": "http://x"},
        credentials={"ANY": "longer-than-the-rest", "EMPTY": ""},
    )
    assert secrets_of(given) == ("longer-than-the-rest", "key-value", "pass")


def test_the_password_of_a_url_is_secret_as_it_is_written_and_as_it_is_meant() -> None:
    urls = {"HTTPS_PROXY": "http://me:p%40ss@proxy:3128", "DB": "db://:pw@h/x://y:1234@ h://i:80/"}
    assert set(secrets_of(scripted("one", env=urls))) == {"p%40ss", "p@ss", "1234"}


@pytest.mark.parametrize(
    ("command", "args", "missing"),
    [
        pytest.param("docker", ["run", "-e", "A", "-e", "B", "i"], ("B",), id="one of two is set"),
        pytest.param("/usr/bin/docker", ["--env", "B"], ("B",), id="a full path, a long option"),
        pytest.param("podman", ["--env=B"], ("B",), id="podman, with an equals sign"),
        pytest.param("docker", ["-e", "B=1", "-e"], (), id="a value, and nothing after -e"),
        pytest.param("docker", ["--", "-e", "B"], (), id="after the options"),
        pytest.param("node", ["-e", "B"], (), id="no container"),
    ],
)
def test_a_variable_that_a_container_would_miss_is_found(
    command: str, args: list[str], missing: tuple[str, ...]
) -> None:
    given = spec(*args, command=command, env={"A": "1"}, credentials={})
    assert missing_container_variables(given, child_environment(given, {"B": "2"})) == missing


@pytest.mark.anyio
async def test_no_server_sees_the_proxys_environment_or_another_servers() -> None:
    """G15, in the processes themselves."""
    base = {"PATH": os.environ["PATH"], "HOME": "/h", "SERVER_CREDENTIALS": "secret"}
    one = scripted("one", env={"A": "1"}, credentials={"TOKEN": "first"})
    two = scripted("two", env={"B": "2"}, credentials={"TOKEN": "second"})
    async with running(one, two, options=replace(OPTIONS, environment=base)) as servers:
        seen = [
            orjson.loads(await text_of(servers, "environment", server=server))
            for server in ("one", "two")
        ]
    for found in seen:
        # The scripted server is Python as well, and makes its own.
        found.pop("LC_CTYPE", None)
        # Nothing of the proxy's environment: made of the home directory and the server's name.
        assert found.pop("PYTHONHASHSEED").isdecimal()
    path = {"PATH": os.environ["PATH"], "HOME": "/h"}
    assert seen == [{**path, "A": "1", "TOKEN": "first"}, {**path, "B": "2", "TOKEN": "second"}]


CERTIFICATES = {
    "SSL_CERT_FILE": "/etc/ssl/company@2.pem",
    "SSL_CERT_DIR": "/etc/ssl/certs",
    "REQUESTS_CA_BUNDLE": "/etc/ssl/company.pem",
    "CURL_CA_BUNDLE": "/etc/ssl/company.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/ssl/company.pem",
    "npm_config_cafile": "/etc/ssl/company.pem",
}

WAYS = table("downstream/environment.ways", dict[str, str])


def test_certificates_and_the_way_to_the_network_reach_a_server() -> None:
    parent = {**CERTIFICATES, **WAYS}
    assert child_environment(spec(env={}, credentials={}), parent) == parent


def test_a_way_to_the_network_with_credentials_in_it_stays_here() -> None:
    cases = [
        "http://me:pass@proxy.company",
        "me:pass@proxy.company:3128",
        "https://__token__@pypi.company",
        "x=https://me:p@pypi.company/simple",
        "https://pypi.company/simple?token=pass",
    ]
    assert [
        (name, value)
        for name in [name for name in WAYS if name != "UV_OFFLINE"]
        for value in cases
        if child_environment(spec(env={}, credentials={}), {name: value}) != {}
    ] == []


@pytest.mark.parametrize(
    "name",
    table("downstream/environment.tokens_and_what_loads_code", list[str]),
)
def test_tokens_and_what_loads_code_stay_here(name: str) -> None:
    assert child_environment(spec(env={}, credentials={}), {name: "x"}) == {}


def test_what_the_entry_says_of_a_proxy_holds_in_either_case() -> None:
    own = spec(env={"https_proxy": "http://own"}, credentials={"NPM_CONFIG_REGISTRY": "http://r"})
    parent = {
        "HTTPS_PROXY": "http://a",
        "https_proxy": "http://b",
        "npm_config_registry": "http://c",
    }
    assert child_environment(own, parent) == {
        "https_proxy": "http://own",
        "NPM_CONFIG_REGISTRY": "http://r",
    }
