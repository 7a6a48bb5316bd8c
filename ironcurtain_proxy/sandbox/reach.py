"""Whether a sandbox lets its server do what a call asks for.

Asked before a person is: an approval of what cannot happen would be a question for nothing.
"""

import re
from typing import Final

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue, UrlValue
from ironcurtain_proxy.sandbox.profile import Profile

_CHANGES: frozenset[ArgumentRole] = frozenset(
    {"write-path", "delete-path", "write-history", "delete-history"}
)
_HOST: Final = re.compile(r"[a-z0-9_-][a-z0-9._-]*|\[[0-9a-f:.]+\]", re.ASCII)


def obstacle(profile: Profile, request: AccessRequest) -> str | None:
    """The first thing that would be refused, and what the operator can do; None: nothing is known.

    A host is compared with the lists as the sandbox does it. A server that has another host fetch
    the URL for it needs that URL's host in the lists too.
    """
    for fact in request.arguments:
        changes = not _CHANGES.isdisjoint(fact.roles)
        reads = "read-path" in fact.roles
        for value in fact.values:
            match value:
                case PathValue(text=text, path=path):
                    why = _path(profile, path, changes=changes, reads=reads)
                    if why is not None:
                        return f"{why} {text}"
                case UrlValue(text=text):
                    for host in _hosts(value):
                        if not profile.may_reach(host):
                            return f"{_network(profile, host)}: {text}"
                case _:
                    pass
    return None


def closed_hosts(profile: Profile, request: AccessRequest) -> tuple[str, ...]:
    """The hosts that a call's URLs lead to and its server's sandbox keeps closed, each once."""
    values = [value for fact in request.arguments for value in fact.values]
    hosts = [host for value in values if isinstance(value, UrlValue) for host in _hosts(value)]
    return tuple(dict.fromkeys([host for host in hosts if not profile.may_reach(host)]))


def _hosts(value: UrlValue) -> list[str]:
    """The hosts that are certainly meant. A remote may also be a directory, or a helper's word."""
    if not value.ordinary:
        return []
    hosts = [domain.partition("/")[0] for domain in value.domains]
    return [host for host in hosts if _HOST.fullmatch(host)]


def _network(profile: Profile, host: str) -> str:
    if not profile.allowed_domains:
        return "the sandbox of this server has no network (sandbox.network.allowedDomains)"
    return (
        f"the sandbox of this server does not let it reach {host} (sandbox.network.allowedDomains)"
    )


def _path(profile: Profile, path: RealPath, *, changes: bool, reads: bool) -> str | None:
    if changes and not profile.may_write(path):
        return "the sandbox of this server may not write there (sandbox.filesystem.allowWrite):"
    if reads and not profile.may_read(path):
        return "the sandbox of this server may not read there (sandbox.filesystem.allowRead):"
    return None
