"""Ed25519 keys as SSH writes them: `ssh-ed25519 AAAA… comment`.

The same keys sign logins and commits, so that nobody needs a new tool to make or to protect one. A
private key lies in a file, or with `ssh-agent`, which may ask for a touch of a device's button.

`cryptography` is an extra, and is imported for the first signature alone.
"""

import hashlib
import logging
import os
import socket
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.signing import SignedAnswer
from ironcurtain_proxy.private_files import opened, read_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_log: Final = logging.getLogger(__name__)

PURPOSE: Final = "ironcurtain-answer-2"
AGENT_VARIABLE: Final = "SSH_AUTH_SOCK"
_KIND: Final = b"ssh-ed25519"
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_LARGEST: Final = 16 * 1024
_AGENT_SECONDS: Final = 60.0
"""The time for a person to touch a device."""
_SIGN_REQUEST: Final = 13
_SIGN_RESPONSE: Final = 14


class PublicKey(Struct, frozen=True):
    """A public key."""

    raw: bytes
    """Its 32 bytes."""

    @property
    def blob(self) -> bytes:
        """The key in the encoding of SSH."""
        return _text(_KIND) + _text(self.raw)

    @property
    def fingerprint(self) -> str:
        """The key's name, as `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return f"SHA256:{b64encode(digest).decode().rstrip('=')}"


def public_key(line: str) -> PublicKey | None:
    """Return the key of a line such as `ssh-ed25519 AAAA… comment`, or None if it has none."""
    kind, _, rest = line.strip().partition(" ")
    try:
        blob = b64decode(rest.partition(" ")[0], validate=True)
    except ValueError:
        return None
    key = PublicKey(blob[-_KEY_BYTES:])
    return key if kind.encode() == _KIND and blob == key.blob else None


def lines_of(answer: SignedAnswer) -> bytes:
    """Return the bytes of an answer that are signed.

    ironcurtain-answer-2
    4f0c…          the version of the policy
    9b1d…          the machine
    7db5443e-…     the question
    e3b0…          SHA-256 of the request, as it was shown
    approved
    0              what is remembered, or empty if nothing
    e3b0…          SHA-256 of the note
    """
    said = (
        PURPOSE,
        answer.policy_version,
        answer.machine,
        answer.question,
        answer.digest,
        "approved" if answer.approved else "denied",
        "" if answer.remember is None else str(answer.remember),
        hashlib.sha256(answer.note.encode("utf-8", "replace")).hexdigest(),
    )
    return "\n".join(said).encode("utf-8", "replace")


def is_signed_metadata(public: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether metadata bears a signature by this key. Never raises."""
    return data.startswith(b"{") and is_by(public, signature, data)


def is_by(public: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether a signature of these bytes is by this key of SSH. Never raises."""
    try:
        # An extra, and 12 ms at the start of a session that needs it.
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PublicKey,
        )
    except ImportError:
        _log.error("no signature can be checked: pip install 'ironcurtain-proxy[fleet]'")
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _metadata(data: bytes) -> bytes:
    """Return metadata, which is JSON: no answer is one, so that neither counts as the other."""
    if not data.startswith(b"{"):
        raise ConfigurationError("only metadata of bundles is signed in this way")
    return data


class KeyFile:
    """A private key in a file."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    @property
    def key(self) -> str:
        """The fingerprint of its public key."""
        return self.public.fingerprint

    def sign(self, answer: SignedAnswer) -> bytes:
        """Return the signature of an answer."""
        return self._private.sign(lines_of(answer))

    def sign_metadata(self, data: bytes) -> bytes:
        """Return the signature of a bundle's metadata."""
        return self._private.sign(_metadata(data))


class KeyWithAgent(Struct, frozen=True):
    """A private key that `ssh-agent` holds."""

    public: PublicKey
    socket: Path

    @property
    def key(self) -> str:
        """The fingerprint of its public key."""
        return self.public.fingerprint

    def sign(self, answer: SignedAnswer) -> bytes:
        """Return the signature of an answer.

        Raises:
            ConfigurationError: the agent does not answer, or does not sign with this key.
        """
        return self._sign(lines_of(answer))

    def sign_metadata(self, data: bytes) -> bytes:
        """Return the signature of a bundle's metadata.

        Raises:
            ConfigurationError: as above.
        """
        return self._sign(_metadata(data))

    def _sign(self, data: bytes) -> bytes:
        flags = bytes(4)
        asked = _text(self.public.blob) + _text(data) + flags
        request = bytes([_SIGN_REQUEST]) + asked
        try:
            reply = _asked(self.socket, request)
        except OSError as error:
            raise ConfigurationError(f"ssh-agent at {self.socket}: {error}") from None
        # byte, then one text that holds two: the kind and the signature.
        parts = reply[1:]
        inner = parts[4:]
        signature = inner[-_SIGNATURE_BYTES:]
        whole = _text(_text(_KIND) + _text(signature))
        if not reply or reply[0] != _SIGN_RESPONSE or parts != whole:
            why = f"ssh-agent does not sign with {self.key}: add the key with ssh-add"
            raise ConfigurationError(why)
        return signature


def _asked(path: Path, request: bytes) -> bytes:
    """Return the agent's answer.

    Raises:
        OSError: it is not there, or ends early.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(_AGENT_SECONDS)
        agent.connect(str(path))
        agent.sendall(_text(request))
        size = int.from_bytes(_exactly(agent, 4), "big")
        if size > _LARGEST:
            raise OSError("its answer is too long")
        return _exactly(agent, size)


def _exactly(agent: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = agent.recv(size - len(found))
        if not part:
            raise OSError("it ended early")
        found += part
    return found


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def signer_of(path: Path, environ: Mapping[str, str] = os.environ) -> KeyFile | KeyWithAgent:
    """Return the key that a file names: a private key, or a public one whose agent signs.

    Raises:
        ConfigurationError: it cannot be read or trusted, or is no Ed25519 key of SSH.
    """
    if path.suffix == ".pub":
        return _with_agent(path, environ)
    data = read_private(path, _LARGEST, "key file")
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  see `is_signed`
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PrivateKey,
    )
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: PLC0415

    try:
        found = load_ssh_private_key(data, None)
    except TypeError:
        why = f"{path} has a passphrase: run ssh-add {path}, and give {path}.pub"
        raise ConfigurationError(why) from None
    except (ValueError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, Ed25519PrivateKey):
        why = f"{path} holds no Ed25519 key of SSH: make one with ssh-keygen -t ed25519"
        raise ConfigurationError(why)
    return KeyFile(found)


def read_public_key(path: Path) -> PublicKey:
    """Return the public key in a file.

    Raises:
        ConfigurationError: it holds none.
        OSError: it cannot be read.
    """
    try:
        with opened(path) as file:
            found = public_key(file.read(_LARGEST).decode())
    except ValueError:
        found = None
    if found is None:
        raise ConfigurationError(f"{path} holds no line such as `ssh-ed25519 AAAA…`")
    return found


def _with_agent(path: Path, environ: Mapping[str, str]) -> KeyWithAgent:
    found = read_public_key(path)
    agent = environ.get(AGENT_VARIABLE, "")
    if not agent:
        why = f"{path} is a public key, and no agent runs that signs: set {AGENT_VARIABLE}"
        raise ConfigurationError(why)
    return KeyWithAgent(found, Path(agent))
