"""The place of a recorded session, with the policy and settings of each preset there.

The documents are those of `init`, read by the readers of `serve`. They lie in a temporary directory
during the rehearsal; no file of the operator is read or written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import orjson
from msgspec import Struct, structs

from ironcurtain_proxy.approval.judging import NamedTool, Overlay
from ironcurtain_proxy.approval.overlay import tool_names
from ironcurtain_proxy.config.annotating.annotate import annotate, known_servers
from ironcurtain_proxy.config.policy.policy_files import POLICY_NAME, SHIPPED
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.presets.preset import PRESETS, Documents, PresetName, compose, preset
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.facts.client_tools import FETCH, FILES, SHELL, SHELL_TOOL, ServerCall
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.mediation.judge import judge
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import CommandPlace, Facts, Gathered, ParsedCommand
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.rehearsal.transcripts import as_tool_call
from ironcurtain_proxy.shell.families import GIT_CONFIGURATION, OTHER_REPOSITORY, sought
from ironcurtain_proxy.wiring.call_facts import command_argument, overlay_for, resolver_for

SceneRules: TypeAlias = Literal["shipped"] | PresetName
"""The rules. `shipped`: the shipped policy with questions about commands, without a preset."""

_OWN_BRANCH: Final = "own-branch"
_MOST_SCENES: Final = 64
"""The most scenes in memory: each holds the policies of all rules."""
_COMMANDS: Final[dict[str, Json]] = {
    "name": "allow-commands",
    "description": "The policy lets commands run.",
    "if": {"server": [SHELL]},
    "then": "allow",
    "reason": "The policy lets commands run.",
}
RULES: Final[tuple[SceneRules, ...]] = ("shipped", *PRESETS)


class SceneJudge(Struct, frozen=True):
    """The judge of one set of rules."""

    policy: Policy
    overlay: Overlay


class Scene(Struct, frozen=True, kw_only=True):
    """Judges the calls of one workspace."""

    workspace: RealPath
    home: RealPath
    resolver: Resolver
    judges: Mapping[SceneRules, SceneJudge]
    unknown_branch: str = ""
    """The branch where none is recorded; empty: the workspace is here, and says so itself."""

    async def gather(self, call: ServerCall, branch: str) -> Gathered:
        """Return the facts of a call, on a machine that may not have any of its files.

        Args:
            call: the recorded call.
            branch: recorded; then the workspace is taken for a repository that pushes to the branch
                of this name of `origin` and has no hooks. Empty: not known; then the workspace is
                taken for such a repository on a branch of its own if this machine does not have it.
        """
        gathered = await self.resolver.gather(as_tool_call(call))
        if not isinstance(gathered, Facts) or gathered.command is None:
            return gathered
        place, recorded = gathered.place, [OTHER_REPOSITORY]
        branch = branch or self.unknown_branch
        if branch and place.directory == str(self.workspace):
            recorded.append(GIT_CONFIGURATION)
            place = replace(
                place,
                has_repository=True,
                runs_hooks=False,
                branch=branch,
                push_to=("origin", branch),
            )
        return structs.replace(gathered, place=_as_recorded(gathered.command, place, recorded))

    def judged(self, rules: SceneRules, call: ServerCall, gathered: Gathered) -> Judgement:
        """Return the decision on a call before any question."""
        by = self.judges[rules]
        names = partial(tool_names, call.server, call.tool, is_unique=True)
        return judge(
            gathered, by.policy, by.overlay, lambda: NamedTool(call.server, call.tool, names())
        )


def _as_recorded(command: ParsedCommand, place: CommandPlace, names: Sequence[str]) -> CommandPlace:
    """Return the place with one meaning throughout for each family that a file defines."""
    families = sought(command, replace(place, meanings=None)).families
    known = dict(place.meanings or ())
    those = [one for one in families if one.defined_in[0].endswith(tuple(names))]
    return replace(place, meanings=tuple({**known, **dict.fromkeys(those, _RECORDED)}.items()))


_RECORDED: Final = "recorded"
"""The meaning of a family of git in a rehearsal."""


class Scenes(Struct, frozen=True):
    """Builds scenes, one for each home and workspace."""

    directory: Path
    """The directory of the documents, which exists during the rehearsal."""
    environ: Mapping[str, str]
    _scenes: dict[tuple[str, str], Scene] = msgspec.field(default_factory=dict)
    _definitions: dict[tuple[str, str], CataloguedTool] = msgspec.field(default_factory=dict)

    def set_up(self) -> None:
        """Write the documents of all rules."""
        (self.directory / "workspace").mkdir()
        for rules in RULES:
            documents = _documents(rules, str(self.directory / "workspace"))
            place = self.directory / rules
            place.mkdir()
            for name, document in (
                (POLICY_NAME, documents.policy),
                ("tool-annotations.json", documents.annotations),
                ("config.json", documents.config),
            ):
                (place / name).write_bytes(orjson.dumps(document))

    def scene(self, home: str, workspace: str) -> Scene:
        """Return the scene of a session."""
        known = self._scenes.get((home, workspace))
        if known is None:
            if len(self._scenes) >= _MOST_SCENES:
                del self._scenes[next(iter(self._scenes))]
            known = self._scenes[home, workspace] = self._make(home, workspace)
        return known

    def _make(self, home: str, workspace: str) -> Scene:
        said = {rules: self._settings(rules, home, workspace) for rules in RULES}
        read = {rules: load_policy(settings) for rules, settings in said.items()}
        judges = {
            rules: SceneJudge(read[rules].policy, overlay_for(said[rules], ())) for rules in RULES
        }
        # Tools and their annotations are the same by all rules, and so are the facts.
        loaded, overlay = read["coding"], judges["coding"].overlay
        resolver = resolver_for(
            said["coding"],
            loaded,
            partial(self._lookup, loaded),
            self.environ,
            command_argument(overlay, partial(tool_names, is_unique=True)),
            {},
        )
        return Scene(
            workspace=RealPath.from_text(workspace),
            home=RealPath.from_text(home),
            resolver=resolver,
            judges=judges,
            unknown_branch="" if Path(workspace).is_dir() else _OWN_BRANCH,
        )

    def _settings(self, rules: SceneRules, home: str, workspace: str) -> Settings:
        servers = {name: {"command": "true"} for name in (FILES, FETCH, SHELL)}
        settings = load_settings(
            {
                **{name: self.environ[name] for name in ("PATH", "LANG") if name in self.environ},
                "HOME": home,
                "IRONCURTAIN_CONFIG": str(self.directory / rules / "config.json"),
                "GENERATED_DIR": str(self.directory / rules),
                "MCP_SERVERS_CONFIG": orjson.dumps(servers).decode(),
            }
        )
        specs = [replace(spec, cwd=workspace) for spec in settings.servers]
        # The recorded workspace is seldom on this machine, which `serve` would insist on.
        return replace(settings, workspace=RealPath.from_text(workspace), servers=tuple(specs))

    def _lookup(self, loaded: LoadedPolicy, server: str, tool: str) -> CataloguedTool:
        known = self._definitions.get((server, tool))
        if known is None:
            annotation = loaded.annotations.get((server, tool))
            known = CataloguedTool.described(server, server, tool, annotation)
            self._definitions[server, tool] = known
        return known


def _documents(rules: SceneRules, workspace: str) -> Documents:
    known = known_servers()
    definitions: dict[str, list[Mapping[str, Json]]] = {
        server: [{"name": name, "inputSchema": dict(tool.schema)} for name, tool in tools.items()]
        for server, tools in known.items()
        if server in {FILES, FETCH}
    }
    servers = [annotate(name, tools) for name, tools in definitions.items()]
    servers.append(annotate(SHELL, [SHELL_TOOL]))
    if rules != "shipped":
        return compose(preset(rules), servers, workspace)
    found = compose(preset("supervised"), servers, workspace)
    shipped = orjson.loads((SHIPPED / POLICY_NAME).read_bytes())["rules"]
    config = {key: value for key, value in found.config.items() if key != "security"}
    return Documents(
        policy={"rules": [*shipped, _COMMANDS]}, annotations=found.annotations, config=config
    )
