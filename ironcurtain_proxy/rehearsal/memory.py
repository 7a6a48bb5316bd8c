"""Simulated approvals in a rehearsal, and the questions that are left, counted.

Each approval remembers the first candidate.

Approvals and grants are those of `serve`. Of a command the whole tool is never remembered, and the
identical call for its session. A call that the recorded user refused is not remembered.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import goes_by_name
from ironcurtain_proxy.facts.client_tools import ServerCall
from ironcurtain_proxy.facts.live_catalogue import fingerprint
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook, Remembered
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.grant_settlement import Approvals, Claim, NewGrantTerms
from ironcurtain_proxy.grants.patterns import EscalatedCall
from ironcurtain_proxy.mediation.question import Frame, QuestionInput, question_about
from ironcurtain_proxy.model.annotation import ToolsAlike
from ironcurtain_proxy.model.case import Judgement
from ironcurtain_proxy.model.decision import HUMAN, Escalate
from ironcurtain_proxy.model.escalation import Approved, EscalationId
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    Grant,
    ToolPattern,
)
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.request import Facts, PathValue
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.rehearsal.transcripts import as_tool_call
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.families import families_of

_WHEN: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""The fixed time of a rehearsal, in which nothing expires."""
DEFINITION: Final = "rehearsed"
"""Stands for the digest of a tool's definition."""


class EscalatedStep(Struct, frozen=True, kw_only=True):
    """An escalated call."""

    session: str
    call: ServerCall
    facts: Facts
    judged: Judgement
    policy: Policy
    home: RealPath
    workspace: RealPath
    alike: ToolsAlike
    held: bool = False
    """Whether a sandbox holds the local parts of the command."""

    def escalated(self) -> EscalatedCall:
        """Return the call, for grants."""
        decision = self.judged.decision
        return EscalatedCall(
            server=self.call.server,
            tool=self.call.tool,
            definition=DEFINITION,
            request=self.facts.request,
            arguments=self.facts.arguments,
            roles=decision.roles if isinstance(decision, Escalate) else (),
            command=self.facts.command,
            place=self.facts.place,
            held=self.held,
            goes_by_name=bool(self.facts.acts_by_itself)
            or goes_by_name(self.facts.request, self.policy),
        )


def _none() -> Approvals:
    return Approvals(GrantBook(), BudgetBook())


class Memory(Struct):
    """The approvals of one project."""

    approvals: Approvals = msgspec.field(default_factory=_none)
    families: Approvals = msgspec.field(default_factory=_none)
    """Those of commands in this project and in the other worktrees of its repository."""
    _session: str = ""
    _number: int = 0

    def spares(self, asked: EscalatedStep) -> bool:
        """Return whether an earlier approval covers the call."""
        if asked.session != self._session:
            self._session = asked.session
            for one in self.approvals.grants.list():
                if isinstance(one.grant.pattern, CallPattern):
                    self.approvals.grants.revoke(one.grant.id)
        claim = Claim(call=asked.escalated(), reasons=asked.judged.reasons)
        return any(not one.use(claim, _WHEN).open for one in (self.families, self.approvals))

    def restore(self, kept: Remembered) -> None:
        """Add a kept grant, whatever its server says of the tool: no rehearsal knows that."""
        pattern = kept.grant.pattern
        if not isinstance(pattern, CapabilityPattern):
            there = replace(pattern, definition=DEFINITION)
            lasting = replace(kept.grant, pattern=there, expires=None)
            self.approvals.grants.restore(replace(kept, grant=lasting))

    def covering(self, asked: EscalatedStep) -> tuple[Grant, ...]:
        """Return the approvals that a call would use, or none if somebody is asked."""
        cover = self.approvals.look(
            Claim(call=asked.escalated(), reasons=asked.judged.reasons), _WHEN
        )
        return () if cover.open else cover.grants

    def approve(self, asked: EscalatedStep) -> str:
        """Remember the first candidate. Return what it covers, or nothing if there is none."""
        call = asked.escalated()
        question = question_about(self._posed(asked, call), _frame(asked))
        first = next(iter(question.candidates), None)
        if first is None or (call.command is not None and isinstance(first, ToolPattern)):
            return ""
        how = NewGrantTerms(new_id=self._new_id, now=_WHEN)
        into = self.families if isinstance(first, FamilyPattern) else self.approvals
        into.remember(question, Approved(by=HUMAN, remember=0), call, how)
        return first.description

    def _new_id(self) -> str:
        self._number += 1
        return str(self._number)

    def _posed(self, asked: EscalatedStep, call: EscalatedCall) -> QuestionInput:
        return QuestionInput(
            id=EscalationId(self._new_id()),
            now=_WHEN,
            call=as_tool_call(asked.call),
            facts=asked.facts,
            asked=call,
            reasons=asked.judged.reasons,
            fingerprint=_fingerprint(asked),
            directories=_directories(asked),
            alike=asked.alike,
        )


def _fingerprint(asked: EscalatedStep) -> str:
    return fingerprint(asked.call.server, asked.call.tool, asked.facts.arguments)


def _frame(asked: EscalatedStep) -> Frame:
    return Frame(
        session="rehearsed",
        in_force=PolicyInForce(policy=asked.policy),
        home=asked.home,
        patience=timedelta(minutes=5),
    )


