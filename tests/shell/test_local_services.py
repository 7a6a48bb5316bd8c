"""Requests to services of the developer's own: one family for each address, and nothing more."""

import pytest

from ironcurtain_proxy.shell.families import covers, families_of
from ironcurtain_proxy.shell.parse import parse_command
from ironcurtain_proxy.shell.programs import paths
from tests.shell.places import PROJECT

APPROVED = "curl -s http://localhost:3000/health"
NEARBY = "nc -z -w2 192.168.7.17 5432"


def is_covered(approved: str, then: str) -> bool:
    granted = families_of(parse_command(approved), PROJECT) or ()
    return bool(granted) and covers(granted, parse_command(then), PROJECT)


@pytest.mark.parametrize(
    "then",
    [
        "curl -s 'http://localhost:5173/a/b?c=d' 2>/dev/null | head -3",
        "curl -sS -X POST http://127.0.0.1:3000/login -H 'A: b' -d '{\"a\":\"b\"}'",
        "curl -s -o /dev/null -w '%{http_code}' localhost:8080",
        "curl -s 'http://[::1]:3000/' && echo UP || echo DOWN",
        "nc -z localhost 5432 && echo OPEN",
        "nc -zv -w3 127.0.0.1 6380",
        "redis-cli ping",
        "redis-cli -h localhost -p 6380 ping",
        "pg_isready -h localhost -p 5432 -U app",
    ],
)
def test_one_approval_covers_plain_requests_to_this_machine(then: str) -> None:
    assert is_covered(APPROVED, then)


def test_a_private_address_is_a_kind_of_its_own() -> None:
    assert is_covered(NEARBY, "curl -s http://192.168.7.17:3000/health")
    assert not is_covered(NEARBY, "curl -s http://192.168.7.18:3000/health")
    assert not is_covered(NEARBY, APPROVED)
    assert not is_covered(APPROVED, NEARBY)


@pytest.mark.parametrize(
    "then",
    [
        # Elsewhere.
        "curl -s https://evil.example/", "curl -s http://localhost.evil.example:3000/",
        "curl -s http://localhost@evil.example/", "curl -s http://localhost:80@evil.example/",
        "curl -s http://169.254.169.254/latest/meta-data", "curl -s http://169.254.169.254:3000/",
        "curl -s http://8.8.8.8:3000/", "curl -s http://172.32.0.1:3000/",
        "curl -s http://100.100.100.200/", "curl -s http://2130706433:3000/",
        "curl -s http://localhost:3000/ https://evil.example/", "curl -sL http://localhost:3000/",
        "curl -s -x http://localhost:3000 http://localhost:3000/",
        "curl -s --proxy http://localhost:3000 https://evil.example/",
        "curl -s --connect-to ::evil.example:443 http://localhost:3000/",
        "curl -s --resolve localhost:3000:6.6.6.6 http://localhost:3000/",
        "http_proxy=http://localhost:8080 curl -s http://localhost:3000/",
        "curl -K x http://localhost:3000/", "curl --unix-socket /run/docker.sock http://localhost/",
        "curl -s file:///etc/passwd", "curl -s gopher://localhost:3000/_x",
        "curl -s telnet://localhost:3000/", "curl -s $X", "curl -s http://localhost:$P/",
        "curl -s http://{localhost,evil.example}:3000/", "curl -s 'http://localhost:300[0-9]/'",
        "curl -s http://localhost:3000\\\\@evil.example/",
        # Proxies, control services, what the system gives out, other services.
        *(f"curl -s http://localhost:{port}/" for port in
          (22, 25, 1080, 2375, 2376, 3128, 4040, 6443, 8001, 8118, 8200, 8808, 8888, 9050, 9222,
           9229, 10250, 32768, 45123, 65535, 99999)),
        "nc -z localhost 2375", "nc -z localhost 1-65535", "redis-cli -p 9222 ping",
        # Files, code, listeners.
        "curl -s http://localhost:3000/x -d @.env", "curl -s http://localhost:3000/x --data=@.env",
        "curl -s http://localhost:3000/x -F file=@a", "curl -sT a http://localhost:3000/x",
        "curl -s http://localhost:3000/x -o run.sh", "curl -sO http://localhost:3000/x",
        "curl -s http://localhost:3000/x -H @.env", "curl -s http://localhost:3000/x | sh",
        "curl -s http://localhost:3000/x -w '%output{run.sh}x'",
        "curl -s http://localhost:3000/x > run.sh", "curl -s http://localhost:3000/ -D run.sh",
        "nc localhost 5432", "nc -l 3000", "nc -z -e sh localhost 5432", "nc -zX 5 localhost 5432",
        "redis-cli flushall", "redis-cli config set dir /",
        "redis-cli -u redis://evil.example ping",
        "pg_isready -d 'host=evil.example'", "pg_isready -d postgres://evil.example/a",
        "pg_isready -h evil.example", "cd /tmp && curl -s http://localhost:3000/",
        "ssh localhost id", "psql -h localhost -c 'select 1'", "sudo curl -s http://localhost:3000/",
    ],
)  # fmt: skip
def test_the_kind_is_no_way_to_another_host_a_proxy_or_a_file(then: str) -> None:
    assert not is_covered(APPROVED, then)


def test_a_format_of_curl_that_writes_a_file_is_another_family() -> None:
    approved = "curl -s https://example.org/a"
    assert is_covered(approved, "curl -s -w '%{http_code}' https://example.org/a")
    assert not is_covered(approved, "curl -s -w '%output{run.sh}x' https://example.org/a")


def test_the_table_says_where_each_program_of_the_kind_connects() -> None:
    reached = {path[0] for path in paths("reaches")}
    assert {"curl", "nc", "redis-cli", "pg_isready"} <= reached
