"""How the conditions of rules are read: what a document gives them, patterns, and host names.

The document and the file around a condition belong to `config`; here stand the protocols by which
a condition reads them. Of host names it is told which are public, and which a pattern matches.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.values import Json, RealPath, lazy, words

NameSets: TypeAlias = tuple[frozenset[str], frozenset[str]]
"""Patterns of names, and names that are exempt although a pattern describes them."""

T = TypeVar("T")
D = TypeVar("D")
W = TypeVar("W", bound=str)


class ConditionSpot(Protocol):
    """A value of a document and its place, as `config.reading` has it."""

    value: Json

    def error(self, message: str, suggestion: str = "") -> None:
        """Report a mistake that prevents the start."""

    def warning(self, message: str, suggestion: str = "") -> None:
        """Report a warning for the operator."""

    def name(self) -> str:
        """Return a text that is not empty."""

    def word(self, vocabulary: Sequence[W]) -> W:
        """Return a word of a fixed vocabulary."""

    def items(self) -> "Sequence[ConditionSpot]":
        """Return the items of a list."""

    def each(self, read: "Callable[[ConditionSpot], T]") -> tuple[T, ...]:
        """Return a list with every item read."""

    def object(self, keys: Iterable[str]) -> "ConditionMembers":
        """Return an object with known keys."""


class ConditionMembers(Protocol):
    """The known members of an object."""

    def required(self, key: str) -> ConditionSpot:
        """Return a member that must exist."""

    def read(self, key: str, read: Callable[[ConditionSpot], T], default: D) -> T | D:
        """Return the value of an optional member, or the default."""


class ConditionReader(Protocol):
    """What the reading of conditions needs to know of the file around them."""

    def directory(self, node: ConditionSpot) -> RealPath:
        """Return the directory that a text names: absolute, below `~/`, or `@workspace`."""

    def hosts(self, nodes: Sequence[ConditionSpot]) -> frozenset[str]:
        """Return host patterns, with every `@list` replaced by its entries."""

    def names(self, nodes: Sequence[ConditionSpot], unless: frozenset[str]) -> NameSets:
        """Return patterns of names and exempt ones, with `@secrets` replaced by its names."""

    def entries(self, nodes: Sequence[ConditionSpot]) -> tuple[str, ...]:
        """Return names, with every `@list` replaced by its entries."""


def read_roles(node: ConditionSpot) -> frozenset[ArgumentRole]:
    """Read a list of argument roles."""
    return frozenset(node.each(read_role))


def read_role(node: ConditionSpot) -> ArgumentRole:
    """Read one argument role."""
    return node.word(tuple(ROLE_TRAITS))


def read_name_patterns(nodes: Iterable[ConditionSpot]) -> frozenset[str]:
    """Read the last names of paths, in lower case for comparison."""
    return frozenset([_name_pattern(node) for node in nodes])


def host_patterns(entries: Iterable[str]) -> frozenset[str]:
    """Return host patterns with the host in lower case, and the path of `host/path` unchanged."""
    parted = [entry.partition("/") for entry in entries]
    return frozenset([host.lower() + slash + path for host, slash, path in parted])


_MOST_STARS: Final = 3
"""The most `*` in a pattern: each multiplies the time for a long name that an agent may choose."""
_CHOICE: Final = lazy(r"\{[^{}]*,[^{}]*\}")
_SCHEME: Final = lazy(r"[a-z][a-z0-9+.-]*", re.ASCII)
_OTHER_SCHEMES: Final = frozenset({"file", "http", "https"})


def read_patterns(node: ConditionSpot) -> frozenset[str]:
    """Read a list of last names of paths."""
    return read_name_patterns(node.items())


def _name_pattern(node: ConditionSpot) -> str:
    text = node.name()
    parts = text.split("/")
    if text and not {"", ".", ".."}.isdisjoint(parts):
        node.error('must be the last names of a path, such as ".env" or ".aws/credentials"')
    if text and set(text) <= {"*", "/"}:
        node.error("describes every name: leave the condition out")
    elif "?" in text or "[" in text or _CHOICE.search(text) or text.count("*") > _MOST_STARS:
        node.error(f"must have no wildcard but *, and that {_MOST_STARS} times at most")
    return text.lower()


def read_scheme(node: ConditionSpot) -> str:
    """Read the scheme of URIs that are neither files nor URLs."""
    text = node.name()
    if text in _OTHER_SCHEMES:
        node.error("is judged by its path or host: write paths or domains instead of uris")
    elif text and not _SCHEME.fullmatch(text):
        node.error('must be a scheme in lower case, such as "memo"')
    return text


def read_uri(node: ConditionSpot) -> str:
    """Read a URI with its scheme, in which `*` may stand for any text."""
    text = node.name()
    scheme, colon, _ = text.partition(":")
    if text and not (colon and _SCHEME.fullmatch(scheme)):
        node.error('must be a URI with a scheme, such as "memo://insights" or "demo://text/*"')
    elif scheme in _OTHER_SCHEMES:
        node.error("is judged by its path or host: write paths or domains instead of uris")
    elif text.count("*") > _MOST_STARS:
        node.error(f"must have * at most {_MOST_STARS} times")
    return text


# --- hosts


_IP_V4: Final = lazy(r"\d+\.\d+\.\d+\.\d+", re.ASCII)
_NUMBER: Final = lazy(r"\d+|0x[0-9a-f]*", re.ASCII)
_LABEL: Final = lazy(r"[a-z0-9_-]{1,63}", re.ASCII)

SPECIAL_ENDINGS: Final = words(
    """
    corp home home.arpa internal intranet invalid lan local localdomain localhost onion private svc
    test
    """
)
"""Names that lead to this machine, this network or nowhere (RFC 6761, RFC 6762, RFC 8375, the
metadata hosts of clouds under `.internal`, services of clusters under `.svc`)."""

REBINDING_ENDINGS: Final = frozenset(
    {"lacolhost.com", "localtest.me", "lvh.me", "nip.io", "sslip.io", "vcap.me", "xip.io"}
)
"""Public names that resolve to the address written in them (`127.0.0.1.nip.io`)."""


def is_ip_address(host: str) -> bool:
    """Return whether a host is written as an address."""
    return ":" in host or _IP_V4.fullmatch(host) is not None


def is_public_host(host: str) -> bool:
    """Return whether `*` matches this host: a well-formed name on the public internet."""
    if is_ip_address(host):
        return False
    labels = host.removesuffix(".").lower().split(".")
    if len(labels) == 1 or not all(map(_LABEL.fullmatch, labels)):
        return False
    if _NUMBER.fullmatch(labels[-1]):
        # Some programs take `127.1`, `0x7f.1` and `127.0.0.1.` for addresses; no name ends that
        # way.
        return False
    return not any(
        ".".join(labels[start:]) in SPECIAL_ENDINGS | REBINDING_ENDINGS
        for start in range(len(labels))
    )


def host_matches(domain: str, allowed: frozenset[str]) -> bool:
    """Return whether a `host` or `host/path` matches one of the patterns.

    `host` matches any path on it, `*.host` the host and all its subdomains, `host/path` exactly
    itself, `*` every public host. Patterns are looked up by key, so the cost does not grow with
    the list.
    """
    if domain in allowed:
        return True
    host, slash, _ = domain.partition("/")
    if slash and host in allowed:
        return True
    if "*" in allowed and is_public_host(host):
        return True
    if "*." + host in allowed:
        return True
    dot = host.find(".")
    while dot >= 0:
        if "*" + host[dot:] in allowed:
            return True
        dot = host.find(".", dot + 1)
    return False
