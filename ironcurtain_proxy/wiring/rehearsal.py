"""The rehearsal of calls for `explain`, joined from the parts of `serve`."""

from collections.abc import Callable, Mapping

from ironcurtain_proxy.approval.containment import (
    ContainmentInput,
    hosts_of,
    programs_outside,
    why_asked,
    written_outside,
)
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.decision.containment import is_asked_to_read, rule_for_reviewers
from ironcurtain_proxy.facts.catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.mediation.rehearsal import Rehearsal
from ironcurtain_proxy.model.judgement import Judgement
from ironcurtain_proxy.model.opening import SandboxOpening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.walls import Walls
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sandbox.twin import opening_for, with_reads
from ironcurtain_proxy.wiring.call_facts import resolver_for
from ironcurtain_proxy.wiring.confinement import confinements
from ironcurtain_proxy.wiring.overlay import overlay_for
from ironcurtain_proxy.wiring.proxy import settled


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
        return resolver_for(settings, loaded, lookup, environ, command, confined)

    by_name = {spec.name: spec for spec in settings.servers}

    def opening(server: str, facts: Facts) -> SandboxOpening | str | None:
        if server not in confined:
            return None
        hosts, home = hosts_of(facts), str(settings.home)
        profile, paths = confined[server].profile, written_outside(facts)
        found = opening_for(by_name[server], profile, facts.request, hosts, home, paths)
        return with_reads(found, by_name[server], profile, programs_outside(facts))

    def uncontained(server: str, facts: Facts, judged: Judgement) -> str | None:
        if not settings.containment.undo:
            return None
        considered = ContainmentInput(
            facts=facts,
            judged=judged,
            workspace=settings.workspace,
            walls=configured_walls(by_name[server], confined.get(server)),
            for_reviewers=rule_for_reviewers(facts.request, loaded.policy),
            asked_to_read=is_asked_to_read(facts.request, loaded.policy),
            tried="",
        )
        return why_asked(considered) or ""

    return Rehearsal(
        policy=loaded.policy,
        overlay=overlay_for(settings, confined),
        servers={spec.name: spec.annotations for spec in settings.servers},
        has_prefix=settings.server_in_names or len(settings.servers) > 1,
        annotations=loaded.annotations,
        opening=opening,
        uncontained=uncontained,
        facts_of=facts_of,
    )


def configured_walls(spec: ServerSpec, confinement: Confinement | None) -> Walls | None:
    """The limits of a server's process as configured; no process is examined."""
    if confinement is None:
        return None
    writable = tuple(map(RealPath.from_text, confinement.profile.allow_write))
    return Walls(
        writable=writable,
        temporary=writable[0] if spec.cwd is None else None,
        is_offline=not confinement.profile.allowed_domains,
    )
