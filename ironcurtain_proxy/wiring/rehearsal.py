"""What the proxy would decide of a call, without servers, agent or record.

The parts are those that `serve` joins: the same reader of facts, the same judgement, the same
sandboxes. Of the servers only what is annotated is known here: not their hints, and not the schema
that they list today.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from ironcurtain_proxy.approval.judging import NamedTool, Overlay
from ironcurtain_proxy.approval.subject import tool_names
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.facts.catalogue import CataloguedTool
from ironcurtain_proxy.mediation.judge import judge
from ironcurtain_proxy.model.call import RequestId, ToolCall
from ironcurtain_proxy.model.decision import Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.judgement import Judged
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import ToolDefinition
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
        return Outcome(gathered, judged, self._blocked(server, gathered, judged))

    def _blocked(self, server: str, gathered: Gathered, judged: Judged) -> Ground | None:
        confinement = self.confined.get(server)
        if confinement is None or not isinstance(gathered, Facts):
            return None
        if not isinstance(judged.decision, Escalate):
            return None
        spec = next(spec for spec in self.settings.servers if spec.name == server)
        home = str(self.settings.home)
        found = opening_for(spec, confinement.profile, gathered.request, (), home)
        return Ground("sandbox", found) if isinstance(found, str) else None

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
