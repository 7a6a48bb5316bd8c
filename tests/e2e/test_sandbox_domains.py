"""Which hosts a confined server may reach: named, by wildcard, denied, or none.

No host here exists. Whether the sandbox lets a request out shows in what comes back: its own word
that it blocked it, or that the host cannot be found.
"""

import pytest

from tests.e2e.confined_installation import BLOCKED, add_hostile
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, texts

pytestmark = [pytest.mark.requirement("C-8", "C-12"), pytest.mark.usefixtures("sandbox")]


@pytest.fixture
def agent(installation: Installation) -> RawClient:
    network = {
        "allowedDomains": ["*.web.example", "one.example"],
        "deniedDomains": ["secret.web.example"],
    }
    add_hostile(
        installation, "hostile", sandbox={"network": {key: [*v] for key, v in network.items()}}
    )
    installation.variables["SANDBOX_POLICY"] = "enforce"
    return installation.start()


def is_blocked(agent: RawClient, host: str) -> bool:
    answer = agent.call("http", {"url": f"http://{host}/"})
    assert answer.get("isError"), texts(answer)
    return BLOCKED in "\n".join(texts(answer))


def test_a_wildcard_allows_what_lies_below_it_and_nothing_else(agent: RawClient) -> None:
    assert not is_blocked(agent, "a.web.example")
    assert not is_blocked(agent, "b.a.web.example")
    assert not is_blocked(agent, "one.example")
    for host in ("example.com", "two.one.example", "webxexample", "a.web.example.evil.example"):
        assert is_blocked(agent, host), host


def test_a_denied_domain_is_blocked_though_a_wildcard_allows_it(agent: RawClient) -> None:
    assert is_blocked(agent, "secret.web.example")
