"""Servers over https: the certificate is the name's, and of a trusted authority."""

import datetime
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ironcurtain_proxy.downstream.remote.network import GuardedTransport, open_client
from ironcurtain_proxy.downstream.servers import DownstreamServers
from ironcurtain_proxy.errors import DownstreamError
from ironcurtain_proxy.model.server import RemoteEndpoint
from tests.downstream.remote.site import Site, remote, serving
from tests.downstream.scripted_servers import running, text_of
from tests.program import PATIENCE

pytestmark = pytest.mark.anyio

BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
FAR = datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC)


def a_certificate(path: Path, name: str, until: datetime.datetime = FAR) -> Path:
    """A file with a certificate of its own authority for a name, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = path / f"{name}.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


@asynccontextmanager
async def using(site: Site) -> AsyncIterator[DownstreamServers]:
    spec = remote(f"https://localhost:{site.port}/mcp")
    async with running(spec) as servers:
        yield servers


async def test_a_server_with_the_certificate_of_its_name_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = a_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with serving(Site(), file) as site:
        async with using(site) as servers:
            assert await text_of(servers, "echo") == "done"


async def test_an_answer_from_before_tls_is_not_taken_for_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Attack: a proxy on the way adds an answer of its own to its word that the way is open.
    file = a_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(file)
    forged, own = b"HTTP/1.1 200 OK\r\n\r\nforged", b"from the server"

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        plain.settimeout(PATIENCE)
        plain.sendall(forged)
        with suppress(OSError), theirs.wrap_socket(plain, server_side=True) as secured:
            secured.sendall(own)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"https://localhost:{listener.getsockname()[1]}/mcp"
        async with open_client(GuardedTransport("one", RemoteEndpoint(url=url))) as client:
            with pytest.raises(httpx2.TransportError):
                await client.get(url)
        await anyio.to_thread.run_sync(thread.join)


@pytest.mark.parametrize("fault", ["unknown authority", "other name", "ended"])
async def test_a_server_with_another_certificate_hears_nothing(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "elsewhere.example" if fault == "other name" else "localhost"
    until = BEGIN + datetime.timedelta(days=1) if fault == "ended" else FAR
    file = a_certificate(tmp_path, name, until)
    if fault != "unknown authority":
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with serving(Site(), file) as site:
        async with using(site) as servers:
            with pytest.raises(DownstreamError):
                await text_of(servers, "echo")
        assert site.heard == []
