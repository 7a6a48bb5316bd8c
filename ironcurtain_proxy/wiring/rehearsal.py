"""What the proxy would decide of a call, without servers, agent or record.

The parts are those that `serve` joins: the same reader of facts, the same judgement, the same
sandboxes. Of the servers only what is annotated is known here: not their hints, and not the schema
that they list today.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from ironcurtain_proxy.approval.containment import Considered, hosts_of, why_asked
from ironcurtain_proxy.approval.judging import NamedTool, Overlay
from ironcurtain_proxy.approval.subject import tool_names
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.decision.containment import rule_for_reviewers
from ironcurtain_proxy.facts.catalogue import CataloguedTool
from ironcurtain_proxy.mediation.judge import judge
from ironcurtain_proxy.model.call import RequestId, ToolCall
from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.opening import Opening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import ToolDefinition
from ironcurtain_proxy.model.walls import Walls
from ironcurtain_proxy.sandbox.launch import Confinement
from ironcurtain_proxy.sandbox.probe import Available
from ironcurtain_proxy.sandbox.twin import opening_for
from ironcurtain_proxy.wiring.confinement import confinements
from ironcurtain_proxy.wiring.overlay import command_argument, overlay_for
from ironcurtain_proxy.wiring.proxy import resolver_for, settled


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a call before anybody is asked."""

    gathered: Gathered
    judged: Judged
    blocked: Ground | None
    opened: tuple[str, ...] = ()
    """What a second instance of the server would be let into, once approved."""
    uncontained: str | None = None
    """Why containment leaves the call to reviewers; empty: it does not; None: it is off."""
    """Why nobody is asked although something asks: the sandbox would refuse the call anyway."""

    @property
    def decision(self) -> Decision:
        """What the agent meets."""
        return self.judged.decision if self.blocked is None else Deny(self.blocked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Judges calls as `serve` would with these settings, on this machine."""

    settings: Settings
    loaded: LoadedPolicy
    environ: Mapping[str, str]
    overlay: Overlay
    confined: Mapping[str, Confinement]

    @classmethod
    def of(
        cls,
        settings: Settings,
        loaded: LoadedPolicy,
        environ: Mapping[str, str],
        sandbox: Available | None,
    ) -> "Rehearsal":
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
        return cls(
            settings=settings,
            loaded=loaded,
            environ=environ,
            overlay=overlay_for(settings, confined),
            confined=confined,
        )

    def of_call(self, server: str, tool: str, arguments: Arguments, *, is_unique: bool) -> Outcome:
        """What would be decided of a call.

        Args:
            server: the operator's name of the server.
            tool: the server's name of the tool.
            arguments: as the agent would send them.
            is_unique: whether the proxy knows that no other server has a tool of this name.
        """
        names = tool_names(server, tool, is_unique=is_unique)
        resolver = resolver_for(
            self.settings,
            self.loaded,
            self._lookup,
            self.environ,
            command_argument(self.overlay, lambda _server, _tool: names),
        )
        call = ToolCall(
            request_id=RequestId("explained"),
            exposed_name=self._exposed(server, tool),
            server=server,
            tool=tool,
            arguments=arguments,
            params={},
        )
        gathered = anyio.run(resolver.gather, call)
        judged = judge(
            gathered, self.loaded.policy, self.overlay, lambda: NamedTool(server, tool, names)
        )
        opening = self._opening(server, gathered, judged)
        blocked = Ground("sandbox", opening) if isinstance(opening, str) else None
        opened = opening.words() if isinstance(opening, Opening) else ()
        return Outcome(
            gathered, judged, blocked, opened, self._uncontained(server, gathered, judged)
        )

    def _opening(self, server: str, gathered: Gathered, judged: Judged) -> Opening | str | None:
        confinement = self.confined.get(server)
        if confinement is None or not isinstance(gathered, Facts):
            return None
        if not isinstance(judged.decision, Escalate):
            return None
        spec = next(spec for spec in self.settings.servers if spec.name == server)
        hosts, home = hosts_of(gathered), str(self.settings.home)
        return opening_for(spec, confinement.profile, gathered.request, hosts, home)

    def _uncontained(self, server: str, gathered: Gathered, judged: Judged) -> str | None:
        """Why containment leaves the call to reviewers; empty: it does not; None: it is off."""
        if not self.settings.containment.undo or not isinstance(gathered, Facts):
            return None
        if not isinstance(judged.decision, Escalate):
            return None
        considered = Considered(
            facts=gathered,
            judged=judged,
            workspace=self.settings.workspace,
            walls=self._walls(server),
            for_reviewers=rule_for_reviewers(gathered.request, self.loaded.policy),
            tried="",
        )
        return why_asked(considered) or ""

    def _walls(self, server: str) -> Walls | None:
        """What the process would be let, as configured: none is looked at."""
        confinement = self.confined.get(server)
        if confinement is None:
            return None
        spec = next(spec for spec in self.settings.servers if spec.name == server)
        writable = tuple(map(RealPath.from_text, confinement.profile.allow_write))
        return Walls(
            writable=writable,
            temporary=writable[0] if spec.cwd is None else None,
            is_offline=not confinement.profile.allowed_domains,
        )

    def _exposed(self, server: str, tool: str) -> str:
        return tool if len(self.settings.servers) == 1 else f"{server}__{tool}"

    def _lookup(self, server: str, tool: str) -> CataloguedTool:
        """The tool as its annotation describes it, as if its server offered it."""
        known_as = {spec.name: spec.annotations for spec in self.settings.servers}[server]
        annotation = self.loaded.annotations.get((known_as, tool))
        raw: dict[str, Json] = {"name": tool}
        if annotation is not None:
            raw["inputSchema"] = dict(annotation.input_schema)
        return CataloguedTool(
            exposed_name=self._exposed(server, tool),
            server=server,
            policy_server=known_as,
            definition=ToolDefinition(server, tool, raw),
            annotation=annotation,
        )
