"""Recorded calls judged again, and rules that would have spared questions.

Calls are judged by the policy in force and by a candidate. The facts of a call are gathered once,
here and now: what a link led to when the call was made is not recorded. Nothing is started,
forwarded or written. Judgement, overlay and facts are the parts of `serve`; the annotations are
those of the policy in force.

The search for rules is greedy: the rule that spares the most questions comes first, and of equal
ones the narrowest; what it spares is taken away, and the next is looked for. A rule that would
allow a call which a person denied is left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.approval.overlay import tool_names
from ironcurtain_proxy.config.policy.policy_file import all_rules
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.policy.proposing import RuleProposal, is_never_general, proposals
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.facts.live_catalogue import CataloguedTool
from ironcurtain_proxy.facts.resolver import Resolver
from ironcurtain_proxy.mediation.judge import NamedTool, Overlay, judge
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.crossing import operation_of, recorded_as
from ironcurtain_proxy.model.decision import (
    HUMAN,
    Effect,
    Nobody,
    Person,
    effect_of,
    in_record,
    of_record,
)
from ironcurtain_proxy.model.operation import TOOL_CALL, Operation, RequestId
from ironcurtain_proxy.model.policy import OTHERS_LAYERS, Policy
from ironcurtain_proxy.model.request import Facts, Gathered
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Arguments, RealPath, object_of
from ironcurtain_proxy.wiring.call_facts import command_argument, overlay_for, resolver_for

# --- replaying


_CHANGED: Final = re.compile(rb"\[redacted|\xe2\x80\xa6\[|\*{4}")
"""Marks in arguments that the audit log masked or cut."""
_OWN: Final = frozenset({"ironcurtain", "unknown", ""})
_MOST_KNOWN: Final = 50_000


class Replayed(Struct, frozen=True):
    """A recorded call, judged."""

    server: str
    tool: str
    arguments: Arguments
    gathered: Gathered
    judged: Judgement
    """The judgement of the policy in force."""
    other: Judgement | None
    """The judgement of the candidate, or None if there is none."""
    count: int = 1

    @property
    def differs(self) -> bool:
        """Whether the candidate decides otherwise."""
        return self.other is not None and self.effect != self.other_effect

    @property
    def effect(self) -> Effect:
        """The decision of the policy in force."""
        return effect_of(self.judged.decision)

    @property
    def other_effect(self) -> Effect:
        """The decision of the candidate, or of the policy where there is none."""
        return effect_of((self.other or self.judged).decision)


class ReplayTally(Struct):
    """The counts of the lines of a log."""

    lines: int = 0
    calls: int = 0
    replayed: int = 0
    passed_over: Counter[str] = field(default_factory=Counter)
    """Calls that cannot be replayed, by the reason."""


class Replaying:
    """Judges recorded calls."""

    def __init__(
        self,
        settings: Settings,
        loaded: LoadedPolicy,
        environ: Mapping[str, str],
        candidate: Policy | None = None,
    ) -> None:
        """Join the parts of `serve`. Servers that only the log names are judged by name."""
        named = {server for server, _ in loaded.annotations}
        configured = {spec.name: spec for spec in settings.servers}
        more = [
            ServerSpec(name=name, command="true", annotations=name)
            for name in sorted(named - configured.keys())
        ]
        self._settings = replace(settings, servers=(*settings.servers, *more))
        self._known_as = {spec.name: spec.annotations for spec in self._settings.servers}
        self._loaded = loaded
        self._candidate = candidate
        self._overlay: Overlay = overlay_for(settings, ())
        self._tools: dict[tuple[str, str], CataloguedTool] = {}
        self._names = partial(tool_names, is_unique=len(configured) == 1)
        self._resolver: Resolver = resolver_for(
            self._settings,
            loaded,
            self._lookup,
            environ,
            command_argument(self._overlay, self._names),
            {},
        )
        # No log says which tools declared a view when it was read.
        self._resolver.declares_view = lambda _server, _uri: True

    async def call(self, server: str, tool: str, arguments: Arguments) -> Replayed:
        """Judge one call.

        Raises:
            KeyError: no server of this name is configured or annotated.
        """
        if server not in self._known_as:
            raise KeyError(server)
        asked = recorded_as(server, tool, arguments)
        call = (
            _call_of(server, tool, arguments)
            if asked is None
            else operation_of(asked, RequestId("replayed"))
        )
        gathered = await self._resolver.gather(call)
        return Replayed(
            server,
            tool,
            arguments,
            gathered,
            self.judged(gathered, self._loaded.policy, server, tool),
            None
            if self._candidate is None
            else self.judged(gathered, self._candidate, server, tool),
        )

    def knows(self, server: str) -> bool:
        """Return whether a server of this name is configured or annotated."""
        return server in self._known_as

    def judged(self, gathered: Gathered, policy: Policy, server: str, tool: str) -> Judgement:
        """Return the judgement of a call by another policy."""
        asked = recorded_as(server, tool, {})
        return judge(
            gathered,
            policy,
            self._overlay,
            NamedTool(server, tool, self._names(server, tool)),
            TOOL_CALL if asked is None else asked.method,
        )

    def _lookup(self, server: str, tool: str) -> CataloguedTool:
        known = self._tools.get((server, tool))
        if known is None:
            known_as = self._known_as[server]
            annotation = self._loaded.annotations.get((known_as, tool))
            known = CataloguedTool.described(server, known_as, tool, annotation)
            self._tools[server, tool] = known
        return known

    async def log(self, lines: Iterable[bytes | None], tally: ReplayTally) -> Sequence[Replayed]:
        """Judge each call of a log once; the tally is filled.

        Returns:
            The calls that the candidate decides otherwise; identical calls are counted.
        """
        found: dict[tuple[str, str, bytes], Replayed | None] = {}
        extra: list[Replayed] = []
        for raw in lines:
            tally.lines += 1
            fields = call_in(raw, tally)
            if fields is None:
                continue
            server, tool, arguments, written, _ = fields
            key = (server, tool, written)
            if server not in self._known_as:
                tally.passed_over["no such server is configured or annotated"] += 1
                continue
            tally.replayed += 1
            if key in found:
                known = found[key]
                found[key] = None if known is None else replace(known, count=known.count + 1)
                continue
            one = await self.call(server, tool, arguments)
            if len(found) < _MOST_KNOWN:
                # What does not differ is not kept: a log is long.
                found[key] = one if one.differs else None
            elif one.differs:
                extra.append(one)
        return [*[one for one in found.values() if one is not None], *extra]


def _call_of(server: str, tool: str, arguments: Arguments) -> Operation:
    return Operation(
        request_id=RequestId("replayed"),
        exposed_name=f"{server}__{tool}",
        server=server,
        tool=tool,
        arguments=arguments,
        params={},
    )


class LoggedCall(NamedTuple):
    """A call whose end a line records."""

    server: str
    tool: str
    arguments: Arguments
    written: bytes
    """The arguments as JSON."""
    fields: Mapping[str, object]


def call_in(
    raw: bytes | None,
    tally: ReplayTally,
    reached: tuple[set[str], set[tuple[str, str]]] | None = None,
) -> LoggedCall | None:
    """Return the call whose end a line records, or None if there is none, or it cannot be judged.

    Args:
        raw: the line.
        tally: is added to.
        reached: gets the names of rules and the tools of all calls, also of those left out.
    """
    try:
        fields = None if raw is None else orjson.loads(raw)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        tally.passed_over["the line is no record"] += 1
        return None
    server, tool, arguments = (fields.get(name) for name in ("serverName", "toolName", "arguments"))
    if fields.get("phase") in {"intent", "counted"} or server in _OWN:
        return None
    tally.calls += 1
    if not isinstance(server, str) or not isinstance(tool, str) or not isinstance(arguments, dict):
        tally.passed_over["the line is no record"] += 1
        return None
    if reached is not None:
        decision = fields.get("policyDecision")
        reached[0].add(str(decision.get("rule")) if isinstance(decision, dict) else "")
        reached[1].add((server, tool))
    if "argumentsDigest" in fields:
        tally.passed_over["an argument is cut"] += 1
        return None
    written = orjson.dumps(arguments)
    if changed := what_changed(written):
        tally.passed_over[changed] += 1
        return None
    return LoggedCall(server, tool, arguments, written, fields)


def what_changed(arguments: bytes) -> str:
    """Return what the audit log did to arguments, or an empty text if it left them whole."""
    mark = _CHANGED.search(arguments)
    if mark is None:
        return ""
    return "an argument is cut" if mark.group().startswith(b"\xe2") else "an argument is masked"


# --- suggesting


_MOST_CALLS: Final = 2000
"""The most different calls that are judged."""
_MOST_RULES: Final = 200
"""The most different rules that are tried."""


class RepeatedQuestion(Struct, frozen=True):
    """A recorded call with a question that would be asked again."""

    call: Replayed
    questions: int
    denied: int
    """The number of a person's refusals."""


