"""Reasons why kept grants are void under the present policy and servers. Not a command itself."""

import os
from dataclasses import dataclass, field

from ironcurtain_proxy.config.policy.difference import Basis
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, gather_policy
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.facts.fingerprint import server_digest
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.model.grant import CapabilityPattern
from ironcurtain_proxy.wiring.persistence import basis_in


@dataclass(slots=True)
class Validity:
    """Looks at the configuration once for each workspace."""

    _known: dict[str, tuple[Settings, LoadedPolicy] | None] = field(default_factory=dict)

    def why_void(self, kept: KeptGrant) -> str | None:
        """The reason why a kept grant is void; None: nothing that is known here speaks against it.

        Only the server knows its tool's definition, which is compared at each call.
        """
        workspace = "" if kept.workspace is None else str(kept.workspace)
        if workspace not in self._known:
            self._known[workspace] = _present(workspace)
        found, pattern = self._known[workspace], kept.remembered.grant.pattern
        if found is None or isinstance(pattern, CapabilityPattern):
            return None
        settings, loaded = found
        spec = next((one for one in settings.servers if one.name == pattern.server), None)
        if spec is None:
            return "its server is not configured"
        if server_digest(spec, workspace or None) != kept.server_digest:
            return "its server is started in another way"
        if not kept.basis:
            same = kept.policy_version == loaded.version
            return None if same else "the policy has changed"
        basis = basis_in(settings, Basis(loaded.policy, loaded.annotations))
        if basis(pattern.server, pattern.tool) != kept.basis:
            return "a rule about its tool, or what its arguments name, has changed"
        return None


def _present(workspace: str) -> tuple[Settings, LoadedPolicy] | None:
    """The settings and the policy of a workspace; None: they say nothing about grants."""
    environ = {**os.environ, **({"ALLOWED_DIRECTORY": workspace} if workspace else {})}
    report = Report()
    try:
        settings = load_settings(environ)
        loaded = gather_policy(settings, report)
    except ConfigurationError:
        return None
    # Without a server this is not the configuration that a client's proxy has.
    return None if report.has_errors or not settings.servers else (settings, loaded)
