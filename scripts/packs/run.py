"""Run popular servers in the real sandbox, and write what works into a file and a document.

    scripts/packs/run.py --scratch DIR [NAME …]     install, run, write results.json
    scripts/packs/table.py                          write the end of docs/servers.md from it

Each server of `cases.json` is installed below DIR as `fetch.py` does, and started twice behind a
proxy of ours: in the sandbox that it gets by default, with what its pack says that it needs, and
without a sandbox. In both it makes up to three calls: one that reads, one that reaches a host, and
one that writes. Every host is answered by a network proxy on this machine, with certificates of its
own: tokens have no worth, so most services would refuse them, and what counts is that the request
arrives. A call works if it does in the sandbox what it does without.
"""

import argparse
import datetime
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import fetch  # noqa: E402  the installer beside this script

from ironcurtain_proxy.config.servers.recognition import needs_of  # noqa: E402
from ironcurtain_proxy.model.values import Json  # noqa: E402
from ironcurtain_proxy.sandbox.launch import NODE_PROXY  # noqa: E402
from ironcurtain_proxy.sandbox.wanted import opened_for  # noqa: E402
from tests.e2e.confined_installation import PATH, known_sandbox  # noqa: E402
from tests.e2e.installation import Installation, rule  # noqa: E402
from tests.e2e.raw_client import RawClient, texts  # noqa: E402

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results.json"
CASES: Final = HERE / "cases.json"
KINDS: Final = ("read", "reach", "write")
_START: Final = 60.0
_SITE: Final = "example.com"
"""The host that answers with a page, and not as an API does."""
_PAGE: Final = "<html><body><article><h1>Hello</h1><p>A page of words.</p></article></body></html>"


class Internet:
    """A network proxy that answers for every host, and remembers which were asked."""

    def __init__(self, directory: Path) -> None:
        self.hosts: list[str] = []
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test of packs")])
        self._certificate = self._signed(self._name, None)
        self.authority = directory / "authority.pem"
        self.authority.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _signed(self, subject: x509.Name, host: str | None) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)  # noqa: TID251  a script has no clock of its own
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        )
        if host is not None:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            made = made.add_extension(names, critical=False)
        return made.sign(self._key, hashes.SHA256())

    def _context(self, host: str) -> ssl.SSLContext:
        file = self._directory / f"{host}.pem"
        if not file.exists():
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
            key = self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            signed = self._signed(subject, host).public_bytes(serialization.Encoding.PEM)
            file.write_bytes(key + signed)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection:
            connection.settimeout(60)
            head = connection.recv(65536)
            found = re.match(rb"([A-Z]+) (?:http://)?([^:/ ]+)", head)
            host = "" if found is None else found[2].decode()
            self.hosts.append(host)
            if not head.startswith(b"CONNECT "):
                self._answer(connection, host)
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            with self._context(host).wrap_socket(connection, server_side=True) as secure:
                while secure.recv(65536):
                    self._answer(secure, host)

    @staticmethod
    def _answer(connection: socket.socket, host: str) -> None:
        # What reads pages does more with one than with JSON: one library ran `npm install` first.
        kind, body = ("text/html", _PAGE) if host == _SITE else ("application/json", "{}")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())


