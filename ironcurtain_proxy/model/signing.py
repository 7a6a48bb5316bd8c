"""Answers that their authors sign, and who may sign which.

A person signs an answer with a key that `reviewers.json` lists. The proxy believes the key, and
nothing else: not the directory, the database or the page that brought the answer.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.grant import SandboxOpening
from ironcurtain_proxy.model.request import AccessRequest, effect_word
from ironcurtain_proxy.model.values import RealPath

CallRisk: TypeAlias = Literal["low", "medium", "high", "critical"]
"""The harm that a wrong approval of a call could do."""
RISKS: Final[tuple[CallRisk, ...]] = get_args(CallRisk)

_BY_EFFECT: Final[Mapping[str, CallRisk]] = MappingProxyType(
    {"reads": "low", "writes": "medium", "sends": "high", "runs": "high"}
)


def risk_of(
    request: AccessRequest, opening: SandboxOpening | None, *, has_secret: bool
) -> CallRisk:
    """Return the risk of a call. One of which nothing is known is critical, as a deletion is.

    Args:
        request: what the call names.
        opening: the access beyond the sandbox that an approval opens.
        has_secret: whether a secret would leave, or the question covers several calls.
    """
    risk = "critical" if has_secret else _BY_EFFECT.get(effect_word(request), "critical")
    return "high" if opening is not None and RISKS.index(risk) < RISKS.index("high") else risk


class Quorum(Struct, frozen=True):
    """A number of different persons who must sign an approval."""

    count: int
    """0: a person must answer, who need not sign. No program, model or earlier approval does."""
    roles: frozenset[str] = frozenset()
    """Roles of which each of them must have one, or empty if none is needed."""

    def __str__(self) -> str:
        """Return the quorum in words, such as `2 signatures of security`."""
        words = {0: "a person", 1: "1 signature"}.get(self.count, f"{self.count} signatures")
        return f"{words} of {' or '.join(sorted(self.roles))}" if self.roles else words


class SignatureNeed(Struct, frozen=True, kw_only=True):
    """The reason why only signed answers approve a question."""

    quorums: tuple[Quorum, ...]
    """All of them must be reached."""
    risk: CallRisk
    machine: str
    """The machine that asks, in hexadecimal."""

    def __str__(self) -> str:
        """Return the need in words."""
        return " and ".join(dict.fromkeys([str(one) for one in self.quorums]))

    @property
    def excludes_requester(self) -> bool:
        """Whether the person whose agent asks may not approve: with one signature, they may."""
        return any(one.count > 1 for one in self.quorums)


class SignedAnswer(Struct, frozen=True, kw_only=True):
    """An answer as its author signed it. Nothing in it is believed before the signature."""

    key: str
    """The fingerprint of the key, such as `SHA256:…`, as `ssh-keygen -l` prints it."""
    approved: bool
    policy_version: str
    machine: str
    question: str
    digest: str
    """SHA-256 of the request's bytes, in hexadecimal."""
    remember: int | None = None
    note: str = ""
    signature: bytes = b""
    authenticator: bytes = b""
    client: bytes = b""
    """By a passkey: what the authenticator and the browser say of themselves, which is signed."""

    @property
    def counter(self) -> int:
        """How often the authenticator has signed, or 0 if it does not count."""
        return int.from_bytes(self.authenticator[33:37], "big")


class ReviewerKey(Struct, frozen=True, kw_only=True):
    """One key of a person, and the questions that it may approve."""

    id: str
    """Its fingerprint."""
    names: frozenset[str] = frozenset()
    """Further fingerprints that revoke it: a passkey's number has one, and its key another."""
    public: bytes
    """The 32 bytes of an Ed25519 key, or a passkey's in COSE."""
    origin: str = ""
    """The page that a passkey signs on, or empty if it is no passkey."""
    person: str
    risk: CallRisk
    """The greatest risk that it may approve."""
    servers: frozenset[str] | None = None
    """The servers whose calls it may approve; `None` means all."""
    paths: tuple[RealPath, ...] | None = None
    """The directories that all paths of the call must lie in; `None` means all."""
    roles: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    """Further names of the person: users of machines, and names of agents' tokens."""
    until: datetime | None = None
    """Aware, UTC; the key does not count from then on. `None` means no end."""

    @property
    def identity(self) -> str:
        """The person, whatever the case of the name: `Ada` and `ada` are one."""
        return folded(self.person)


def folded(name: str) -> str:
    """Return a name as it is compared: the same letter may be one character or two."""
    return normalize("NFKC", name).casefold()


class Signatories(Struct, frozen=True, kw_only=True):
    """The content of `reviewers.json`."""

    keys: Mapping[str, ReviewerKey]
    """Each key by its fingerprint."""
    revoked: frozenset[str] = frozenset()
    """Fingerprints of keys that do not count any more."""
    quorum: int = 1
    """The persons who must sign any approval; 0: only where a rule says so."""

    def is_of(self, key: ReviewerKey, names: frozenset[str]) -> bool:
        """Return whether a key's person has one of the names, whichever key they stand beside."""
        own = [one for one in self.keys.values() if one.identity == key.identity]
        known = {folded(name) for one in own for name in (one.person, *one.accounts)}
        return not known.isdisjoint(map(folded, names))

    def has_revoked(self, key: ReviewerKey) -> bool:
        """Return whether a key does not count any more, by whichever of its names."""
        return not self.revoked.isdisjoint({key.id, *key.names})

    def without(self, keys: frozenset[str]) -> "Signatories":
        """Return the same, with further keys revoked."""
        return replace(self, revoked=self.revoked | keys) if keys else self


NO_SIGNATORIES: Final = Signatories(keys=MappingProxyType({}), quorum=0)
"""What holds where there is no `reviewers.json`."""
