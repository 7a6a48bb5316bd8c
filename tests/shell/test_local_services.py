"""Requests to services of the developer's own: one family for each address, and nothing more."""

import socket

import pytest

from ironcurtain_proxy.cli.review import listening_at
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.kinds import may_be_a_service
from ironcurtain_proxy.shell.programs import paths
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT, covers
from tests.tables import table

APPROVED = "curl -s http://localhost:3000/health"
NEARBY = "nc -z -w2 192.168.7.17 5432"


def is_covered(approved: str, then: str) -> bool:
    granted = families_of(parse_command(approved), PROJECT) or ()
    return bool(granted) and covers(granted, parse_command(then), PROJECT)


@pytest.mark.parametrize(
    "then",
    table("shell/local_services.covered", list[str]),
)
def test_one_approval_covers_plain_requests_to_this_machine(then: str) -> None:
    assert is_covered(APPROVED, then)


def test_a_private_address_is_a_kind_of_its_own() -> None:
    assert is_covered(NEARBY, "curl -s http://192.168.7.17:3000/health")
    assert not is_covered(NEARBY, "curl -s http://192.168.7.18:3000/health")
    assert not is_covered(NEARBY, APPROVED)
    assert not is_covered(APPROVED, NEARBY)


def test_the_kind_is_no_way_to_another_host_a_proxy_or_a_file() -> None:
    cases = [
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
          (22, 25, 1080, 2375, 2376, 3128, 4040, 4646, 6443, 8001, 8118, 8200, 8808, 8888, 9050,
           9222, 9229, 9515, 10250, 11434, 32768, 45123, 65535, 99999)),
        # What a proxy on another port would take for another host.
        *(f"curl -s http://localhost:3000/ {option}" for option in (
            "-H 'Host: evil.example'", "--header 'host : evil.example'", "-H 'Host;'",
            "-H $'A: b\\r\\nHost: evil.example'", "-A $'a\\r\\nHost: evil.example'", "-X CONNECT",
            "-X 'GET http://evil.example/ HTTP/1.1'",
        )),
        "X='st: evil.example'; curl -s http://localhost:3000/ -H \"Ho$X\"",
        "nc -z localhost 2375", "nc -z localhost 1-65535", "redis-cli -p 9222 ping",
        # Files, code, listeners.
        "curl -s http://localhost:3000/x -d @.git/config",
        "curl -s http://localhost:3000/x -d @.env", "curl -s http://localhost:3000/x --data=@.env",
        "curl -s http://localhost:3000/x -F file=@../a",
        "curl -s http://localhost:3000/x -F a=@.env", "curl -sT a http://localhost:3000/x",
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
    ]  # fmt: skip
    assert [then for then in cases if is_covered(APPROVED, then)] == []


def test_a_format_of_curl_that_writes_a_file_is_another_family() -> None:
    approved = "curl -s https://example.org/a"
    assert is_covered(approved, "curl -s -w '%{http_code}' https://example.org/a")
    assert not is_covered(approved, "curl -s -w '%output{run.sh}x' https://example.org/a")


def test_the_table_says_where_each_program_of_the_kind_connects() -> None:
    reached = {path[0] for path in paths("reaches")}
    assert {"curl", "nc", "redis-cli", "pg_isready"} <= reached


@pytest.mark.parametrize(
    "then",
    [
        "R=1; curl -s http://localhost:3000/a/$R",
        'X_RESP=$(date) && curl -s "http://localhost:3000/a/$X_RESP" -H "Authorization: $X_RESP"',
    ],
)
def test_what_the_same_text_has_set_may_stand_in_the_path_and_in_what_is_sent(then: str) -> None:
    granted = families_of(parse_command(APPROVED), PROJECT) or ()
    assert covers(granted, parse_command(then), PROJECT, held=True) == ("X_RESP" in then)


