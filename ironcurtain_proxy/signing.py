"""Keys of persons: Ed25519 keys as SSH writes them, and passkeys.

    ssh-ed25519 AAAA… comment

The keys of SSH also sign logins and commits, so that nobody needs a new tool to make or to protect
one. A private key lies in a file, or with `ssh-agent`, which may ask for a touch of a device's
button.

A passkey (WebAuthn) signs on the page, with a phone or a security key.

    webauthn https://questions.example.com CREDENTIAL PUBLIC-KEY ada's phone

`reviewers.json` has such a line as the `key` of a person. The browser asks the authenticator to
sign a challenge, which is the SHA-256 of the lines of the answer (`lines_of`): so a signature
is for one answer to one question, as one by a key of SSH is. The page and its database hand it on
and cannot make one. Each signature must come from the page of the line (its origin, and the host
that the key was made for), and from a person whom the authenticator has verified by finger, face or
PIN.

`cryptography` and `webauthn` are extras, and are imported for the first signature alone.
"""

import hashlib
import logging
import os
import re
import socket
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.key_forms import ED25519, KEY_BYTES, is_sound, of_cose, same, ssh_text
from ironcurtain_proxy.model.signing import ReviewerKey, SignedAnswer
from ironcurtain_proxy.model.values import object_of
from ironcurtain_proxy.private_files import held_lock, opened, read_private, write_whole
from ironcurtain_proxy.strict_json import strict_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# --- keys as SSH has them

_log: Final = logging.getLogger(__name__)

PURPOSE: Final = "ironcurtain-answer-2"
AGENT_VARIABLE: Final = "SSH_AUTH_SOCK"
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
        return ssh_text(ED25519) + ssh_text(self.raw)

    @property
    def fingerprint(self) -> str:
        """The key's name, as `ssh-keygen -l` prints it."""
        return name_of(self.blob)

    @property
    def names(self) -> frozenset[str]:
        """The names that revoke it."""
        return frozenset({self.fingerprint})

    @property
    def shared(self) -> bytes:
        """What all public keys of one private key have in common: they differ by a sign."""
        return same(self.raw)


def public_key(line: str) -> PublicKey | None:
    """Return the key of a line such as `ssh-ed25519 AAAA… comment`, or None if it has none.

    A key for which anybody can sign, or nobody, is none.
    """
    kind, _, rest = line.strip().partition(" ")
    try:
        blob = b64decode(rest.partition(" ")[0], validate=True)
    except ValueError:
        return None
    key = PublicKey(blob[-KEY_BYTES:])
    is_one = kind.encode() == ED25519 and blob == key.blob and is_sound(key.raw)
    return key if is_one else None


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
        asked = ssh_text(self.public.blob) + ssh_text(data) + flags
        request = bytes([_SIGN_REQUEST]) + asked
        try:
            reply = _asked(self.socket, request)
        except OSError as error:
            raise ConfigurationError(f"ssh-agent at {self.socket}: {error}") from None
        # A byte, then one text that holds two: the kind and the signature.
        signature = reply[-_SIGNATURE_BYTES:]
        if reply != bytes([_SIGN_RESPONSE]) + ssh_text(ssh_text(ED25519) + ssh_text(signature)):
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
        agent.sendall(ssh_text(request))
        with agent.makefile("rb") as answer:
            size = int.from_bytes(answer.read(4), "big")
            found = answer.read(min(size, _LARGEST))
    if len(found) != size:
        raise OSError("its answer is too long, or ended early")
    return found


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


# --- passkeys


KIND: Final = "webauthn"
_LINE: Final = re.compile(r"webauthn (https?://[^\s/]+) ([\w-]{8,1400}) ([\w-]{40,1400})(?: .*)?")


class Passkey(Struct, frozen=True):
    """The public half of a passkey."""

    origin: str
    """The page that it was made on, such as `https://questions.example.com`."""
    credential: bytes
    """Its number, by which an authenticator finds it."""
    raw: bytes
    """The public key, in COSE."""

    @property
    def fingerprint(self) -> str:
        """Its name in answers, records and lists of revoked keys."""
        return name_of(self.credential)

    @property
    def names(self) -> frozenset[str]:
        """The names that revoke it: also the one that the key itself has in SSH."""
        return frozenset({self.fingerprint, name_of(of_cose(self.raw)[1])})

    @property
    def shared(self) -> bytes:
        """What all public keys of one private key have in common."""
        return of_cose(self.raw)[0]

    @property
    def line(self) -> str:
        """The line of `reviewers.json`."""
        return f"{KIND} {self.origin} {base64_of(self.credential)} {base64_of(self.raw)}"


def name_of(data: bytes) -> str:
    """Return the fingerprint of a key in the encoding of SSH, or of the number of a passkey."""
    return f"SHA256:{b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')}"


def base64_of(data: bytes) -> str:
    """Return bytes in the Base64 of WebAuthn."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def bytes_of(text: object) -> bytes:
    """Return the bytes that a text in the Base64 of WebAuthn stands for.

    Raises:
        ValueError: it is no text, or holds other characters.
    """
    if not isinstance(text, str) or re.fullmatch(r"[\w-]*", text, re.ASCII) is None:
        raise ValueError("no Base64 of WebAuthn")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def passkey(line: str) -> Passkey | None:
    """Return the passkey of a line, or None if it has none."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        return None
    try:
        parts = urlsplit(found[1])
        if parts.scheme != "https" and parts.hostname != "localhost":
            return None
        key = Passkey(found[1], bytes_of(found[2]), bytes_of(found[3]))
        return key if key.shared else None
    except ValueError:
        return None


def challenge_of(answer: SignedAnswer) -> bytes:
    """Return what an authenticator is asked to sign."""
    return hashlib.sha256(lines_of(answer)).digest()


