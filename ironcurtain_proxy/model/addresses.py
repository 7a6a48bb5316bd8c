"""Public network addresses, and those that only the operator may name.

A server's words must not lead the proxy to this machine, to its network or to the metadata of its
cloud: whoever stands there trusts requests that come from here.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""IPv6 networks whose last four bytes are an IPv4 address."""

_GLOBAL: Final = IPv6Network("2000::/3")
"""The only IPv6 addresses that are given out; others are translated as a network's operator likes.
"""

_CLOSED: Final = (
    ip_network("168.63.129.16/32"),  # the host of a virtual machine, in one large cloud
    # Older versions of `ipaddress` call these global; with the metadata of one cloud.
    ip_network("192.0.0.0/24"),
    ip_network("192.88.99.0/24"),
    ip_network("3fff::/20"),
)


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _TRANSLATED) and int(address) > 1:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether an address is one of the public network, and of no cloud's metadata."""
    found = plain(address)
    if isinstance(found, IPv6Address) and (found.teredo is not None or found not in _GLOBAL):
        return False
    is_closed = any(found.version == network.version and found in network for network in _CLOSED)
    return found.is_global and not found.is_multicast and not is_closed


def is_within(address: Address, networks: tuple[Network, ...]) -> bool:
    """Whether an address, or the IPv4 address that it stands for, is in one of the networks."""
    found = plain(address)
    return any(found.version == network.version and found in network for network in networks)