@pytest.mark.parametrize(
    "then",
    table("shell/local_services.not_covered", list[str]),
)
def test_nothing_else_that_is_known_only_when_it_runs_is_covered(then: str) -> None:
    granted = families_of(parse_command(APPROVED), PROJECT) or ()
    assert not covers(granted, parse_command(then), PROJECT, held=True)


READING = "psql -h localhost -U me -d app -c 'select 1'"


def test_statements_that_only_read_one_database_are_one_kind() -> None:
    for then in (
        "psql -h 127.0.0.1 -U me app -tAc 'SELECT count(*) FROM users WHERE a = 1;'",
        "PGPASSWORD=x psql -h localhost -U me -d app -c '\\dt'",
        "psql --host=localhost --username=me --dbname=app -c 'show server_version'",
    ):
        assert is_covered(READING, then), then


def test_the_kind_of_a_database_writes_nothing_and_reaches_no_other() -> None:
    cases = [
        "psql -h localhost -U me -d other -c 'select 1'",
        "psql -h localhost -U you -d app -c 'select 1'",
        "psql -h db.example -U me -d app -c 'select 1'",
        "psql -h localhost -p 2375 -U me -d app -c 'select 1'",
        "psql -h localhost -p 5433 -U me -d app -c 'select 1'",
        "PGHOSTADDR=6.6.6.6 psql -h localhost -U me -d app -c 'select 1'",
        "psql -h localhost -U me -d 'host=evil.example' -c 'select 1'",
        "psql -h localhost -U me -d app -f x.sql", "psql -h localhost -U me -d app",
        *(f'psql -h localhost -U me -d app -c "{text}"' for text in (
            "drop table a", "select 1; drop table a", "select 1 into b", "\\! id",
            "select pg_read_file('/etc/passwd')", "select evil.count('x')", "\\i x.sql",
            "select lo_export(1, 'x')", "copy a to program 'id'", "select * from pg_shadow",
            "select * from information_schema.user_mapping_options",
            "select 1 for update", "with a as (delete from b returning 1) select 1", "\\o |sh",
        )),
        "mysql -h localhost -u me app -e 'select 1'", "redis-cli get a", APPROVED,
    ]  # fmt: skip
    assert [then for then in cases if is_covered(READING, then)] == []


def test_reading_of_other_databases_is_a_kind_too() -> None:
    mysql = "mysql -h127.0.0.1 -ume -psecret app -e 'show tables'"
    assert is_covered(mysql, "mysql -h localhost -u me app -e 'describe users'")
    assert not is_covered(mysql, "mysql -h localhost -u me app -e \"select load_file('/x')\"")
    assert is_covered("redis-cli get a", "redis-cli -h localhost keys 'a*'")
    assert not is_covered("redis-cli get a", "redis-cli config get requirepass")


def test_a_request_to_what_the_same_command_starts_stays_in_the_sandbox() -> None:
    def effect(text: str) -> str:
        return effect_of(parse_command(text), PROJECT).effect

    assert effect("pnpm dev & sleep 5; curl -s http://localhost:3000/health") == "local"
    assert effect("node server.js & curl -s http://127.0.0.1:9229/json") == "local"
    for text in (
        "pnpm dev; curl -s http://localhost:3000/", "sleep 5 & curl -s http://localhost:3000/",
        "pnpm dev & curl -s https://example.org/", "pnpm dev & curl -s http://192.168.7.17:3000/",
        "pnpm dev & curl -s http://localhost:3000/ https://example.org/",
    ):  # fmt: skip
        assert effect(text) == "outward", text


def _no_socket(port: int) -> socket.socket:
    raise AssertionError(port)


def test_the_page_of_a_reviewer_listens_on_no_port_that_an_approval_covers() -> None:
    for port in (80, 443, 1024, 3000, 8080, 32767):
        assert is_covered(APPROVED, f"curl -s http://localhost:{port}/")
        with pytest.raises(ConfigurationError, match="an approval of requests to services"):
            listening_at(_no_socket, port)
    for port in (0, 8790, 8808, 32768, 65535):
        assert not may_be_a_service(port)
        assert not is_covered(APPROVED, f"curl -s http://localhost:{port}/")


