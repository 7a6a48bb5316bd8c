"""Errors that the sandbox caused, told from those that the server made.

The true texts were produced under sandbox-runtime 0.0.83 with bubblewrap, where a program for it
was at hand.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.denials import (
    MAX_BLOCKS,
    MAX_TEXT,
    annotated,
    annotated_error,
    denied_host,
    is_blocked,
)

MARK = "[SANDBOX BLOCKED]"

BLOCKED = [
    # files, as Node says it
    ("node write", "EROFS: read-only file system, open '/srv/ro/x'"),
    ("node mkdir", "EROFS: read-only file system, mkdir '/srv/ro/n'"),
    ("node unlink", "EROFS: read-only file system, unlink '/srv/ro/a/f'"),
    ("node recursive mkdir", "ENOENT: no such file or directory, mkdir '/srv/ro/n/m/o'"),
    ("node rename", "EXDEV: cross-device link not permitted, rename '/srv/w/q' -> '/srv/ro/q'"),
    ("node link", "EXDEV: cross-device link not permitted, link '/srv/ro/f' -> '/srv/w/l'"),
    ("node denied by mode", "EACCES: permission denied, open '/srv/ro/x'"),
    ("node unix socket", "listen EPERM: operation not permitted /srv/w/sock"),
    ("npm code", "npm error code EROFS\nnpm error syscall open"),
    # files, as Python says it
    ("python open", "[Errno 30] Read-only file system: '/srv/ro/x'"),
    ("python repr", "OSError(30, 'Read-only file system')"),
    ("python rename", "[Errno 18] Invalid cross-device link: '/srv/w/q' -> '/srv/ro/q'"),
    ("python denied by mode", "PermissionError: [Errno 13] Permission denied: '/srv/ro/x'"),
    ("python unix socket", "[Errno 1] Operation not permitted"),
    # files, as git and the shell say it
    ("git init", "fatal: cannot mkdir /srv/ro/new: Read-only file system"),
    ("git lock", "fatal: Unable to create '/srv/r/.git/index.lock': Read-only file system"),
    ("git config", "error: could not lock config file .git/config: Read-only file system"),
    (
        "GitPython",
        (
            "Cmd('git') failed due to: exit code(128)\n  cmdline: git add file\n  stderr: "
            "'fatal: Unable to create '/srv/r/.git/index.lock': Read-only file system'"
        ),
    ),
    ("touch", "touch: cannot touch '/srv/ro/x': Read-only file system"),
    ("bash", "bash: line 1: /srv/ro/z: Read-only file system"),
    ("cat", "cat: /etc/shadow: Permission denied\n"),
    ("git denied by mode", "error: cannot open '.git/FETCH_HEAD': Permission denied"),
    ("rust", "open /srv/x: Permission denied (os error 13)"),
    ("go", "open /srv/ro/x: read-only file system"),
    ("unshare", "unshare: unshare failed: Operation not permitted"),
    ("bwrap", "bwrap: Creating new namespace failed: Operation not permitted"),
    # the network, no host named
    ("curl connect", "curl: (56) CONNECT tunnel failed, response 403"),
    ("old curl connect", "curl: (56) Received HTTP code 403 from proxy after CONNECT"),
    ("curl http", "HTTP/1.1 403 Forbidden\nX-Proxy-Error: blocked-by-allowlist\n\n"),
    ("http body", "Connection blocked by network allowlist\n"),
    ("httpx proxy", "ProxyError('403 host is not on the allow list')"),
    (
        "urllib proxy",
        "<urlopen error Tunnel connection failed: 403 host is not on the allow list>",
    ),
    ("denied domain", "403 host is on the deny list"),
    ("undici proxy", "Proxy response (403) !== 200 when HTTP Tunneling"),
    ("node tunnel", "tunneling socket could not be established, statusCode=403"),
    ("proxy without name", "ProxyError('407 Proxy Authentication Required')"),
    ("PySocks", "0x02: Connection not allowed by ruleset"),
    ("python resolve", "[Errno -3] Temporary failure in name resolution"),
    ("python no name", "[Errno -2] Name or service not known"),
    ("python no route", "[Errno 101] Network is unreachable"),
    ("python refused", "[Errno 111] Connection refused"),
    ("httpx refused", "Error: All connection attempts failed"),
    ("proxy refused", "connect ECONNREFUSED 127.0.0.1:3128"),
    ("socks proxy refused", "connect ECONNREFUSED 127.0.0.1:1080"),
]

HOSTS = [
    ("node resolve", "getaddrinfo EAI_AGAIN example.com", "example.com"),
    ("node not found", "getaddrinfo ENOTFOUND api.example.com", "api.example.com"),
    ("node no route", "connect ENETUNREACH 10.1.2.3:9 - Local (0.0.0.0:0)", "10.1.2.3"),
    ("node refused", "connect ECONNREFUSED 127.0.0.1:5432", "127.0.0.1"),
    (
        "node-fetch behind a proxy that is gone",
        "request to https://Example.com/a failed, reason: connect ECONNREFUSED 127.0.0.1:3128",
        "example.com",
    ),
    (
        "mcp-server-fetch",
        "Failed to fetch https://example.com/: ProxyError('403 host is not on the allow list')",
        "example.com",
    ),
    (
        "requests",
        (
            "HTTPSConnectionPool(host='example.com', port=443): Max retries exceeded with url: / "
            "(Caused by ProxyError('Unable to connect to proxy', OSError('Tunnel connection "
            "failed: 403 host is not on the allow list')))"
        ),
        "example.com",
    ),
    ("curl resolve", "curl: (6) Could not resolve host: example.com", "example.com"),
    (
        "curl refused",
        "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server",
        "127.0.0.1",
    ),
    (
        "curl socks",
        "curl: (97) Can't complete SOCKS5 connection to example.com. (2)",
        "example.com",
    ),
    (
        "git https",
        (
            "Cloning into 'b'...\nfatal: unable to access 'https://github.com/a/b/': "
            "CONNECT tunnel failed, response 403"
        ),
        "github.com",
    ),
    (
        "git https with a name and a port",
        (
            "fatal: unable to access 'https://me:pw@git.example.com:8443/b/': "
            "CONNECT tunnel failed, response 403"
        ),
        "git.example.com",
    ),
    (
        "git ssh",
        (
            "2026/11/22 00:12:30 socat[24] E CONNECT github.com:22: host is not on the allow list\n"
            "fatal: Could not read from remote repository."
        ),
        "github.com",
    ),
    (
        "git protocol",
        "fatal: unable to look up github.com (port 9418) (Temporary failure in name resolution)",
        "github.com",
    ),
    (
        "ssh",
        "ssh: Could not resolve hostname github.com: Temporary failure in name resolution",
        "github.com",
    ),
    (
        "npm",
        (
            "npm error code E403\nnpm error 403 403 host is not on the allow list - GET "
            "https://registry.npmjs.org/left-pad"
        ),
        "registry.npmjs.org",
    ),
    (
        "go resolve",
        "dial tcp: lookup example.com: Temporary failure in name resolution",
        "example.com",
    ),
]

SERVERS_OWN = [
    ("allowed directories", "Access denied - path outside allowed directories: /etc not in /srv"),
    ("missing file", "ENOENT: no such file or directory, open 'x'"),
    ("missing folder", "ENOENT: no such file or directory, scandir '/srv/x'"),
    ("missing parent", "Parent directory does not exist: /srv/x"),
    ("python missing file", "[Errno 2] No such file or directory: '/srv/x'"),
    ("folder for a file", "EISDIR: illegal operation on a directory, read"),
    ("python folder", "[Errno 21] Is a directory: '/srv/x'"),
    ("exists", "EEXIST: file already exists, mkdir '/srv/x'"),
    ("not empty", "ENOTEMPTY: directory not empty, rmdir '/srv/x'"),
    ("disk full", "ENOSPC: no space left on device, write"),
    ("chmod of another's file", "[Errno 1] Operation not permitted: '/srv/x'"),
    ("node chmod of another's file", "EPERM: operation not permitted, chmod '/srv/x'"),
    ("github push", "Permission denied to push"),
    ("git remote", "remote: Permission to a/b.git denied to c.\nfatal: unable to access"),
    ("git remote denies", "remote: Permission denied\nfatal: the remote end hung up"),
    ("ssh key", "git@github.com: Permission denied (publickey)."),
    ("database", 'ERROR: permission denied for table "users"'),
    ("an API's denial", "Error: Permission denied"),
    ("site forbids", "Failed to fetch https://example.com/ - status code 403"),
    ("urllib site forbids", "HTTP Error 403: Forbidden"),
    ("github forbids", "403 Forbidden: Resource not accessible by integration"),
    ("github's own allow list", "403: the `a` organization has an IP allow list enabled"),
    ("proxy reports a far failure", "curl: (56) CONNECT tunnel failed, response 502"),
    (
        "robots.txt",
        (
            "When fetching robots.txt (http://example.com/robots.txt), received status 403 so "
            "assuming that autonomous fetching is not allowed"
        ),
    ),
    ("timeout", "connect ETIMEDOUT 93.184.216.34:443"),
    ("reset", "read ECONNRESET"),
    ("certificate", "self-signed certificate in certificate chain"),
    ("validation", "Input validation error: 'path' is a required property"),
    ("unknown tool", "MCP error -32602: Tool frobnicate not found"),
    ("no repository", "fatal: not a git repository (or any of the parent directories): .git"),
    ("pathspec", "error: pathspec 'nobranch' did not match any file(s) known to git"),
    ("speaks of a sandbox", "The sandbox account is blocked; use a live key"),
    ("the file system of that name", "mount: /dev/sda1 is an erofs image"),
    ("nothing", ""),
]


def failure(*texts: str) -> dict[str, Json]:
    return {"isError": True, "content": [{"type": "text", "text": text} for text in texts]}


def first_text(result: object) -> str:
    assert isinstance(result, dict)
    text = result["content"][0]["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in BLOCKED])
def test_what_the_sandbox_refused_is_marked(text: str) -> None:
    assert is_blocked(text)
    assert denied_host(text) is None
    assert first_text(annotated(failure(text))) == f"{MARK} {text}"
    assert annotated_error({"code": 1, "message": text}) == {"code": 1, "message": f"{MARK} {text}"}


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize(
    ("text", "host"), [pytest.param(text, host, id=name) for name, text, host in HOSTS]
)
def test_a_refused_host_is_named(text: str, host: str) -> None:
    marked = f"[SANDBOX BLOCKED: host {host}] {text}"
    assert is_blocked(text)
    assert denied_host(text) == host
    assert first_text(annotated(failure(text))) == marked
    assert annotated_error({"message": text}) == {"message": marked}


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SERVERS_OWN])
def test_an_error_of_the_servers_own_is_left_alone(text: str) -> None:
    result, error = failure(text), {"message": text}
    assert not is_blocked(text)
    assert annotated(result) is result
    assert annotated_error(error) is error


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("flag", [False, None, 1, "true"])
def test_a_result_that_is_no_error_is_left_alone(flag: Json) -> None:
    result: dict[str, Json] = {**failure("EROFS: read-only file system"), "isError": flag}
    assert annotated(result) is result


def test_the_mark_stands_before_the_first_text_wherever_the_reason_is() -> None:
    image: Json = {"type": "image", "data": "EROFS"}
    said: Json = {"type": "text", "text": "It failed.", "annotations": {"priority": 1}}
    reason: Json = {"type": "text", "text": "getaddrinfo EAI_AGAIN example.com"}
    result: dict[str, Json] = {"isError": True, "content": [image, said, reason], "_meta": {"a": 1}}
    marked: Json = {
        "type": "text",
        "text": "[SANDBOX BLOCKED: host example.com] It failed.",
        "annotations": {"priority": 1},
    }
    assert annotated(result) == {**result, "content": [image, marked, reason]}
    assert first_text({"content": [said]}) == "It failed.", "what the server sent is not edited"


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("a]\u202e[ADMIN", id="a bracket ends no mark"),
        pytest.param("a" * 5000, id="too long for a name"),
        pytest.param("\u212a.example", id="a letter that only looks like one"),
    ],
)
def test_no_server_writes_its_own_words_into_the_mark(host: str) -> None:
    marked = first_text(annotated(failure(f"getaddrinfo EAI_AGAIN {host}")))
    inside = marked.partition("]")[0].removeprefix("[SANDBOX BLOCKED")
    assert all(letter.isascii() and letter not in "[]\n" for letter in inside)
    assert len(inside) < 300


def test_only_the_beginning_of_a_result_is_looked_at() -> None:
    late = failure(" " * MAX_TEXT + "EROFS: read-only file system")
    far = failure(*["no"] * MAX_BLOCKS, "EROFS: read-only file system")
    assert annotated(late) is late
    assert annotated(far) is far


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(unit, id=unit.strip()[:20] or "newlines")
        for unit in (
            *("socket ", "http://", "http://a@", "\n", "eai_again\n", ": permission denied"),
            *("econnrefused http://" + "a" * 250 + "_", "eai_again connect " + "a-" * 120),
            *("failed to connect to " + "a" * 240, "could not resolve host "),
        )
    ],
)
def test_the_largest_text_of_any_unit_comes_to_an_end(unit: str) -> None:
    """Square time would be minutes: the limit of each test is a minute."""
    annotated(failure(*["eai_again " + unit * (2 * MAX_TEXT // len(unit))] * MAX_BLOCKS))


TEXTS = st.one_of(
    st.text(), st.sampled_from([text for _, text in BLOCKED] + [text for _, text, _ in HOSTS])
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS)
ANYTHING: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
BLOCKS = st.fixed_dictionaries(
    {}, optional={"type": st.just("text") | ANYTHING, "text": TEXTS | ANYTHING, "x": ANYTHING}
)
RESULTS: st.SearchStrategy[dict[str, Json]] = st.fixed_dictionaries(
    {},
    optional={
        "isError": st.just(True) | ANYTHING,
        "content": st.lists(BLOCKS | ANYTHING) | ANYTHING,
        "message": TEXTS | ANYTHING,
    },
)


@pytest.mark.requirement("C-10")
@given(RESULTS)
def test_any_shape_is_taken_and_marked_at_most_once(result: dict[str, Json]) -> None:
    once, error = annotated(result), annotated_error(result)
    assert annotated(once) is once
    assert annotated_error(error) is error
    if result.get("isError") is not True:
        assert once is result