class Suggestion(Struct, frozen=True):
    """A rule, and the questions that it would have spared."""

    rule: RuleProposal
    calls: tuple[RepeatedQuestion, ...]

    @property
    def spared(self) -> int:
        """The number of questions."""
        return sum(one.questions for one in self.calls)


class SuggestionReport(Struct):
    """The findings in the log about the policy."""

    tally: ReplayTally
    questions: int = 0
    """Recorded questions whose calls would be asked about again."""
    never_general: int = 0
    """The number of questions for which no rule is proposed, because of their kind."""
    suggestions: list[Suggestion] = field(default_factory=list)
    unused_rules: list[str] = field(default_factory=list)
    unused_tools: list[str] = field(default_factory=list)


class Suggesting(Struct, eq=False):
    """The search for rules."""

    replaying: Replaying
    loaded: LoadedPolicy
    is_directory: Callable[[RealPath], bool]

    async def find(
        self, lines: Iterable[bytes | None], servers: Mapping[str, str], least: int
    ) -> SuggestionReport:
        """Find suggestions in a log.

        Args:
            lines: its records.
            servers: by name, what the policy calls it.
            least: questions that a rule must spare.
        """
        found = SuggestionReport(ReplayTally())
        used_rules: set[str] = set()
        used_tools: set[tuple[str, str]] = set()
        recorded = self._read(lines, found.tally, (used_rules, used_tools))
        asked: list[RepeatedQuestion] = []
        for first, questions, denied in recorded:
            one = await self.replaying.call(first.server, first.tool, first.arguments)
            if one.effect == "escalate" and isinstance(one.gathered, Facts):
                asked.append(RepeatedQuestion(one, questions, denied))
        found.questions = sum(one.questions for one in asked)
        general = [
            one for one in asked if not is_never_general(_facts(one), self.loaded.policy.workspace)
        ]
        found.never_general = found.questions - sum(one.questions for one in general)
        found.suggestions = self._suggestions(asked, general, least)
        found.unused_rules = [
            rule.name
            for rule in all_rules(self.loaded.policy)
            if rule.layer not in OTHERS_LAYERS and rule.name not in used_rules
        ]
        names = {(servers.get(server, server), tool) for server, tool in used_tools}
        found.unused_tools = [
            f"{server}/{tool}"
            for server, tool in sorted(set(self.loaded.annotations) - names)
            if server in servers.values()
        ]
        return found

    def _read(
        self,
        lines: Iterable[bytes | None],
        tally: ReplayTally,
        reached: tuple[set[str], set[tuple[str, str]]],
    ) -> list[tuple[LoggedCall, int, int]]:
        """Different calls that a person was asked about, with the questions and the denials."""
        calls: dict[tuple[str, str, bytes], LoggedCall] = {}
        questions: Counter[tuple[str, str, bytes]] = Counter()
        denials: Counter[tuple[str, str, bytes]] = Counter()
        for raw in lines:
            tally.lines += 1
            call = call_in(raw, tally, reached=reached)
            if call is None or not _was_asked(call.fields) or not self.replaying.knows(call.server):
                continue
            key = (call.server, call.tool, call.written)
            if key not in calls and len(calls) >= _MOST_CALLS:
                tally.passed_over[f"more than {_MOST_CALLS} different calls"] += 1
                continue
            calls.setdefault(key, call)
            questions[key] += 1
            by = call.fields.get("decidedBy") == in_record(HUMAN)
            denials[key] += by and call.fields.get("escalationResult") == "denied"
        return [(call, questions[key], denials[key]) for key, call in calls.items()]

    def _suggestions(
        self, asked: Sequence[RepeatedQuestion], general: Sequence[RepeatedQuestion], least: int
    ) -> list[Suggestion]:
        policy = self.loaded.policy
        tried: dict[RuleProposal, None] = {}
        for one in sorted(general, key=lambda one: -one.questions):
            for proposal in proposals(_facts(one), policy, self.is_directory):
                if len(tried) < _MOST_RULES:
                    tried[proposal] = None
        reach: dict[RuleProposal, list[RepeatedQuestion]] = {}
        for proposal in tried:
            covered = self._covered(proposal, asked)
            if covered and all(not one.denied and one in general for one in covered):
                reach[proposal] = covered
        chosen: list[Suggestion] = []
        left = {id(one) for one in general}
        while reach:
            counts = {
                rule: sum(one.questions for one in calls if id(one) in left)
                for rule, calls in reach.items()
            }
            best = max(counts, key=lambda rule: (counts[rule], _narrowness(rule)))
            if counts[best] < max(least, 1):
                break
            spared = tuple([one for one in reach.pop(best) if id(one) in left])
            left -= {id(one) for one in spared}
            chosen.append(Suggestion(best, spared))
        return chosen

    def _covered(
        self, proposal: RuleProposal, asked: Sequence[RepeatedQuestion]
    ) -> list[RepeatedQuestion]:
        """Return the calls that the rule allows, and about which nothing else asks."""
        changed = proposal.first_in(self.loaded.policy)
        found: list[RepeatedQuestion] = []
        for one in asked:
            request = _facts(one).request
            if (request.server, request.tool) != (proposal.server, proposal.tool):
                continue
            call = one.call
            judged = self.replaying.judged(call.gathered, changed, call.server, call.tool)
            if effect_of(judged.decision) == "allow":
                found.append(one)
        return found


def _narrowness(rule: RuleProposal) -> tuple[int, int]:
    depth = 0 if rule.within is None else len(rule.within.parts)
    return depth, -len(rule.hosts)


def _facts(one: RepeatedQuestion) -> Facts:
    gathered = one.call.gathered
    if not isinstance(gathered, Facts):
        raise TypeError("a call without facts is denied, and never asked about")
    return gathered


def _was_asked(fields: Mapping[str, object]) -> bool:
    """Return whether a person was asked, or should have been; a repeated call counts once."""
    status = object_of(fields.get("policyDecision")).get("status")
    if status != "escalate" or fields.get("refusedBy") == "held":
        return False
    said = fields.get("decidedBy")
    is_person = not said or isinstance(of_record(str(said)), Person | Nobody)
    return is_person or fields.get("refusedBy") == "no-reviewer"
