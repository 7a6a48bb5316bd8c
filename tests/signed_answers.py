"""Persons with real keys, and what they sign, for tests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from ironcurtain_proxy.mediation.signatures import SignedAnswers
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
from ironcurtain_proxy.signing.keys import KeyFile, is_signed

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

    def now(self) -> Signatories:
        revoked = frozenset(self.revoked)
        return Signatories(keys=dict(self.known), revoked=revoked, quorum=self.quorum)

    def judge(self) -> SignedAnswers:
        return SignedAnswers(
            clock=self.clock,
            signatories=self.now,
            verify=is_signed,
            machine=MACHINE,
            requesters=self.requesters,
        )


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
