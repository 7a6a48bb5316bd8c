"""The judgement of recorded calls, in order, as `serve` would have judged them, and its report."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import msgspec
from msgspec import Struct, structs

from ironcurtain_proxy.approval.containment import ContainmentInput, why_asked, why_not_held
from ironcurtain_proxy.config.presets.preset import preset
from ironcurtain_proxy.decision.authorizer import is_asked_to_read, rule_for_reviewers
from ironcurtain_proxy.facts.client_tools import TOOLS, ServerCall, as_server_call
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import Deny, Escalate
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import SandboxRestrictions
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.rehearsal.memory import (
    WAYS,
    EscalatedStep,
    Families,
    Memory,
    Savings,
    Tally,
    given,
    per_100,
)
from ironcurtain_proxy.rehearsal.scene import RULES, Scene, SceneRules, Scenes
from ironcurtain_proxy.rehearsal.transcripts import Recording, TranscriptCall
from ironcurtain_proxy.sandbox.private_tmp import PLACES

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


class _Player(Struct):
    scenes: Scenes
    assumed: Assumed
    found: Rehearsed = msgspec.field(default_factory=Rehearsed)
    _workspaces: dict[str, str] = msgspec.field(default_factory=dict)
    _memories: dict[tuple[SceneRules, Savings, str], Memory] = msgspec.field(default_factory=dict)
    _families: dict[tuple[SceneRules, Savings, str], Families] = msgspec.field(default_factory=dict)
    """The approved families, by the repository of the worktrees that share them."""
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
            self._count(rules, recorded, call, scene, gathered, judged)

    def _count(
        self,
        rules: SceneRules,
        recorded: TranscriptCall,
        call: ServerCall,
        scene: Scene,
        gathered: Gathered,
        judged: Judgement,
    ) -> None:
        tally = self.found.tallies[rules]
        if isinstance(judged.decision, Deny):
            tally.denied += 1
            tally.denials[judged.decision.ground.rule] += 1
            return
        if not isinstance(judged.decision, Escalate) or not isinstance(gathered, Facts):
            return
        asked = EscalatedStep(
            session=recorded.session,
            call=call,
            facts=gathered,
            judged=judged,
            policy=scene.judges[rules].policy,
            home=scene.home,
            workspace=scene.workspace,
        )
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
    facts = structs.replace(asked.facts, place=replace(place, writable=(*place.writable, *PLACES)))
    return ContainmentInput(
        facts=facts,
        judged=asked.judged,
        workspace=asked.workspace,
        restrictions=SandboxRestrictions(
            writable=(asked.workspace,), temporary=None, is_offline=True
        ),
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
