"""How many files the proxy may have open, and its servers.

Shells give a low limit and allow a higher one. The proxy takes that: without descriptors nothing
can be recorded, and then nothing is carried out. Servers get the limit that was given to the proxy:
programs that use `select` cannot have a higher one.
"""

import resource
from contextlib import suppress
from typing import Final

OWN: Final = 32
"""Without servers: standard streams, audit log, mailbox, event loop, the engine's store."""
PER_SERVER: Final = 6
"""Pipes, and what a call needs while it is looked at."""

_given: list[int] = []
"""The soft limit before it was raised; empty: it was not."""


def raise_limit() -> None:
    """Take as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard or _given:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _given.append(soft)


def limit_of_servers() -> str:
    """What a server's guardian sets the soft limit to; empty: it stays as it is."""
    return str(_given[0]) if _given else ""


def too_few(servers: int) -> str | None:
    """What the operator should know of the limit; None: it is high enough."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN + PER_SERVER * servers
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    return (
        f"warning: {soft} files may be open at once, and {servers} servers need about {needed}: "
        f"calls may be denied; raise the limit (`ulimit -n {needed}`), or configure fewer servers"
    )
