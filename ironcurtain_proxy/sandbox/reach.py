"""Whether a sandbox lets its server do what a call asks for. Pure: no I/O, no clock, no log.

Asked before a person is: an approval of what cannot happen would be a question for nothing.
"""

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue, UrlValue
from ironcurtain_proxy.sandbox.profile import Profile

_CHANGES: frozenset[ArgumentRole] = frozenset(
    {"write-path", "delete-path", "write-history", "delete-history"}
)


def obstacle(profile: Profile, request: AccessRequest) -> str | None:
    """The first thing that would be refused, and what the operator can do; None: nothing is known.

    A host is not compared with the allowlist, which the sandbox does itself: only a server without
    any network is known to reach none.
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
                case UrlValue(text=text, domains=hosts) if hosts and not profile.allowed_domains:
                    network = "(sandbox.network.allowedDomains)"
                    return f"the sandbox of this server has no network {network}: {text}"
                case _:
                    pass
    return None


def _path(profile: Profile, path: RealPath, *, changes: bool, reads: bool) -> str | None:
    if changes and not profile.may_write(path):
        return "the sandbox of this server may not write there (sandbox.filesystem.allowWrite):"
    if reads and not profile.may_read(path):
        return "the sandbox of this server may not read there (sandbox.filesystem.allowRead):"
    return None
