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
import os
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.signing import ReviewerKey, SignedAnswer
from ironcurtain_proxy.signing.keys import is_by, lines_of
from ironcurtain_proxy.strict_json import strict_json

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
        return f"{KIND} {self.origin} {text_of(self.credential)} {text_of(self.raw)}"


def name_of(credential: bytes) -> str:
    """Return the name of a passkey by its number, in the form of a key's fingerprint."""
    return f"SHA256:{b64encode(hashlib.sha256(credential).digest()).decode().rstrip('=')}"


def text_of(data: bytes) -> str:
    """Return bytes in the Base64 of WebAuthn."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def bytes_of(text: object) -> bytes:
    """Return the bytes of such a text.

    Raises:
        ValueError: it is none.
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
            # `mediation.signatures` compares counters: here each answer is looked at again.
            credential_current_sign_count=0,
            require_user_verification=True,
        )
    except Exception:  # noqa: BLE001  a library's errors about a stranger's bytes
        return False
    return True


def asked_of(origin: str, challenge: bytes) -> dict[str, object]:
    """Return what the browser of a page is asked, for a signature or for a new passkey."""
    host = host_of(origin)
    return {
        "challenge": text_of(challenge),
        "rpId": host,
        "userVerification": "required",
        "rp": {"id": host, "name": "ironcurtain-proxy"},
        "user": {"id": text_of(os.urandom(16)), "name": host, "displayName": "ironcurtain-proxy"},
        "pubKeyCredParams": [{"type": "public-key", "alg": alg} for alg in (-7, -8, -257)],
        "authenticatorSelection": {"residentKey": "required", "userVerification": "required"},
    }


def assertion(said: Mapping[str, object], answer: SignedAnswer) -> SignedAnswer | None:
    """Return an answer with the signature that a browser gave for it, or None if it gave none."""
    response = said.get("response")
    given = {"key": said.get("id"), **(response if isinstance(response, dict) else {})}
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
