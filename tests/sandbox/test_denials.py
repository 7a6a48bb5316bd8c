"""Errors that hide the sandbox's refusal: told from the server's own by what is known of the call.

The texts marked as real were produced by the program named, under sandbox-runtime 0.0.83.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.model.request import AccessRequest, ArgumentFact, UrlValue
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.sandbox.denials import (
    MAX_BLOCKS,
    MAX_TEXT,
    Closed,
    annotated,
    annotated_error,
)
from ironcurtain_proxy.sandbox.profile import SandboxProfile
from tests.tables import named, table

PROFILE = SandboxProfile(allowed_domains=("open.example", "*.open.example"))


def of_call(*hosts: str, profile: SandboxProfile = PROFILE) -> Closed:
    """What is known of a call that fetches from these hosts."""
    values = tuple([UrlValue(f"https://{host}/x", (host,)) for host in hosts])
    request = AccessRequest(
        server="s",
        tool="t",
        annotated=True,
        has_arguments=True,
        arguments=(ArgumentFact("url", ("fetch-url",), values),),
    )
    return Closed.to(profile, request)


def failure(*texts: str) -> dict[str, Json]:
    return {"isError": True, "content": [{"type": "text", "text": text} for text in texts]}


def marks(text: str, closed: Closed) -> str | None:
    """What stands before an error's text."""
    content = annotated(failure(text), closed)["content"]
    assert isinstance(content, list)
    assert isinstance(content[0], dict)
    marked = str(content[0]["text"])
    message = str(annotated_error({"message": text}, closed)["message"])
    assert message == marked, "an error and a result are marked alike"
    assert marked.endswith(text)
    return marked.removesuffix(text).strip() or None


HIDDEN = table("sandbox/denials.hidden", list[tuple[str, str]])
"""What clients make of the refusal, without the sandbox's own words."""

SERVERS_OWN = table("sandbox/denials.servers_own", list[tuple[str, str]])
"""What a server may say of a call whose host is closed, and is not the sandbox's doing."""


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in HIDDEN])
def test_a_hidden_refusal_is_marked_with_the_calls_closed_host(text: str) -> None:
    assert marks(text, of_call("closed.example")) == "[SANDBOX BLOCKED: host closed.example]"


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in HIDDEN])
def test_the_same_text_is_the_sites_own_where_the_host_is_open(text: str) -> None:
    said = text.replace("closed.example", "www.open.example")
    assert marks(said, of_call("www.open.example")) is None
    assert marks(said, of_call()) is None, "it names no host that is closed"
    assert marks(said, Closed()) is None, "nothing is known of the call"


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SERVERS_OWN])
def test_what_a_server_says_of_such_a_call_for_itself_is_left_alone(text: str) -> None:
    assert marks(text, of_call("closed.example")) is None


@pytest.mark.parametrize(
    "text",
    [
        "Failed to fetch http://closed.example/x - status code 403",
        "When fetching robots.txt (http://closed.example/robots.txt), received status 403 so",
        "Failed to fetch robots.txt https://closed.example/robots.txt due to a connection issue",
        "403 Client Error: Forbidden for url: http://me:pw@closed.example:8080/x",
        "Client error '403 Forbidden' for url 'http://closed.example/x'",
    ],
)
def test_an_open_site_that_sent_the_server_on_to_a_closed_one_which_the_text_names(
    text: str,
) -> None:
    marked = "[SANDBOX BLOCKED: host closed.example]"
    assert marks(text, of_call("open.example")) == marked
    assert marks(text, of_call()) == marked, "the call itself named no host"


@pytest.mark.parametrize(
    "text",
    table("sandbox/denials.open_sites", list[str]),
)
def test_an_open_site_may_have_said_no_itself(text: str) -> None:
    assert marks(text, of_call("open.example")) is None


