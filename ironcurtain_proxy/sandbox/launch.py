"""How a server's command is run. Pure: no I/O, no clock, no log.

For now unconfined, and said so; the confinement itself is not built yet.
"""

from dataclasses import dataclass

from ironcurtain_proxy.model.server import ServerSpec


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run instead of a server's bare command."""

    argv: tuple[str, ...]
    sandboxed: bool
    """Whether the process that this starts is confined: what the audit log says of it."""


def confine(spec: ServerSpec) -> Launch:
    """The most confined way there is to run a server."""
    return unsafe_no_sandbox(spec)


def unsafe_no_sandbox(spec: ServerSpec) -> Launch:
    """The bare command: the server may do whatever the user may do."""
    return Launch((spec.command, *spec.args), sandboxed=False)
