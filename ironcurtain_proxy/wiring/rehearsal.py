"""The rehearsal of calls for `explain`, joined from what `serve` joins."""

from collections.abc import Callable, Mapping

from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.facts.catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.mediation.rehearsal import Rehearsal
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sandbox.twin import opening_for
from ironcurtain_proxy.wiring.confinement import confinements
from ironcurtain_proxy.wiring.overlay import overlay_for
from ironcurtain_proxy.wiring.proxy import resolver_for, settled


def rehearsal_for(
    settings: Settings,
    loaded: LoadedPolicy,
    environ: Mapping[str, str],
    sandbox: Available | None,
) -> Rehearsal:
    """Join the parts. Starts and writes nothing.

    Args:
        settings: what the operator said.
        loaded: the policy.
        environ: ours.
        sandbox: this machine's; see `find_sandbox`.

    Raises:
        ConfigurationError: a server's sandbox cannot be as it is configured.
    """
    specs = settled(settings, environ, make=False)
    confined = confinements(sandbox, specs, settings, loaded.policy, make=False)

    def facts_of(
        lookup: Callable[[str, str], CataloguedTool | None],
        command: Callable[[str, str], str | None],
    ) -> Resolver:
        return resolver_for(settings, loaded, lookup, environ, command)

    by_name = {spec.name: spec for spec in specs}

    def closed(server: str, request: AccessRequest) -> str | None:
        if server not in confined:
            return None
        home = str(settings.home)
        found = opening_for(by_name[server], confined[server].profile, request, (), home)
        return found if isinstance(found, str) else None

    return Rehearsal(
        policy=loaded.policy,
        overlay=overlay_for(settings, confined),
        servers={spec.name: spec.annotations for spec in settings.servers},
        annotations=loaded.annotations,
        closed=closed,
        facts_of=facts_of,
    )