@pytest.mark.parametrize(
    ("hosts", "text", "mark"),
    [
        pytest.param(
            ("a.example", "b.example"),
            "https://b.example/x: status code 403",
            "[SANDBOX BLOCKED: host b.example]",
            id="the one that is named",
        ),
        pytest.param(
            ("a.example", "b.example"), "fetch failed", "[SANDBOX BLOCKED]", id="either of them"
        ),
        pytest.param(
            ("open.example", "b.example"),
            "fetch failed",
            "[SANDBOX BLOCKED: host b.example]",
            id="the closed one",
        ),
        pytest.param(
            ("open.example", "b.example"),
            "https://open.example/x: status code 403",
            None,
            id="the open one said so",
        ),
    ],
)
def test_of_several_hosts_the_one_that_was_refused_is_named_if_it_is_known(
    hosts: tuple[str, ...], text: str, mark: str | None
) -> None:
    assert marks(text, of_call(*hosts)) == mark


@pytest.mark.parametrize(
    ("text", "host", "mark"),
    named("sandbox/denials.the_host_of_a_refusal_that_shows", tuple[str, str, str]),
)
def test_the_host_of_a_refusal_that_shows_is_the_one_that_was_denied(
    text: str, host: str, mark: str
) -> None:
    assert marks(text, of_call(host)) == mark


FILES = SandboxProfile(
    allow_write=("/state/s.cwd",),
    allow_read=("/state/s.cwd",),
    deny_read=("/state", "/home/me/.ssh", "/Secret dir"),
)


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize(
    ("text", "is_hidden"), table("sandbox/denials.missing", list[tuple[str, bool]])
)
def test_what_is_missing_where_nothing_is_seen_is_the_sandboxs(text: str, is_hidden: bool) -> None:
    closed = of_call(profile=FILES)
    assert marks(text, closed) == ("[SANDBOX BLOCKED]" if is_hidden else None)
    assert marks(text, Closed()) is None


def test_a_server_without_network_reaches_no_host_of_the_call() -> None:
    closed = of_call("open.example", profile=SandboxProfile())
    assert marks("fetch failed", closed) == "[SANDBOX BLOCKED: host open.example]"


@pytest.mark.parametrize(
    "unit", table("sandbox/denials.the_largest_text_of_any_unit_comes", list[str])
)
def test_the_largest_text_of_any_unit_comes_to_an_end(unit: str) -> None:
    """Square time would be minutes: the limit of each test is a minute."""
    result = failure(*[unit * (2 * MAX_TEXT // len(unit))] * MAX_BLOCKS)
    annotated(result, of_call("closed.example", "other.example"))


@given(st.text(alphabet="ht403p:/. closedxm[]'\"fetch\n") | st.text())
def test_any_text_is_taken_and_marked_at_most_once(text: str) -> None:
    closed = of_call("closed.example")
    once = annotated(failure(text), closed)
    assert annotated(once, closed) is once


WORK = "/home/me/work"
WITH_CLOSED = SandboxProfile(
    allow_write=(WORK,), deny_write=(f"{WORK}/scripts/check.sh", f"{WORK}/.vscode")
)


@pytest.mark.parametrize(
    ("text", "path"),
    table("sandbox/denials.an_agent_reads_that_a_file_is_closed", list[tuple[str, str]]),
)
def test_an_agent_reads_that_a_file_is_closed_and_what_to_do(text: str, path: str) -> None:
    mark = marks(text, Closed(WITH_CLOSED))
    assert mark is not None
    assert mark.startswith(f"[SANDBOX BLOCKED: {WORK}/{path} is closed to all calls: ")
    said = annotated({"content": [{"type": "text", "text": text}]}, Closed(WITH_CLOSED, runs=True))
    assert mark in str(said)


@pytest.mark.parametrize(
    "text",
    [
        "EROFS: read-only file system, open '/home/me/other.txt'",
        f"the file {WORK}/scripts/check.sh was written",
        f"EBUSY: resource busy or locked, rename 'b' -> '{WORK}/scripts/check.sh.bak'",
    ],
)
def test_of_other_files_nothing_is_said_of_being_closed(text: str) -> None:
    assert "is closed" not in (marks(text, Closed(WITH_CLOSED)) or "")
    given: dict[str, Json] = {"content": [{"type": "text", "text": text}]}
    assert annotated(given, Closed(WITH_CLOSED)) is given
