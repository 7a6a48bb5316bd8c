"""Rules that would have spared questions, found in recorded calls.

Greedy: the rule that spares the most questions comes first, and of equal ones the narrowest; what
it spares is taken away, and the next is looked for. A rule that would allow a call which a person
denied is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ironcurtain_proxy.config.policy.difference import all_rules
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy
from ironcurtain_proxy.config.policy.proposing import RuleProposal, is_never_general, proposals
from ironcurtain_proxy.model.decider import HUMAN, Nobody, Person, in_record, of_record
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import OTHERS_LAYERS
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.wiring.replaying import LoggedCall, Replayed, Replaying, ReplayTally, call_in

_MOST_CALLS: Final = 2000
"""The most different calls that are judged."""
_MOST_RULES: Final = 200
"""The most different rules that are tried."""


@dataclass(frozen=True, slots=True)
class RepeatedQuestion:
    """A recorded call with a question that would be asked again."""

    call: Replayed
    questions: int
    denied: int
    """The number of a person's refusals."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule, and the questions that it would have spared."""

    rule: RuleProposal
    calls: tuple[RepeatedQuestion, ...]

    @property
    def spared(self) -> int:
        """The number of questions."""
        return sum(one.questions for one in self.calls)


@dataclass(slots=True)
class SuggestionReport:
    """The findings in the log about the policy."""

    tally: ReplayTally
    questions: int = 0
    """Recorded questions whose calls would be asked about again."""
    never_general: int = 0
    """The number of questions for which no rule is proposed, because of their kind."""
    suggestions: list[Suggestion] = field(default_factory=list)
    unused_rules: list[str] = field(default_factory=list)
    unused_tools: list[str] = field(default_factory=list)


class Suggesting:
    """The search for rules."""

    def __init__(
        self,
        replaying: Replaying,
        loaded: LoadedPolicy,
        is_directory: Callable[[RealPath], bool],
    ) -> None:
        """Keep the policy in force, and the judge of calls."""
        self._replaying = replaying
        self._loaded = loaded
        self._is_directory = is_directory

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
            one = await self._replaying.call(first.server, first.tool, first.arguments)
            if one.effect == "escalate" and isinstance(one.gathered, Facts):
                asked.append(RepeatedQuestion(one, questions, denied))
        found.questions = sum(one.questions for one in asked)
        general = [one for one in asked if not is_never_general(_facts(one))]
        found.never_general = found.questions - sum(one.questions for one in general)
        found.suggestions = self._suggestions(asked, general, least)
        found.unused_rules = [
            rule.name
            for rule in all_rules(self._loaded.policy)
            if rule.layer not in OTHERS_LAYERS and rule.name not in used_rules
        ]
        names = {(servers.get(server, server), tool) for server, tool in used_tools}
        found.unused_tools = [
            f"{server}/{tool}"
            for server, tool in sorted(set(self._loaded.annotations) - names)
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
            if (
                call is None
                or not _was_asked(call.fields)
                or not self._replaying.knows(call.server)
            ):
                continue
            key = (call.server, call.tool, call.written)
            if key not in calls and len(calls) >= _MOST_CALLS:
                tally.passed_over[f"more than {_MOST_CALLS} different calls"] += 1
                continue
            calls.setdefault(key, call)
            questions[key] += 1
            denials[key] += _was_declined(call.fields)
        return [(call, questions[key], denials[key]) for key, call in calls.items()]

    def _suggestions(
        self, asked: Sequence[RepeatedQuestion], general: Sequence[RepeatedQuestion], least: int
    ) -> list[Suggestion]:
        policy = self._loaded.policy
        tried: dict[RuleProposal, None] = {}
        for one in sorted(general, key=lambda one: -one.questions):
            for proposal in proposals(_facts(one), policy, self._is_directory):
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
        """The calls that the rule allows, and about which nothing else asks."""
        changed = proposal.first_in(self._loaded.policy)
        found: list[RepeatedQuestion] = []
        for one in asked:
            request = _facts(one).request
            if (request.server, request.tool) != (proposal.server, proposal.tool):
                continue
            call = one.call
            judged = self._replaying.judged(call.gathered, changed, call.server, call.tool)
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
    """Whether a person was asked, or should have been; a repeated call counts once."""
    decision = fields.get("policyDecision")
    status = decision.get("status") if isinstance(decision, dict) else None
    if status != "escalate" or fields.get("refusedBy") == "held":
        return False
    said = fields.get("decidedBy")
    is_person = not said or isinstance(of_record(str(said)), Person | Nobody)
    return is_person or fields.get("refusedBy") == "no-reviewer"


def _was_declined(fields: Mapping[str, object]) -> bool:
    return fields.get("escalationResult") == "denied" and fields.get("decidedBy") == in_record(
        HUMAN
    )
