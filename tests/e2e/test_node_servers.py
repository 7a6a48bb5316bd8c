"""Servers of Node.js reach the hosts that are open to them, and the sandbox names the others.

Node.js itself heeds no network proxy, and a sandbox has no other network. The host does not exist:
a proxy on this machine, which the sandbox's own goes through, answers for every host.
"""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.confined_installation import PATH, done, use_default_sandbox
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import RawClient, texts
from tests.e2e.real_servers import NODE_22

pytestmark = pytest.mark.usefixtures("sandbox")

SERVER = Path(__file__).parent / "servers" / "reaching.mjs"
WAYS = ("fetch", "library", "agent")
NODES = {"installed": shutil.which("node"), "22": str(NODE_22)}


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """A network proxy that answers every request itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answer_all, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _answer_all(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with suppress(OSError), connection:
        while head := connection.recv(65536):
            if head.startswith(b"CONNECT "):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere")


def started(installation: Installation, node: str, url: str, **network: Json) -> RawClient:
    if not Path(node).exists():
        pytest.skip(f"no {node}")
    for name in ("open", "closed"):
        installation.add_server(name, [node, str(SERVER)], env={"REACHED": url})
        use_default_sandbox(installation, name)
        installation.annotations[name] = {way: {"what": ["none"]} for way in WAYS}
    configured = installation.servers["open"]
    assert isinstance(configured, dict)
    configured["sandbox"] = {"network": network}
    installation.rules.append(rule("all", server=["open", "closed"]))
    installation.variables["PATH"] = PATH
    return installation.start()


@pytest.mark.parametrize("version", NODES)
def test_each_way_of_node_reaches_an_open_host_and_names_a_closed_one(
    installation: Installation, upstream: str, version: str
) -> None:
    installation.variables |= {"HTTP_PROXY": upstream, "http_proxy": upstream}
    node = NODES[version] or pytest.skip("no node")
    agent = started(installation, node, "http://api.one.example/", allowedDomains=["*.one.example"])
    for way in WAYS:
        assert done(agent.call(f"open__{way}", {})) == "here", way
        said = texts(agent.call(f"closed__{way}", {}))
        assert said[0].startswith("[SANDBOX BLOCKED: host api.one.example]"), (way, said)


@pytest.mark.parametrize("version", NODES)
def test_each_way_of_node_goes_by_the_proxy_over_tls_as_well(
    installation: Installation, version: str
) -> None:
    node = NODES[version] or pytest.skip("no node")
    agent = started(installation, node, "https://secure.one.example/")
    for way in WAYS:
        said = texts(agent.call(f"closed__{way}", {}))
        assert said[0].startswith("[SANDBOX BLOCKED: host secure.one.example]"), (way, said)
