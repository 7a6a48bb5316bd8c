"""A running proxy on a machine of a fleet, and bundles over a real HTTPS server."""

import functools
import http.server
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
import pytest

import ironcurtain_proxy.bundle.update as bundle_update
from ironcurtain_proxy.bundle.contents import BundleError
from tests import program
from tests.bundle.fleet import FIRST, Fleet, key
from tests.downstream.remote.test_tls import a_certificate
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import RawClient
from tests.program import PATIENCE, ROOT

STOP = {**FIRST, "revoked.json": '{"principals": ["*"], "reason": "An incident"}'}
ENROLLED = [sys.executable, "-m", "tests.bundle.enrolled"]


@pytest.fixture
def machine(tmp_path: Path, fleet: Fleet) -> Iterator[Installation]:
    made = Installation(tmp_path / "machine")
    made.command = ENROLLED
    made.variables = {"ENROLLED_IN": str(fleet.managed), "PYTHONPATH": str(ROOT)}
    made.add_scripted()
    made.allow_scripted()
    fleet.update()
    yield made
    made.end()


def refused(client: RawClient) -> str:
    """Call until a call is refused: a running proxy looks for a change twice a second."""
    for number in range(200):
        answer = client.call("echo", {"text": f"{number}"})
        if answer.get("isError"):
            return str(answer["content"])
        client.wait(0.05)
    raise AssertionError("nothing was refused")


def test_a_stop_of_all_reaches_a_running_proxy_and_the_call_that_waits(
    machine: Installation, fleet: Fleet
) -> None:
    client = machine.start(ESCALATION_DIR=str(machine.root / "questions"))
    assert not client.call("echo", {"text": "x"}).get("isError")
    waiting = client.start_call("ask", {})
    fleet.publish(STOP)
    fleet.update()
    assert "All agents of the fleet are stopped: An incident" in str(client.result(waiting))
    assert "All agents of the fleet are stopped: An incident" in refused(client)
    assert machine.last_decision() == ("deny", "managed:stopped")
    fleet.publish(FIRST)
    fleet.update()
    for number in range(200):
        if not client.call("echo", {"text": f"again {number}"}).get("isError"):
            return
        client.wait(0.05)
    raise AssertionError("the proxy stays stopped")


@pytest.mark.parametrize("way", ["broken", "gone", "off"])
def test_no_file_of_the_user_keeps_a_stop_away(
    machine: Installation, fleet: Fleet, way: str
) -> None:
    if way == "off":
        (machine.home / ".ironcurtain").mkdir(mode=0o700)
        config = machine.root / "config.json"
        config.write_text('{"policy": {"reload": false}}')
        machine.variables["IRONCURTAIN_CONFIG"] = str(config)
    client = machine.start()
    assert not client.call("echo", {"text": "x"}).get("isError")
    policy = machine.generated / "compiled-policy.json"
    if way == "broken":
        policy.write_text("{")
    elif way == "gone":
        policy.unlink()
    fleet.publish(STOP)
    fleet.update()
    assert "All agents of the fleet are stopped" in refused(client)


def test_a_running_proxy_asks_once_its_bundle_has_expired(
    machine: Installation, fleet: Fleet
) -> None:
    machine.variables["ESCALATION_TIMEOUT_SECONDS"] = "1"
    client = machine.start()
    assert not client.call("echo", {"text": "x"}).get("isError")
    fleet.expire()
    refused(client)
    assert machine.outcomes()[-1]["policyDecision"]["rule"] == "managed:bundle-expired"  # type: ignore[index,call-overload]


def test_a_key_that_the_fleet_revokes_does_not_approve_at_a_running_proxy(
    machine: Installation, fleet: Fleet
) -> None:
    """Its person is named by the administrator of the machine, and not by the bundle."""
    person = Person(machine)
    ada = key().public
    line = "ssh-ed25519 " + b64encode(ada.blob).decode()
    reviewers = {"reviewers": [{"person": "ada", "key": line, "risk": "critical"}]}
    (fleet.managed / "reviewers.json").write_bytes(orjson.dumps(reviewers))
    client = machine.start(ESCALATION_DIR=str(person.directory))
    call = client.start_call("ask", {})
    person.until_asked()
    revoked = {"keys": [ada.fingerprint], "principals": ["somebody-else"]}
    fleet.publish({**FIRST, "revoked.json": orjson.dumps(revoked).decode()})
    fleet.update()
    client.result(call)
    assert "names 0 who may approve" in str(machine.outcomes()[-1])


def test_a_machine_whose_bundle_is_gone_does_not_serve(machine: Installation, fleet: Fleet) -> None:
    (fleet.managed / "bundle/current.json").unlink()
    client = machine.launch()
    assert client.process.wait(PATIENCE) == 2
    assert "this machine is enrolled for a bundle: run" in client.errors.read_text()


