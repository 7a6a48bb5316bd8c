"""What a server that asks for `roots/list` is told. Pure: no I/O, no clock, no log."""

from dataclasses import dataclass

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy


@dataclass(frozen=True, slots=True)
class Root:
    """A directory the server may consider its own."""

    name: str
    path: RealPath
    uri: str
    """`file://`, percent-encoded."""


def initial_roots(policy: Policy, server: str) -> tuple[Root, ...]:
    """The workspace (named `sandbox`) and the directories of rules, each once.

    Only rules that allow or escalate and can apply to this server; the root has the rule's name.
    """
    raise NotImplementedError
