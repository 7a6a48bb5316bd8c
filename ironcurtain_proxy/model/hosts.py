"""Host names in conditions: which names are public, and which a pattern matches."""

import re
from typing import Final

from ironcurtain_proxy.model.vocabulary import words

_IP_V4: Final = re.compile(r"\d+\.\d+\.\d+\.\d+", re.ASCII)
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)

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
    """Whether a host is written as an address."""
    return ":" in host or _IP_V4.fullmatch(host) is not None


def is_public_host(host: str) -> bool:
    """Whether `*` matches this host: a well-formed name on the public internet."""
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
    """Whether a `host` or `host/path` matches one of the patterns.

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
