"""The answer to a server's `roots/list` request.

Roots come from the policy, never from the agent: servers such as npm's filesystem server allow
themselves these directories.
"""

from msgspec import Struct

from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import RealPath, file_uri


class Root(Struct, frozen=True):
    """A directory that the server may use."""

    name: str
    path: RealPath

    @property
    def uri(self) -> str:
        """The directory as a `file:` URL; other characters are percent-encoded."""
        return file_uri(str(self.path))


def roots_told(policy: Policy, server: ServerSpec) -> tuple[Root, ...]:
    """Return the roots that a server is told.

    A server on another machine gets no paths of this one.
    """
    return initial_roots(policy, server.annotations) if server.remote is None else ()


def initial_roots(policy: Policy, server: str) -> tuple[Root, ...]:
    """Return the workspace (named `sandbox`) and the directories of rules, each once.

    Only rules that allow or escalate and can apply to this server, by its annotation name; a root
    has the name of its rule.
    """
    found: dict[RealPath, str] = {}
    if policy.workspace is not None:
        found[policy.workspace] = "sandbox"
    for rule in policy.rules:
        applies = rule.servers is None or server in rule.servers
        if rule.effect != "deny" and rule.paths is not None and applies:
            found.setdefault(rule.paths.within, rule.name)
    return tuple([Root(name, path) for path, name in found.items()])
