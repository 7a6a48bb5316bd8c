"""The public fetch server, confined, and calls that a sandbox cannot carry out.

The server hides what the sandbox's proxy answers, so its errors are told from a site's own by where
the call leads. No host here exists but this machine, and only `localhost.` leads to it through the
proxy: clients go past it for `localhost` and for private addresses, and nothing is there.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.confined_installation import (
    BLOCKED,
    PATH,
    Cell,
    add_hostile,
    done,
    escalations,
    folder,
    refused,
    use_default_sandbox,
)
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at
from tests.e2e.real_servers import COMMANDS
from tests.e2e.website import Website

pytestmark = [pytest.mark.requirement("C-8", "C-10"), pytest.mark.usefixtures("sandbox")]

CLOSED = f"{BLOCKED}: host closed.example]"


@pytest.fixture(scope="module")
def fetchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """One server with the default sandbox, and one that may reach this machine.

    The second asks each site for its robots.txt, as the server does unless it is told not to, and
    the policy does not look at its URLs: what is known of its calls is the profile alone.
    """
    installation = Installation(tmp_path_factory.mktemp("fetchers"))
    command = COMMANDS["fetch"](installation)
    installation.add_server("bold", command, annotations="bold")
    use_default_sandbox(installation, "bold")
    network: Message = {"allowedDomains": ["localhost"]}
    polite = [word for word in command if word != "--ignore-robots-txt"]
    installation.add_server("polite", polite, annotations="polite", sandbox={"network": network})
    installation.rules = [rule("all", server=["bold", "polite"])]
    installation.variables |= {"PATH": PATH, "SANDBOX_POLICY": "enforce"}
    rest = {name: ["none"] for name in ("max_length", "start_index", "raw")}
    installation.annotations["bold"] = {"fetch": {"url": ["fetch-url"], **rest}}
    installation.annotations["polite"] = {"fetch": {"url": ["none"], **rest}}
    yield installation, installation.start()
    installation.end()


def fetch(agent: RawClient, server: str, url: str) -> Message:
    return agent.call(f"{server}__fetch", {"url": url, "raw": True})


@pytest.mark.requirement("C-12")
def test_the_public_fetch_server_runs_confined_and_by_default_reaches_nothing(
    fetchers: Cell, website: Website
) -> None:
    installation, agent = fetchers
    assert refused(fetch(agent, "bold", website.url)).startswith(f"{BLOCKED}: host localhost]")
    assert installation.outcomes()[-1]["sandboxed"] is True
    assert website.visits == []


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("server", ["bold", "polite"])
def test_a_refusal_that_the_server_hides_is_said_with_its_host(
    fetchers: Cell, server: str, scheme: str
) -> None:
    _, agent = fetchers
    assert refused(fetch(agent, server, f"{scheme}://closed.example/x")).startswith(CLOSED)


def test_a_site_that_refuses_for_itself_is_not_taken_for_the_sandbox(
    fetchers: Cell, website: Website
) -> None:
    _, agent = fetchers
    own = website.url.replace("localhost", "localhost.")
    assert "hello" in done(fetch(agent, "polite", own))
    said = refused(fetch(agent, "polite", f"{own}forbidden"))
    assert "403" in said
    assert BLOCKED not in said
    assert "/forbidden" in website.visits


def test_a_page_is_read_without_installing_anything_first(fetchers: Cell, website: Website) -> None:
    """The server's library would run `npm install` in its own directory at the first page."""
    _, agent = fetchers
    own = website.url.replace("localhost", "localhost.")
    assert "hello" in done(agent.call("polite__fetch", {"url": own}))


def test_an_argument_that_the_server_does_not_take_is_not_taken_for_the_sandbox(
    fetchers: Cell,
) -> None:
    _, agent = fetchers
    given: Message = {"url": "http://closed.example/x", "max_length": -1}
    assert BLOCKED not in refused(agent.call("bold__fetch", given))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_closed_host_that_an_open_site_sent_the_server_to_is_said(
    fetchers: Cell, website: Website, scheme: str
) -> None:
    _, agent = fetchers
    url = website.url.replace("localhost", "localhost.") + f"to/{scheme}://closed.example/x"
    assert refused(fetch(agent, "polite", url)).startswith(CLOSED)
    assert f"/to/{scheme}://closed.example/x" in website.visits


# --- before a person is asked


@pytest.fixture
def asking(installation: Installation) -> tuple[Installation, RawClient, Person]:
    """An installation where a person is asked about every call but those to a denied host."""
    network: Message = {
        "allowedDomains": ["open.example", "*.open.example"],
        "deniedDomains": ["no.open.example"],
    }
    files: Message = {"denyRead": [str(folder(installation, "closed"))]}
    add_hostile(installation, "hostile", sandbox={"network": network, "filesystem": files})
    installation.annotations["hostile"] = {
        "write": {"path": ["write-path"], "text": ["none"]},
        "read": {"path": ["read-path"]},
        "http": {"url": ["fetch-url"]},
    }
    denied: Message = {"roles": ["fetch-url"], "allowed": ["no.open.example"]}
    installation.rules = [
        rule("go", tool=["http"], domains=denied),
        rule("ask", "escalate", "a person must agree"),
    ]
    installation.variables["SANDBOX_POLICY"] = "enforce"
    escalations(installation)
    return installation, installation.start(), Person(installation)


def test_nobody_is_asked_about_what_the_sandbox_would_not_let_the_server_do(
    asking: tuple[Installation, RawClient, Person],
) -> None:
    installation, agent, person = asking
    outside = installation.root / "outside.txt"
    cases: dict[str, tuple[str, Message]] = {
        "sandbox.filesystem.allowWrite": ("write", {"path": str(outside), "text": "x"}),
        "sandbox.filesystem.allowRead": ("read", {"path": str(installation.root / "closed/file")}),
        "reach [::1] (sandbox.network": ("http", {"url": "http://[::1]/x"}),
    }
    for why, (tool, given) in cases.items():
        said = refused(agent.call(tool, given))
        assert why in said
        assert at(installation.outcomes()[-1], "result", "status") == "denied"
    assert person.requests() == []
    assert not outside.exists()


def test_a_person_is_asked_about_what_the_sandbox_lets_the_server_do(
    asking: tuple[Installation, RawClient, Person],
) -> None:
    installation, agent, person = asking
    inside = installation.workspace / "inside.txt"
    call = agent.start_call("write", {"path": str(inside), "text": "x"})
    person.answer({"decision": "approved"})
    done(agent.result(call))
    assert inside.read_text() == "x"
    call = agent.start_call("http", {"url": "http://open.example/x"})
    person.answer({"decision": "approved"})
    assert BLOCKED not in refused(agent.result(call))


def test_a_host_that_the_error_does_not_name_is_known_from_the_call(
    asking: tuple[Installation, RawClient, Person],
) -> None:
    installation, agent, _ = asking
    said = refused(agent.call("http", {"url": "http://no.open.example/x"}))
    assert said.startswith(f"{BLOCKED}: host no.open.example]")
    assert "no.open.example" not in said.partition("]")[2]
    assert at(installation.outcomes()[-1], "result", "status") == "error"
