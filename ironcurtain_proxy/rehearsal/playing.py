"""The judgement of recorded calls, in order, as `serve` would have judged them, and its report.

Each preset is played with its policy and settings at the place of the recorded session. Its
documents are those of `init`, read by the readers of `serve`. They lie in a temporary directory
during the rehearsal; no file of the operator is read or written.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import orjson
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.approval.containment import ContainmentInput, why_asked, why_not_held
from ironcurtain_proxy.approval.overlay import tool_names
from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_file import POLICY_NAME, SHIPPED
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.presets import PRESETS, Documents, PresetName, compose, preset
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.decision.authorizer import is_asked_to_read, rule_for_reviewers
from ironcurtain_proxy.facts.client_tools import FETCH, FILES, TOOLS, ServerCall, as_server_call
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.hooks.dialects import annotated_client_tools
from ironcurtain_proxy.mediation.judge import NamedTool, Overlay, judge
from ironcurtain_proxy.model.annotation import Annotations, ToolsAlike
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Deny, Escalate
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import CommandPlace, Facts, Gathered, ParsedCommand
from ironcurtain_proxy.model.server import SHELL, SandboxRestrictions
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.rehearsal.memory import (
    DEFINITION,
    WAYS,
    EscalatedStep,
    Memory,
    Savings,
    Tally,
    given,
    per_100,
)
from ironcurtain_proxy.rehearsal.transcripts import Recording, TranscriptCall, as_tool_call
from ironcurtain_proxy.sandbox.private_tmp import PLACES
from ironcurtain_proxy.shell.families import GIT_CONFIGURATION, OTHER_REPOSITORY, sought
from ironcurtain_proxy.wiring.call_facts import (
    command_argument,
    overlay_for,
    resolver_for,
)

# --- scene


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
    annotations: Annotations
    judges: Mapping[SceneRules, SceneJudge]
    unknown_branch: str = ""
    """The branch where none is recorded, or empty if the workspace is here, and says so itself."""

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
        return replace(gathered, place=_as_recorded(gathered.command, place, recorded))

    def alike(self, call: ServerCall) -> ToolsAlike:
        """Return the tools that one approval of the call would be of, too."""
        every = {tool: self.annotations.get((call.server, tool)) for tool in TOOLS[call.server]}
        own = every.pop(call.tool)
        found = {} if own is None else {tool: own.shared_with(one) for tool, one in every.items()}
        return {tool: (DEFINITION, roles) for tool, roles in found.items() if roles}

    def judged(self, rules: SceneRules, call: ServerCall, gathered: Gathered) -> Judgement:
        """Return the decision on a call before any question."""
        by = self.judges[rules]
        names = tool_names(call.server, call.tool, is_unique=True)
        return judge(gathered, by.policy, by.overlay, NamedTool(call.server, call.tool, names))


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
                (ANNOTATIONS_NAME, documents.annotations),
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
            annotations=loaded.annotations,
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
    servers = annotated_client_tools()
    if rules != "shipped":
        return compose(preset(rules), servers, workspace)
    found = compose(preset("supervised"), servers, workspace)
    shipped = orjson.loads((SHIPPED / POLICY_NAME).read_bytes())["rules"]
    config = {key: value for key, value in found.config.items() if key != "security"}
    return Documents(
        policy={"rules": [*shipped, _COMMANDS]}, annotations=found.annotations, config=config
    )


# --- playing


_HOME: Final = re.compile(r"(/home/[^/]+|/Users/[^/]+|/root)(?=/|\Z)")
_TOOLS: Final = tuple(
    [ServerCall(server, tool, {}) for server, tools in TOOLS.items() for tool in tools]
)


class Rehearsed(Struct):
    """The result of a rehearsal."""

    calls: int = 0
    sessions: int = 0
    without_place: int = 0
    """Calls of sessions without a known directory."""
    tallies: dict[SceneRules, Tally] = msgspec.field(
        default_factory=lambda: {rules: Tally() for rules in RULES}
    )
    passed_over: Counter[str] = msgspec.field(default_factory=Counter)
    broken: int = 0


class Assumed(Struct, frozen=True, kw_only=True):
    """The values that transcripts lack."""

    home: str
    """The home directory of this user."""
    workspace: str | None = None
    """The workspace of every session. `None` means the first directory in each transcript."""
    kept: Sequence[KeptGrant] = ()


def rehearse(recording: Recording, assumed: Assumed, environ: Mapping[str, str]) -> Rehearsed:
    """Judge all calls by all rules."""
    with TemporaryDirectory(prefix="ironcurtain-rehearsal-") as directory:
        scenes = Scenes(Path(directory), environ)
        scenes.set_up()
        player = _Player(scenes, assumed)
        anyio.run(player.play, recording.calls)
    return player.found


_Key: TypeAlias = tuple[SceneRules, Savings, str]


class _Player(Struct):
    scenes: Scenes
    assumed: Assumed
    found: Rehearsed = msgspec.field(default_factory=Rehearsed)
    _workspaces: dict[str, str] = msgspec.field(default_factory=dict)
    _memories: dict[_Key, Memory] = msgspec.field(default_factory=dict)
    _families: dict[_Key, Approvals] = msgspec.field(default_factory=dict)
    """The approvals of commands, by the repository of the worktrees that share them."""
    _given: dict[tuple[SceneRules, str], Memory] = msgspec.field(default_factory=dict)

    async def play(self, calls: Sequence[TranscriptCall]) -> None:
        for call in calls:
            workspace = self._workspace(call)
            if workspace is None:
                self.found.without_place += 1
                continue
            found = as_server_call(call.tool, call.arguments, call.directory or workspace)
            if found == "none":
                self.found.passed_over[call.tool[:60]] += 1
            elif found == "broken":
                self.found.broken += 1
            else:
                await self._call(call, found, workspace)
        self.found.sessions = len(self._workspaces)

    def _workspace(self, call: TranscriptCall) -> str | None:
        said = self._workspaces.get(call.session)
        if said is None:
            said = self.assumed.workspace or call.directory
            if not said.startswith("/") or "\0" in said:
                return None
            self._workspaces[call.session] = said = said.rstrip("/") or "/"
        return said

    async def _call(self, recorded: TranscriptCall, call: ServerCall, workspace: str) -> None:
        home = _HOME.match(workspace)
        scene = self.scenes.scene(self.assumed.home if home is None else home[1], workspace)
        gathered = await scene.gather(call, branch=recorded.branch)
        self.found.calls += 1
        for rules in RULES:
            judged = scene.judged(rules, call, gathered)
            if isinstance(judged.decision, Deny):
                self.found.tallies[rules].denied += 1
                self.found.tallies[rules].denials[judged.decision.ground.rule] += 1
            elif isinstance(judged.decision, Escalate) and isinstance(gathered, Facts):
                asked = EscalatedStep(
                    session=recorded.session,
                    call=call,
                    facts=gathered,
                    judged=judged,
                    policy=scene.judges[rules].policy,
                    home=scene.home,
                    workspace=scene.workspace,
                    alike=scene.alike(call),
                )
                self._count(rules, recorded, asked)

    def _count(self, rules: SceneRules, recorded: TranscriptCall, asked: EscalatedStep) -> None:
        tally = self.found.tallies[rules]
        tally.note("each", asked)
        tally.spared_by_grants += self._is_given(rules, asked)
        if rules == "shipped":
            return
        self._remembering("remembered", rules, recorded, asked)
        if preset(rules).config.get("containment") and not is_contained(asked):
            held = replace(asked, held=is_held(asked))
            self._remembering("contained", rules, recorded, held)

    def _remembering(
        self, way: Savings, rules: SceneRules, recorded: TranscriptCall, asked: EscalatedStep
    ) -> None:
        lasts = rules != "shipped" and "grants" in preset(rules).config
        key = rules, way, str(asked.workspace) if lasts else recorded.session
        memory = self._memories.setdefault(key, Memory())
        repository = asked.facts.place.repository
        if lasts and repository is not None:
            memory.families = self._families.setdefault((rules, way, repository), memory.families)
        if memory.spares(asked):
            return
        self.found.tallies[rules].note(way, asked)
        if not recorded.refused:
            memory.approve(asked)

    def _is_given(self, rules: SceneRules, asked: EscalatedStep) -> bool:
        if not self.assumed.kept:
            return False
        key = rules, str(asked.workspace)
        if key not in self._given:
            workspace = RealPath.from_text(key[1])
            self._given[key] = given(self.assumed.kept, workspace, _TOOLS)
        return self._given[key].spares(asked)


def is_contained(asked: EscalatedStep) -> bool:
    """Return whether the call needs no question on a machine with a sandbox.

    Assumes a timeline that holds the workspace, and a confined server without network that may
    write there and in its own `/tmp`.
    """
    return why_asked(_considered(asked)) is None


def is_held(asked: EscalatedStep) -> bool:
    """Return whether the sandbox would hold the local parts of the command."""
    return asked.facts.command is not None and why_not_held(_considered(asked)) is None


def _considered(asked: EscalatedStep) -> ContainmentInput:
    place = asked.facts.place
    held = SandboxRestrictions(writable=(asked.workspace,), temporary=None, is_offline=True)
    facts = replace(asked.facts, place=replace(place, writable=(*place.writable, *PLACES)))
    return ContainmentInput(
        facts=facts,
        judged=asked.judged,
        workspace=asked.workspace,
        restrictions=held,
        for_reviewers=rule_for_reviewers(facts.request, asked.policy),
        asked_to_read=is_asked_to_read(facts.request, asked.policy),
        tried="",
    )


# --- as text --------------------------------------------------------------------------------------
# A rehearsal as text.


_NAMES: Final[dict[SceneRules, str]] = {"shipped": "no preset"}
_TITLES: Final[dict[Savings, str]] = {
    "each": "asked each time",
    "remembered": "approved once",
    "contained": "and contained",
}
_MOST_NAMES: Final = 6


def lines_of(
    found: Rehearsed, recording: Recording, shown: SceneRules, most: int, *, with_grants: bool
) -> Iterator[str]:
    """Yield the report.

    Args:
        found: the result of the rehearsal.
        recording: the transcripts.
        shown: the rules whose questions are listed.
        most: the most examples of each kind.
        with_grants: whether there was a file of grants.
    """
    yield f"{found.calls} calls of {found.sessions} sessions in {recording.files} files"
    yield from _left_out(found, recording)
    yield ""
    yield (
        f"{'questions per 100 calls':<24}"
        + "".join(f"{_TITLES[way]:>17}" for way in WAYS)
        + (f"{'denied':>10}")
    )
    for rules in RULES:
        tally = found.tallies[rules]
        cells = [f"{per_100(tally.asked[way], found.calls):.2f}" if _has(rules, way, tally) else "-"
                 for way in WAYS]  # fmt: skip
        denied = f"{per_100(tally.denied, found.calls):.2f}"
        yield (
            f"  {_NAMES.get(rules, rules):<22}"
            + "".join(f"{cell:>17}" for cell in cells)
            + (f"{denied:>10}")
        )
        if with_grants:
            spared, all_ = tally.spared_by_grants, tally.asked["each"]
            yield f"    the grants of the file would have spared {spared} of {all_}"
    yield from _questions(found, shown, most)


def _has(rules: SceneRules, way: Savings, tally: Tally) -> bool:
    if way == "each":
        return True
    return way in tally.asked or (rules == "coding" or (way == "remembered" and rules != "shipped"))


def _left_out(found: Rehearsed, recording: Recording) -> Iterator[str]:
    broken = recording.broken_lines + found.broken
    if broken:
        yield f"{broken} lines or calls are broken: passed over"
    for reason in recording.unreadable:
        yield f"cannot be read: {reason}"
    if recording.other_files:
        yield f"{recording.other_files} files hold no transcript of a known format"
    if found.without_place:
        yield (f"{found.without_place} calls do not say where they were made: "
               "name the directory with --workspace")  # fmt: skip
    if found.passed_over:
        names = [name for name, _ in found.passed_over.most_common(_MOST_NAMES)]
        more = " …" if len(found.passed_over) > _MOST_NAMES else ""
        total = sum(found.passed_over.values())
        yield f"{total} calls of other tools are not rehearsed: {', '.join(names)}{more}"


def _questions(found: Rehearsed, shown: SceneRules, most: int) -> Iterator[str]:
    tally = found.tallies[shown]
    for way in WAYS:
        kinds = tally.kinds.get(way)
        if not kinds:
            continue
        yield ""
        yield f"{_NAMES.get(shown, shown)}, {_TITLES[way]}: {tally.asked[way]} questions"
        for kind, number in kinds.most_common():
            yield f"  {number:6}  {kind}"
            for example, times in tally.examples[way, kind].most_common(most):
                yield f"          {times:6}  {example}"
    if tally.denials:
        yield ""
        yield f"{_NAMES.get(shown, shown)}, denied: {tally.denied} calls"
        for rule, number in tally.denials.most_common():
            yield f"  {number:6}  {rule}"