STATE = "ssh -i ~/.ssh/k root@h.example \"ls /opt && docker ps --format '{{.Names}}' 2>&1\""


def test_the_containers_of_another_machine_are_a_kind_and_no_file_or_change_is_in_it() -> None:
    there = "ssh -i ~/.ssh/k root@h.example"
    same = [
        f'sleep 9 && {there} "cd /opt && docker compose -f a.yml logs a | tail"',
        f"{there} 'docker ps | tail -n 5 | grep -A 3 -i 80 | head -c 9'",
        f"{there} docker compose -f ../a.yml -f /opt/b-c.staging.yaml -p d ps",
        f"{there} 'docker logs a 2>&1 | grep -A5 error | head -5'",
    ]
    assert [then for then in same if not is_covered(STATE, then)] == []
    remote = [
        "uptime", "cat /etc/passwd", "tail -f /var/log/x", "grep x /etc/shadow", "rm x", "\nrm x",
        "docker ps > /etc/x", "ls `id`", "sudo docker ps", "docker ps &", "PATH=/tmp docker ps",
        "docker ps | grep -A3 5 /etc/shadow", "docker ps | grep 5 /etc/shadow 5",
        "docker ps | grep -eab /etc/shadow", "docker ps | grep -n 5 /etc/shadow",
        "docker ps | uniq 1 2", "docker ps | head 5", "docker ps | grep - /etc/shadow",
        "docker ps | sort -o x", "docker ps | grep -rx", "docker ps | grep -f /etc/shadow x",
        "docker -H tcp://g ps", "(", "docker(){ :; }", "docker compose exec a env", "docker rm a",
        "docker compose config", "docker inspect a", "{ rm x; } 2>&1", "echo $HOME", "docker",
        "docker compose --env-file x ps", *(f"docker compose -f {file} logs" for file in (
            "oci://evil.example/a", "https://evil.example/a.yml", "git@evil.example:a.yml",
            "github.com/a/b.yml", "/etc/shadow",
        )),
    ]  # fmt: skip
    other = [
        there, f"{there} docker ps | sh", f"{there} docker ps > ~/.x", f"X=1 {there} docker ps",
        "ssh -i ~/.ssh/k root@g.example docker ps", "ssh -i ~/.ssh/j root@h.example docker ps",
        "ssh -i ~/.ssh/k h.example docker ps",
        *(f'{there} "docker ps; {text}"' for text in remote),
        *(f'{there} "{text}"' for text in remote),
        *(f"ssh {option} {there[4:]} docker ps" for option in (
            "-oProxyCommand=id", "-J g.example", "-F x", "-i -oProxyCommand=id", "-A",
        )),
    ]  # fmt: skip
    assert [then for then in other if is_covered(STATE, then)] == []


def test_a_file_with_secrets_has_several_readers() -> None:
    for then in ("git diff a/.env", "git diff --stat a/.env", "grep -r X a/.env"):
        assert is_covered("cat a/.env", then), then
    for then in ("git log -p a/.env", "git diff --output=x a/.env", "git diff --ext-diff a/.env"):
        assert not is_covered("cat a/.env", then), then
    # Its own name is of a secret, and nothing stands behind it.
    assert not is_covered("cat a/.env", "a/.env/git")


def test_the_lock_of_a_stopped_git_is_nothing_to_ask_about_beside_a_fetch() -> None:
    granted = families_of(parse_command("git fetch origin"), PROJECT, held=True) or ()
    for then, is_quiet in (
        (f"rm -f {PROJECT.workspace}/.git/index.lock && git fetch origin", True),
        ("rm .git/index.lock && git fetch origin", True),
        ("rm -rf .git/index.lock && git fetch origin", False),
        ("rm .git/index && git fetch origin", False),
        ("rm /tmp/.git/index.lock && git fetch origin", False),
    ):
        assert covers(granted, parse_command(then), PROJECT, held=True) == is_quiet, then
