"""Whether a sandbox lets its server do what a call asks for.

Checked before a person is asked: an approval of a call that the sandbox refuses would have no
effect.
"""

import re
from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import AccessRequest, PathValue, SqlValue, TextValue, UrlValue
from ironcurtain_proxy.sandbox.profile import SandboxProfile

_CHANGES: frozenset[ArgumentRole] = frozenset(
    {"write-path", "delete-path", "write-history", "delete-history"}
)
_NAMED: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,61}(\.[a-z0-9_-]{1,62})*", re.ASCII)
"""The spelling of a host that a sandbox takes: no address in brackets."""
_THIS_MACHINE: Final = "localhost"
_NO_DOT: Final = (
    "a sandbox opens no host whose name has no dot; use its full name, such as HOST.internal"
)
_HOST: Final = re.compile(r"[a-z0-9_-][a-z0-9._-]*|\[[0-9a-f:.]+\]", re.ASCII)


def obstacle(profile: SandboxProfile, request: AccessRequest) -> str | None:
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
                    closed = _closed(profile, value)
                    if closed:
                        return f"{_network(profile, closed[0])}: {text}"
                case SqlValue() | TextValue():
                    pass
    return None


def opening_of(
    profile: SandboxProfile,
    request: AccessRequest,
    hosts: Sequence[str],
    paths: Sequence[RealPath] = (),
) -> SandboxOpening | str | None:
    """The access that a second instance needs for a call; None: the first instance suffices.

    A text names the obstacle that no approval removes: something that the operator closed, that
    belongs to the proxy, or that may not be read.

    Args:
        profile: of the first instance.
        request: the call.
        hosts: the hosts that the call is known to need besides those of its URLs.
        paths: the paths that its shell command names to write.
    """
    changed = [path for path in paths if not profile.may_write(path)]
    kept = (_said(profile, path) for path in changed if profile.keeps_closed(path))
    if (why := next(kept, None) or _why_closed(profile, request)) is not None:
        return why
    changed += _changed(profile, request)
    also = [host.removesuffix(".") for host in hosts]
    wanted = [host for host in also if _NAMED.fullmatch(host) and not profile.may_reach(host)]
    closed = [host.removesuffix(".") for host in closed_hosts(profile, request)]
    needed = tuple(dict.fromkeys([*closed, *wanted]))
    for host in needed:
        if (why := _why_not_named(profile, host)) is not None:
            return why
    found = SandboxOpening(hosts=needed, paths=tuple(dict.fromkeys(changed)))
    return found if found.words() else None


def _said(profile: SandboxProfile, path: RealPath) -> str:
    return f"{_path(profile, path, changes=True, reads=False)} {path}"


def _why_closed(profile: SandboxProfile, request: AccessRequest) -> str | None:
    """The reason why no approval opens one of a call's paths; None: all can be opened."""
    for fact in request.arguments:
        for value in fact.values:
            if isinstance(value, PathValue):
                why = _why_kept(profile, value, fact.roles)
                if why is not None:
                    return why
    return None


def _changed(profile: SandboxProfile, request: AccessRequest) -> list[RealPath]:
    """The paths that a call changes and its server's sandbox keeps closed."""
    return [
        value.path
        for fact in request.arguments
        if not _CHANGES.isdisjoint(fact.roles)
        for value in fact.values
        if isinstance(value, PathValue) and not profile.may_write(value.path)
    ]


def _why_not_named(profile: SandboxProfile, host: str) -> str | None:
    """The reason why no approval opens a host; None: an approval opens it."""
    if profile.forbids(host) or not _NAMED.fullmatch(host):
        return f"{_network(profile, host)}: {host}"
    if "." not in host and host != _THIS_MACHINE:
        return f"{_NO_DOT}: {host}"
    return None


def _why_kept(
    profile: SandboxProfile, value: PathValue, roles: Sequence[ArgumentRole]
) -> str | None:
    """The reason why no approval opens a path for its roles; None: one does, or it is open."""
    changes = not _CHANGES.isdisjoint(roles) and profile.keeps_closed(value.path)
    why = _path(profile, value.path, changes=changes, reads="read-path" in roles)
    return None if why is None else f"{why} {value.text}"


def closed_hosts(profile: SandboxProfile, request: AccessRequest) -> tuple[str, ...]:
    """The hosts that a call's URLs lead to and its server's sandbox keeps closed, each once."""
    values = [value for fact in request.arguments for value in fact.values]
    urls = [value for value in values if isinstance(value, UrlValue)]
    return tuple(dict.fromkeys([host for url in urls for host in _closed(profile, url)]))


def _closed(profile: SandboxProfile, url: UrlValue) -> list[str]:
    return [host for host in _hosts(url) if not profile.may_reach(host)]


def _hosts(value: UrlValue) -> list[str]:
    """The hosts that are certainly meant. A remote may also be a directory, or a helper's word."""
    if not value.ordinary:
        return []
    hosts = [domain.partition("/")[0] for domain in value.domains]
    return [host for host in hosts if _HOST.fullmatch(host)]


_NOT: Final = "the sandbox of this server does not let it"


def _network(profile: SandboxProfile, host: str) -> str:
    if not profile.allowed_domains:
        return "the sandbox of this server has no network (sandbox.network.allowedDomains)"
    return f"{_NOT} reach {host} (sandbox.network.allowedDomains)"


def _path(profile: SandboxProfile, path: RealPath, *, changes: bool, reads: bool) -> str | None:
    if changes and not profile.may_write(path):
        return f"{_NOT} write there (sandbox.filesystem.allowWrite):"
    if reads and not profile.may_read(path):
        return (
            "the sandbox of this server does not let it read there (sandbox.filesystem.allowRead):"
        )
    return None
