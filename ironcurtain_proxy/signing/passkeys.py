"""Passkeys: answers that a person signs on the page, with a phone or a security key (WebAuthn).

    webauthn https://questions.example.com CREDENTIAL PUBLIC-KEY ada's phone

`reviewers.json` has such a line as the `key` of a person. The browser asks the authenticator to
sign a challenge, which is the SHA-256 of the lines of the answer (`keys.lines_of`): so a signature
is for one answer to one question, as one by a key of SSH is. The page and its database hand it on
and cannot make one. Each signature must come from the page of the line (its origin, and the host
that the key was made for), and from a person whom the authenticator has verified by finger, face or
PIN.

`webauthn` is an extra, and is imported for the first such signature alone.
"""

import hashlib
import logging
import os
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from ironcurtain_proxy.model.signing import ReviewerKey, SignedAnswer
from ironcurtain_proxy.model.values import object_of
from ironcurtain_proxy.private_files import held_lock, write_whole
from ironcurtain_proxy.signing.keys import is_by, lines_of
from ironcurtain_proxy.strict_json import strict_json

_log: Final = logging.getLogger(__name__)

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
    def line(self) -> str:
        """The line of `reviewers.json`."""
        return f"{KIND} {self.origin} {base64_of(self.credential)} {base64_of(self.raw)}"


def name_of(credential: bytes) -> str:
    """Return the name of a passkey by its number, in the form of a key's fingerprint."""
    return f"SHA256:{b64encode(hashlib.sha256(credential).digest()).decode().rstrip('=')}"


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
        return Passkey(found[1], bytes_of(found[2]), bytes_of(found[3]))
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