def host_of(origin: str) -> str:
    """Return the host that a passkey of a page is bound to (its `rpId`)."""
    return urlsplit(origin).hostname or ""


def is_signed(key: ReviewerKey, answer: SignedAnswer) -> bool:
    """Return whether an answer bears a signature by this key. Never raises."""
    if not key.origin:
        is_plain = not answer.client and not answer.authenticator
        return is_plain and is_by(key.public, answer.signature, lines_of(answer))
    # An extra, and a tenth of a second at the first answer that needs it.
    from webauthn import verify_authentication_response  # noqa: PLC0415
    from webauthn.helpers.structs import (  # noqa: PLC0415
        AuthenticationCredential,
        AuthenticatorAssertionResponse,
    )

    given = AuthenticatorAssertionResponse(
        client_data_json=answer.client,
        authenticator_data=answer.authenticator,
        signature=answer.signature,
    )
    try:
        said = strict_json(answer.client)
        if not isinstance(said, dict) or said.get("crossOrigin", False) is not False:
            return False
        verify_authentication_response(
            # Its own number is not in the answer: the public key that must fit is.
            credential=AuthenticationCredential(id="", raw_id=b"", response=given),
            expected_challenge=challenge_of(answer),
            expected_rp_id=host_of(key.origin),
            expected_origin=key.origin,
            credential_public_key=key.public,
            # `Counters` compares them: here each answer is looked at again.
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    except Exception:  # noqa: BLE001  a library's errors about a stranger's bytes
        return False
    return True


_MOST_KEPT: Final = 64


class KeptCounter(Struct, frozen=True):
    """The greatest counter of a passkey, and digests of its last signatures."""

    counter: int = 0
    marks: tuple[str, ...] = ()


class Counters:
    """How often each passkey has signed, by the answers that counted here.

    A counter that does not grow shows a copy of the key. Answers to several questions come in any
    order: so a counter must be greater than those seen before its question was asked, and no two
    answers have the same one. What earlier proxies of this machine saw is kept in a file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._before = self._read()
        self._seen: dict[str, list[tuple[datetime, int, str]]] = {}

    def has_grown(self, answer: SignedAnswer, asked: datetime, now: datetime) -> bool:
        """Return whether an answer is no copy's, and note it. Its signature was checked.

        Args:
            answer: the answer.
            asked: when its question was asked.
            now: the present moment, by the same clock.
        """
        mark, count = hashlib.sha256(answer.signature).hexdigest()[:32], answer.counter
        before, seen = self._before.get(answer.key, KeptCounter()), self._seen.get(answer.key, [])
        if mark in before.marks or any(mark == one for _, _, one in seen):
            return True  # a file is looked at again
        least = max([before.counter, *[one for at, one, _ in seen if at <= asked]])
        if (least and count <= least) or (count and any(count == one for _, one, _ in seen)):
            return False
        if count:
            self._seen[answer.key] = [*seen, (now, count, mark)][-_MOST_KEPT:]
            self._keep(answer.key, count, mark)
        return True

    def _read(self) -> dict[str, KeptCounter]:
        try:
            return {} if self._path is None else decode(self._path.read_bytes(), type=_KEPT)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.error("%s cannot be read, so a copied passkey may count: %s", self._path, error)
            return {}

    def _keep(self, key: str, count: int, mark: str) -> None:
        if self._path is None:
            return
        busy = OSError("another proxy holds its lock")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with held_lock(self._path.with_suffix(".lock"), 1.0, busy):
                kept = self._read()
                old = kept.get(key, KeptCounter())
                kept[key] = KeptCounter(max(old.counter, count), (*old.marks, mark)[-_MOST_KEPT:])
                write_whole(self._path, encode(kept), locked=True)
        except OSError as error:
            _log.error("%s cannot be written: %s", self._path, error)


_KEPT: Final = dict[str, KeptCounter]


def asked_of(origin: str, challenge: bytes) -> dict[str, object]:
    """Return what the browser of a page is asked, for a signature or for a new passkey."""
    host = host_of(origin)
    return {
        "challenge": base64_of(challenge),
        "rpId": host,
        "userVerification": "required",
        "rp": {"id": host, "name": "ironcurtain-proxy"},
        "user": {"id": base64_of(os.urandom(16)), "name": host, "displayName": "ironcurtain-proxy"},
        "pubKeyCredParams": [{"type": "public-key", "alg": alg} for alg in (-7, -8, -257)],
        "authenticatorSelection": {"residentKey": "required", "userVerification": "required"},
    }


def assertion(said: Mapping[str, object], answer: SignedAnswer) -> SignedAnswer | None:
    """Return an answer with the signature that a browser gave for it, or None if it gave none."""
    given = {"key": said.get("id"), **object_of(said.get("response"))}
    names = ("key", "authenticatorData", "clientDataJSON", "signature")
    try:
        credential, authenticator, client, signature = [bytes_of(given.get(one)) for one in names]
    except ValueError:
        return None
    return replace(
        answer,
        key=name_of(credential),
        authenticator=authenticator,
        client=client,
        signature=signature,
    )


def made(said: Mapping[str, object], origin: str, challenge: bytes) -> Passkey | None:
    """Return the passkey that a browser has just made for a page, or None.

    Who made it, the answer does not show: an administrator writes its line beside a name.
    """
    from webauthn import verify_registration_response  # noqa: PLC0415  see `is_signed`

    try:
        found = verify_registration_response(
            credential=dict(said),
            expected_challenge=challenge,
            expected_rp_id=host_of(origin),
            expected_origin=origin,
            require_user_verification=True,
        )
    except Exception:  # noqa: BLE001  as above
        return None
    return Passkey(origin, found.credential_id, found.credential_public_key)
