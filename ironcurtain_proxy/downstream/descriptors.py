"""Limits on the open files of the proxy and its servers.

Shells set a low limit and allow a higher one. The proxy raises its own, because without descriptors
no record can be written and no call forwarded. Servers get the original limit, because programs
that use `select` fail with a higher one.
"""

import resource
from contextlib import suppress
from typing import Final

OWN: Final = 32
"""Descriptors without servers: standard streams, audit log, mailbox, event loop, store."""
PER_SERVER: Final = 6
"""Descriptors for a server: its pipes, and those of a call while it is judged."""

_given: list[int] = []
"""The soft limit before it was raised; empty: it was not raised."""


def raise_limit() -> None:
    """Raise the limit to the highest that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard or _given:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _given.append(soft)


def limit_of_servers() -> str:
    """The soft limit that a server's guardian sets; empty: it stays unchanged."""
    return str(_given[0]) if _given else ""


def too_few(servers: int) -> str | None:
    """A warning that the limit is too low; None: it is high enough."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN + PER_SERVER * servers
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    return (
        f"warning: {soft} files may be open at once, and {servers} servers need about {needed}: "
        f"calls may be denied; raise the limit (`ulimit -n {needed}`), or configure fewer servers"
    )