def _directories(asked: EscalatedStep) -> frozenset[RealPath]:
    """Return the directories among the paths of a call."""
    values = [value for fact in asked.facts.request.arguments for value in fact.values]
    named = [value.path for value in values if isinstance(value, PathValue)]
    # One of a search or a listing that is not on this machine is taken for a directory.
    is_one = asked.call.tool in {"search_files", "list_directory"}
    return frozenset(
        [path for path in named if Path(str(path)).is_dir()
         or (is_one and not Path(str(path)).is_file())]
    )  # fmt: skip


def given(kept: Sequence[KeptGrant], workspace: RealPath, tools: Sequence[ServerCall]) -> Memory:
    """Return a memory with the grants of a file.

    Args:
        kept: the grants. A grant of another project, or of a tool that no rehearsed server has,
            does not count.
        workspace: the project.
        tools: those of the rehearsed servers.
    """
    servers = {one.tool: one.server for one in tools}
    memory = Memory()
    for one in kept:
        grant = one.remembered.grant
        pattern = grant.pattern
        if one.workspace not in {None, workspace} or isinstance(pattern, CapabilityPattern):
            continue
        if pattern.tool in servers:
            there = replace(grant, pattern=replace(pattern, server=servers[pattern.tool]))
            memory.restore(replace(one.remembered, grant=there))
    return memory


# --- the questions, counted -----------------------------------------------------------------------
# Counts of the questions in a rehearsal.


Savings: TypeAlias = Literal["each", "remembered", "contained"]
"""The savings: none; by approvals for the project; and also by the sandbox and the timeline."""

WAYS: Final[tuple[Savings, ...]] = ("each", "remembered", "contained")
_LONGEST: Final = 100


class Tally(Struct):
    """The questions of one set of rules."""

    asked: Counter[Savings] = msgspec.field(default_factory=Counter)
    denied: int = 0
    spared_by_grants: int = 0
    """The questions without savings that the grants of a file cover."""
    kinds: dict[Savings, Counter[str]] = msgspec.field(default_factory=dict)
    examples: dict[tuple[Savings, str], Counter[str]] = msgspec.field(default_factory=dict)
    denials: Counter[str] = msgspec.field(default_factory=Counter)
    """The number of denials by rule."""

    def note(self, way: Savings, asked: EscalatedStep) -> None:
        """Count a question."""
        kind = kind_of(asked)
        self.asked[way] += 1
        self.kinds.setdefault(way, Counter())[kind] += 1
        self.examples.setdefault((way, kind), Counter())[_example(asked)] += 1

    def as_json(self, calls: int, most: int) -> Mapping[str, Json]:
        """Return the tally as JSON."""
        return {
            "denied": self.denied,
            "denials": dict(self.denials),
            "sparedByGrants": self.spared_by_grants,
            "ways": {
                way: {
                    "questions": self.asked[way],
                    "per100": per_100(self.asked[way], calls),
                    "kinds": {
                        kind: {
                            "questions": number,
                            "examples": dict(self.examples[way, kind].most_common(most)),
                        }
                        for kind, number in self.kinds.get(way, Counter()).most_common()
                    },
                }
                for way in WAYS
                if way in self.asked
            },
        }


def per_100(questions: int, calls: int) -> float:
    """Return questions per 100 calls."""
    return round(100 * questions / calls, 2) if calls else 0.0


def kind_of(asked: EscalatedStep) -> str:
    """Return the subject of a question, as text."""
    ground = asked.judged.reasons[0].ground
    if ground.rule in _KINDS:
        return _KINDS[ground.rule]
    if asked.facts.command is not None:
        return _EFFECTS[effect_of(asked.facts.command, asked.facts.place).effect]
    return ground.rule


_KINDS: Final[Mapping[str, str]] = {
    "ask-read-secret-file": "reads a file that usually holds secrets",
    "escalate-read-secret-file": "reads a file that usually holds secrets",
    "ask-change-secret-file": "changes a file that usually holds secrets",
    "escalate-change-secret-file": "changes a file that usually holds secrets",
    "ask-read-elsewhere": "reads outside the workspace",
    "escalate-read-outside-workspace": "reads outside the workspace",
    "ask-change-elsewhere": "changes files outside the workspace",
    "escalate-write-outside-workspace": "changes files outside the workspace",
    "escalate-delete-outside-workspace": "changes files outside the workspace",
    "ask-network": "fetches a URL",
    "escalate-fetch": "fetches a URL",
}
_EFFECTS: Final[Mapping[str, str]] = {
    "reads": "a command that only reads",
    "local": "a command that works inside the machine",
    "unknown": "a command that cannot be read",
    "beyond": "a command that writes or deletes elsewhere",
    "outward": "a command that reaches out",
}


def _example(asked: EscalatedStep) -> str:
    """Return the kind of command, or the place; equal texts are counted together."""
    facts = asked.facts
    if facts.command is not None:
        families = families_of(facts.command, facts.place)
        words = [family.words() for family in families or ()]
        return _short(" && ".join(words) or str(facts.arguments.get("command", "")))
    return _short(_named(facts))


def _named(facts: Facts) -> str:
    values = [value.text for fact in facts.request.arguments for value in fact.values]
    return values[0] if values else facts.request.tool


def _short(text: str) -> str:
    line = " ".join(text.split())
    shown = "".join([char if char.isprintable() else "�" for char in line])
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