def main() -> int:
    """Run the named servers, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    results = orjson.loads(RESULTS.read_bytes()) if RESULTS.exists() else {}
    cases, servers = orjson.loads(CASES.read_bytes()), _servers()
    with tempfile.TemporaryDirectory(prefix="packs-") as place:
        internet = Internet(Path(place))
        for name in options.names or sorted(cases):
            try:
                results[name] = run(name, cases[name], servers, options.scratch / name, internet)
            except Exception as error:  # noqa: BLE001  the next one is run all the same
                results[name] = {"start": f"not run: {str(error)[:200]}"}
            sys.stdout.write(f"{name}: {orjson.dumps(results[name]).decode()[:400]}\n")
            sys.stdout.flush()
            data = orjson.dumps(
                results,
                option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE,
            )
            RESULTS.write_bytes(data)
    return 0


def _servers() -> dict[str, dict[str, Json]]:
    found: dict[str, dict[str, Json]] = orjson.loads((HERE / "servers.json").read_bytes())
    return found


def run(
    name: str,
    case: Mapping[str, Json],
    servers: Mapping[str, dict[str, Json]],
    scratch: Path,
    internet: Internet,
) -> dict[str, Json]:
    """What one server does in its sandbox and without."""
    given = case.get("install") or servers[name]
    assert isinstance(given, dict)  # noqa: S101
    server: dict[str, Json] = {**given, **({"args": case["args"]} if "args" in case else {})}
    scratch.mkdir(parents=True, exist_ok=True)
    install = fetch.from_npm if "npm" in server else fetch.from_pypi
    command, version = install(server, scratch)
    found: dict[str, Json] = {"package": _package(server), "version": version}
    inside = _calls(name, case, server, command, internet, is_confined=True)
    outside = _calls(name, case, server, command, internet, is_confined=False)
    for kind in ("start", *KINDS):
        if kind in inside:
            said = _verdict(kind, inside[kind], outside.get(kind, ("", False, ())))
            found[kind] = said.replace(str(scratch), "@scratch")
    return found


def _package(server: Mapping[str, Json]) -> str:
    return f"npm:{server['npm']}" if "npm" in server else f"pypi:{server['pypi']}"


Answer = tuple[str, bool, tuple[str, ...]]
"""The text of a call, whether it failed, and the hosts that were reached."""


def _verdict(kind: str, inside: Answer, outside: Answer) -> str:
    text, failed, hosts = inside
    if kind == "reach" and not failed and not hosts:
        # Some servers tell an error as if it were an answer.
        return "as without a sandbox"
    reached = f" (reaches {', '.join(hosts)})" if hosts else ""
    if not failed:
        return f"works{reached}"
    if outside[1] and (_plain(text) == _plain(outside[0]) or hosts == outside[2] != ()):
        return f"as without a sandbox{reached}"
    return f"differs: {text[:160]!r} without: {outside[0][:100]!r}"


def _plain(text: str) -> str:
    text = re.sub(r"/\S+|[0-9a-f]{8,}|\d+", "#", text.replace("[SANDBOX BLOCKED", "").lower())
    return " ".join(text.split())[:120]


@contextmanager
def _installation() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="packs-run-", dir="/var/tmp") as place:
        installation = Installation(Path(place))
        try:
            yield installation
        finally:
            with suppress(AssertionError):
                installation.end()


def _calls(
    name: str,
    case: Mapping[str, Json],
    server: Mapping[str, Json],
    command: list[str],
    internet: Internet,
    *,
    is_confined: bool,
) -> dict[str, Answer]:
    with _installation() as installation:
        fill = _filler(installation)
        env = fill(server.get("env", {}))
        assert isinstance(env, dict)  # noqa: S101
        words = [*command, *[str(one) for one in fill(server.get("args", [])) or []]]  # type: ignore[union-attr]
        for file, content in dict(case.get("files") or {}).items():  # type: ignore[arg-type]
            place = installation.workspace / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(str(content))
        if case.get("repository"):
            git = shutil.which("git") or "git"
            subprocess.run([git, "init", "-q", str(installation.workspace)], check=True)
        if case.get("directory") == "workspace":
            installation.add_server(name, words, env=env, cwd="@workspace")
        else:
            installation.add_server(name, words, env=env)
        entry = installation.servers[name]
        assert isinstance(entry, dict)  # noqa: S101
        if is_confined:
            del entry["sandbox"]
            hosts = [*needs_of(name).hosts, *[str(one) for one in case.get("hosts") or []]]  # type: ignore[union-attr]
            installation.servers[name] = opened_for(entry, hosts=hosts)
            installation.known_sandbox = known_sandbox()
        else:
            entry["env"] = {
                "NODE_OPTIONS": f"--require={NODE_PROXY}",
                "NODE_USE_ENV_PROXY": "1",
                **env,
            }
        planned = {kind: case[kind] for kind in KINDS if kind in case}
        installation.annotations[name] = {
            str(tool): {key: ["none"] for key in arguments}
            for tool, arguments in planned.values()  # type: ignore[misc]
        }
        installation.rules.append(rule("all", server=[name]))
        installation.variables |= {
            "PATH": PATH,
            "HTTP_PROXY": internet.url,
            "HTTPS_PROXY": internet.url,
            "http_proxy": internet.url,
            "https_proxy": internet.url,
            "NODE_EXTRA_CA_CERTS": str(internet.authority),
            "SSL_CERT_FILE": str(internet.authority),
            "REQUESTS_CA_BUNDLE": str(internet.authority),
            "SANDBOX_POLICY": "enforce",
        }
        agent = installation.start()
        return dict(_answers(agent, installation, planned, internet, fill))


def _filler(installation: Installation):  # type: ignore[no-untyped-def]  # noqa: ANN202
    places = {
        "@workspace": str(installation.workspace),
        "@vault": str(installation.workspace),
        "@scratch": str(installation.workspace),
    }

    def fill(value: Json) -> Json:
        match value:
            case str():
                for word, place in places.items():
                    value = value.replace(word, place)
                return value
            case list():
                return [fill(one) for one in value]
            case dict():
                return {key: fill(one) for key, one in value.items()}
            case _:
                return value

    return fill


def _answers(agent: RawClient, installation: Installation, planned, internet, fill):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    end = time.monotonic() + _START
    while not (started := bool(agent.tool_names())) and time.monotonic() < end:
        time.sleep(1)
    words = "" if started else _words(installation)
    yield "start", (words, not started, ())
    if not started:
        return
    for kind, (tool, arguments) in planned.items():
        before = len(internet.hosts)
        try:
            answer = agent.call(tool, fill(arguments))
            text, failed = "\n".join(texts(answer)), bool(answer.get("isError"))
            failed = failed or "error" in text[:60].lower()
        except Exception as error:  # noqa: BLE001  an answer that is an error of the protocol
            text, failed = str(error), True
        hosts = tuple(sorted({*internet.hosts[before:]}))
        yield kind, (text, failed, hosts)


def _words(installation: Installation) -> str:
    log = installation.session_log
    # Whole lines: two runs are compared by their words, and their numbers differ in length.
    return log.read_text(errors="replace")[-600:].partition("\n")[2] if log.exists() else ""


if __name__ == "__main__":
    if shutil.which("node") is None:
        raise SystemExit("node is not installed")
    raise SystemExit(main())
