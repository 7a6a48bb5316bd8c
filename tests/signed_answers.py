"""Persons with real keys, and what they sign, for tests."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import cbor2
import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from ironcurtain_proxy.mediation.escalated import SignedAnswers
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.signing import (
    CallRisk,
    Quorum,
    ReviewerKey,
    Signatories,
    SignatureNeed,
    SignedAnswer,
)
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.signing import (
    Counters,
    KeyFile,
    Passkey,
    assertion,
    base64_of,
    bytes_of,
    challenge_of,
    is_signed,
)

MACHINE = "a" * 32
DIGEST = "d" * 64


@dataclass
class Team:
    """The persons of `reviewers.json`, each with a key, as they are at this moment."""

    clock: Clock
    quorum: int = 0
    requesters: frozenset[str] = frozenset({"root"})
    keys: dict[str, KeyFile] = field(default_factory=dict)
    known: dict[str, ReviewerKey] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    counters: Path | None = None

    def add(  # noqa: PLR0913  the columns of the file
        self,
        name: str,
        *,
        person: str = "",
        risk: CallRisk = "critical",
        servers: frozenset[str] | None = None,
        paths: tuple[RealPath, ...] | None = None,
        roles: frozenset[str] = frozenset(),
        accounts: frozenset[str] = frozenset(),
        until: datetime | None = None,
    ) -> KeyFile:
        key = self.keys[name] = KeyFile(Ed25519PrivateKey.generate())
        self.known[key.key] = ReviewerKey(
            id=key.key,
            public=key.public.raw,
            person=person or name,
            risk=risk,
            servers=servers,
            paths=paths,
            roles=roles,
            accounts=accounts,
            until=until,
        )
        return key

    def add_passkey(self, name: str) -> "SoftPasskey":
        made = SoftPasskey()
        self.known[made.passkey.fingerprint] = ReviewerKey(
            id=made.passkey.fingerprint,
            public=made.passkey.raw,
            origin=made.passkey.origin,
            person=name,
            risk="critical",
        )
        return made

    def now(self) -> Signatories:
        revoked = frozenset(self.revoked)
        return Signatories(keys=dict(self.known), revoked=revoked, quorum=self.quorum)

    def judge(self) -> SignedAnswers:
        return SignedAnswers(
            clock=self.clock,
            signatories=self.now,
            verify=is_signed,
            has_grown=Counters(self.counters).has_grown,
            machine=MACHINE,
            requesters=self.requesters,
        )


ORIGIN = "https://questions.example.com"


class SoftPasskey:
    """An authenticator without a device."""

    def __init__(self, origin: str = ORIGIN) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        point = self.private.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
        self.passkey = Passkey(origin, os.urandom(16), cbor2.dumps(cose))
        self.counter = 0

    def asserts(
        self, challenge: bytes, *, host: str = "", flags: int = 0x05, **said: object
    ) -> dict[str, str]:
        """What a browser gives: the answer of `navigator.credentials.get`."""
        self.counter += 1
        host = host or urlsplit(self.passkey.origin).hostname or ""
        data = sha256(host.encode()).digest() + bytes([flags]) + self.counter.to_bytes(4)
        told = {"type": "webauthn.get", "challenge": base64_of(challenge), "crossOrigin": False}
        client = orjson.dumps({**told, "origin": self.passkey.origin, **said})
        signature = self.private.sign(data + sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        parts = {"authenticatorData": data, "clientDataJSON": client, "signature": signature}
        return {name: base64_of(one) for name, one in parts.items()}

    def asserts_text(self, challenge: str) -> dict[str, object]:
        """What a page sends for the challenge that it was given."""
        response = self.asserts(bytes_of(challenge))
        return {"id": base64_of(self.passkey.credential), "response": response}

    def signs(
        self,
        answer: SignedAnswer,
        challenge: bytes = b"",
        host: str = "",
        flags: int = 0x05,
        **said: object,
    ) -> SignedAnswer:
        asked = challenge or challenge_of(answer)
        response = self.asserts(asked, host=host, flags=flags, **said)
        credential = base64_of(self.passkey.credential)
        found = assertion({"id": credential, "response": response}, answer)
        assert found is not None
        return found


def needing(count: int, *roles: str, risk: CallRisk = "low") -> SignatureNeed:
    return SignatureNeed(quorums=(Quorum(count, frozenset(roles)),), risk=risk, machine=MACHINE)


def signed(
    key: KeyFile,
    question: Escalation,
    change: Callable[[SignedAnswer], SignedAnswer] = lambda answer: answer,
    *,
    approved: bool = True,
    digest: str = DIGEST,
) -> SignedAnswer:
    """What a person signs; `change` is made before."""
    answer = SignedAnswer(
        key=key.key,
        approved=approved,
        policy_version=question.policy_version,
        machine=MACHINE,
        question=question.id,
        digest=digest,
    )
    answer = change(answer)
    return replace(answer, signature=key.sign(answer))