# --- over the network -----------------------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    date = ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.date or super().date_time_string(timestamp)


@contextmanager
def served(directory: Path, certificate: Path, date: str = "") -> Iterator[str]:
    handler = type("Handler", (_Quiet,), {"date": date})
    make = functools.partial(handler, directory=str(directory))
    with tls(http.server.ThreadingHTTPServer(("localhost", 0), make), certificate) as port:
        yield f"https://localhost:{port}/"


@contextmanager
def tls(
    server: socketserver.ThreadingTCPServer | http.server.ThreadingHTTPServer, certificate: Path
) -> Iterator[int]:
    # A client that leaves within the handshake may keep its end open, and holds its own thread up.
    server.daemon_threads = True
    with server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


_HOSTS: list[tuple[str, bytes]] = [
    ("too slowly", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"),
    ("too slowly", b"HTTP/1.1 200 OK\r\nX: "),
    ("not https", b"HTTP/1.1 302 Found\r\nLocation: http://localhost:1/\r\n\r\n"),
    ("other places", b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
]


@pytest.mark.parametrize(("why", "answer"), _HOSTS)
def test_a_host_that_sends_a_byte_at_a_time_or_leads_away_holds_no_update_up(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, answer: bytes
) -> None:
    certificate = a_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    if "slow" in why:
        monkeypatch.setattr(bundle_update, "_ALL_SECONDS", 0.3)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(4096)
                self.request.sendall(answer)
                while "slow" in why:
                    self.request.sendall(b"x")
                    time.sleep(0.02)

    with tls(socketserver.ThreadingTCPServer(("localhost", 0), Handler), certificate) as port:
        fleet.enrol(f"https://localhost:{port}/")
        with pytest.raises(BundleError, match=why):
            fleet.update()


def bundle(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return program.run([*program.PROXY, "bundle", *arguments], {"PATH": "/usr/bin", **variables})


def test_a_bundle_comes_over_https_from_a_host_with_a_certificate(
    fleet: Fleet, tmp_path: Path
) -> None:
    certificate = a_certificate(tmp_path, "localhost")
    with served(fleet.directory, certificate) as address:
        fleet.enrol(address)
        place = ("update", "--managed", str(fleet.managed))
        strange = bundle(*place)
        assert strange.returncode == 1
        assert "cannot be reached" in strange.stderr
        done = bundle(*place, "--json", SSL_CERT_FILE=str(certificate))
        assert done.returncode == 0, done.stderr
        assert orjson.loads(done.stdout)["version"] == 1
    shown = bundle("show", "--managed", str(fleet.managed))
    assert "version 1, its time signed" in shown.stdout
    assert "  maximum.yaml" in shown.stdout


@pytest.mark.parametrize("year", ["2019", "2099"])
def test_a_host_with_another_time_than_the_machine_is_not_believed(
    fleet: Fleet, tmp_path: Path, year: str
) -> None:
    certificate = a_certificate(tmp_path, "localhost")
    date = f"Fri, 01 Nov {year} 10:00:00 GMT"
    with served(fleet.directory, certificate, date) as address:
        fleet.enrol(address)
        done = bundle("update", "--managed", str(fleet.managed), SSL_CERT_FILE=str(certificate))
    assert done.returncode == 1
    assert "this machine's clock is" in done.stderr
    assert "minutes behind" in done.stderr or "minutes ahead of" in done.stderr


# --- what a start does not pay --------------------------------------------------------------------

_LOADED = """
import sys
from tests.bundle.enrolled import main, find_managed, managed_paths
from pathlib import Path
import os
place = Path(os.environ["ENROLLED_IN"])
find_managed.__defaults__ = (place, os.geteuid())
managed_paths.__defaults__ = (place,)
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
import ironcurtain_proxy.cli.serve, ironcurtain_proxy.wiring.serving
loaded = load_policy(load_settings(dict(os.environ)))
assert loaded.bundle.current.version == 1
print(sorted({one.partition(".")[0] for one in sys.modules}))
print("ironcurtain_proxy.bundle" in sys.modules)
"""


def test_serve_imports_no_library_of_the_update(fleet: Fleet, tmp_path: Path) -> None:
    fleet.update()
    variables = {
        "PATH": "/usr/bin",
        "HOME": str(tmp_path),
        "ENROLLED_IN": str(fleet.managed),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], env=variables, capture_output=True, text=True, check=True
    )
    names, is_bundle = done.stdout.splitlines()
    for library in ("tuf", "securesystemslib", "urllib3", "cryptography"):
        assert f"'{library}'" not in names
    assert is_bundle == "False"
