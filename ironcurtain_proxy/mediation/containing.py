"""Containment: a point before each call that may change the workspace, an inspection after it.

Theory of operation: a call needs no reviewer if its sandbox confines it and the timeline can undo
what it changes.

    escalated ── consent: why not contained? ── a reason ──▶ reviewer
                    │ none
                    ▼
                 prepare: point ──▶ forward, look what was left ──▶ close_point
                                              │
                                              ├─ a control place was put back ──▶ noted
                                              └─ that failed, or came often ──▶ containment ends

`prepare` repeats the check when the call's turn comes, because sandbox and session may have changed
while it waited. Hosts that a call tried to reach are remembered by its fingerprint, so that the
identical call is asked about with the host shown; so are files that were put back after a call.
Containment of the session ends, until a person has looked, where something could not be put back,
or came so often that it is no mishap.
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, assert_never

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.approval.containment import (
    ContainmentInput,
    hosts_of,
    may_change,
    programs_outside,
    runs_nothing_else,
    why_asked,
    why_not_held,
    why_open,
    written_outside,
    written_to_act,
)
from ironcurtain_proxy.decision.authorizer import (
    CONTAINED_SERVERS,
    is_asked_to_read,
    rule_for_reviewers,
)
from ironcurtain_proxy.mediation.escalated import Consent
from ironcurtain_proxy.mediation.journal import MOST_NAMED, listed
from ironcurtain_proxy.mediation.judge import BLOCKED, Attempts
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.case import Case, by_containment
from ironcurtain_proxy.model.decision import CONTAINMENT, HUMAN, Allow, Decider, Grants
from ironcurtain_proxy.model.grant import OPENS, SandboxOpening, shown_host
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.reply import Change, NotHeld, NotTaken, PathNotHeld, PointId
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.server import SandboxRestrictions, ToolResult
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.ports import Containment, Servers, World

_log = logging.getLogger(__name__)

_NOTE: Final = "uncontained"
"""The record field that says why a contained session still asked about a call."""
_MOST_TRIED: Final = 4096
"""The largest number of remembered calls that tried to leave; beyond it, no call is contained."""
_MOST_SAID: Final = 3
"""The largest number of paths that a question names; the rest are counted."""


class _Marked(Struct, frozen=True):
    """The point of a call, and the paths that the call is known to change."""

    point: PointId
    workspace: RealPath
    announced: tuple[RealPath, ...]

    def announces(self, change: Change) -> bool:
        """Return whether the call names the changed path, or needs a new directory there."""
        path = RealPath((*self.workspace.parts, *change.path.split("/")))
        return any(
            path.is_within(one) or (change.kind == "created" and one.is_within(path))
            for one in self.announced
        )


class Containing(Struct, kw_only=True):
    """Containment for the calls of one session."""

    world: World
    in_force: PolicyInForce
    _has_advised: bool = False
    """The log already says what to configure for files that are not held."""
    _points: dict[str, _Marked] = field(default_factory=dict)
    """The points of calls in progress."""
    _under_way: int = 0
    """The calls that are with a server and write at once."""
    attempts: Attempts = field(default_factory=Attempts)
    _kept_back: dict[str, tuple[NotTaken, ...]] = field(default_factory=dict)
    """The control places that a call was kept from changing, by the call's fingerprint."""
    _discarded: dict[str, str] = field(default_factory=dict)
    """Why the changes of a call were discarded, by the call's fingerprint."""
    _opened: dict[str, SandboxOpening] = field(default_factory=dict)
    """What was opened for a call in progress."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.in_force.policy

    async def consent(self, case: Case, facts: Facts) -> Consent | None:
        """Return the settlement of a contained call, with its point made.

        It is None if a reviewer is needed.
        """
        on = self.world.containment
        case.hold(held=False)
        if on is None:
            return None
        why = await self._why_asked(on, case, facts)
        if why is None and not self._has_view(case):
            why = await self._mark(case, facts, may_drop=False)
        if why is not None:
            case.note_instead(_NOTE, why)
            return None
        directories = await self.world.facts.directories(facts.request)
        case.settle(by_containment())
        roots = self.world.facts.roots(facts.request, directories)
        return Consent(reasons=case.judged.reasons, roots=roots)

    def blocked_host(self, case: Case) -> str:
        """Return the host that the sandbox kept an identical call from; empty if none."""
        return self.attempts.tried.get(self.world.fingerprint(case), "")

    def opening(self, case: Case, facts: Facts, tried: str) -> SandboxOpening | str | None:
        """Return the access that a call needs beyond its sandbox; a text: no approval grants it.

        This one value is shown in the question, bound into the approval, and opened.
        """
        found = opening_of(self.world.servers, case.call.server, facts, tried)
        workspace, places = self.policy.workspace, self._kept_places(case)
        if isinstance(found, str):
            return found
        if workspace is not None:
            kept = [RealPath((*workspace.parts, *one.split("/"))) for one in places]
            if self.world.views is not None and self._has_view(case):
                # A file that the command names is opened by the first question, not by a second
                # one. What a directory is to hold nobody knows yet.
                kept += self.world.views.files_among(written_to_act(facts, workspace))
            if kept:
                found = found or SandboxOpening()
                found = replace(found, paths=(*found.paths, *dict.fromkeys(kept)))
        named = () if found is None else map(str, found.paths)
        unnamed = [_quoted(one) for one in named if one != one.encode(errors="ignore").decode()]
        return f"no sandbox opens a name that is not UTF-8: {unnamed[0]}" if unnamed else found

    def needs_the_same(
        self, case: Case, facts: Facts, tried: str, opening: SandboxOpening | None
    ) -> bool:
        """Return whether a call still needs what its question showed.

        A credential that came to the disk meanwhile is not opened, and changes nothing else.
        """
        now = self.opening(case, facts, tried)
        if isinstance(now, SandboxOpening):
            now = replace(now, reads=() if opening is None else opening.reads)
            now = now if now.words() else None
        return now == opening

    def opening_seen(
        self, case: Case, facts: Facts, opening: SandboxOpening | None, by: Decider
    ) -> SandboxOpening | None:
        """Return the part of an opening that the party that approved has looked at."""
        match by.sight:
            case "question":
                return opening
            case "command":
                # It has seen the call alone: no host of a configuration, no path of a command, no
                # credential.
                hosts = hosts_of(facts)
                found = self.world.servers.opening(case.call.server, facts.request, hosts)
                return found if isinstance(found, SandboxOpening) else None
            case "nothing":
                return None
            case _:
                assert_never(by.sight)

    def record_opening(
        self, case: Case, facts: Facts, opening: SandboxOpening | None
    ) -> SandboxOpening | None:
        """Record the access beyond the sandbox of a call about to be forwarded, and return it."""
        settlement = case.settlement
        if settlement is None:
            return self._opened_before(case, facts) if self.attempts.opened else None
        if opening is None:
            return None
        host = self.blocked_host(case)
        is_shown = case.question is not None and host in opening.hosts
        is_blocked = case.judged.decision.ground.rule == BLOCKED
        if is_shown and is_blocked and not settlement.decided_by.is_automatic:
            # A person saw the host that an allowed call lacks: further calls get it, too.
            self.attempts.open(case.call.server, host)
        by_grant = isinstance(settlement.decided_by, Grants)
        if by_grant and not runs_nothing_else(facts):
            opening = replace(opening, reads=())
        self._opened[case.call.request_id] = opening
        case.note_instead("opened", list(opening.words()))
        return replace(opening, for_later=by_grant) if opening.words() else None

    def _opened_before(self, case: Case, facts: Facts) -> SandboxOpening | None:
        """Return the hosts that a person has opened to calls that the policy allows.

        Nothing else that the call names: a decision of the policy alone opens no sandbox.
        """
        opened = self.attempts.opened.get(case.call.server)
        if not opened:
            return None
        found = self.world.servers.opening(case.call.server, facts.request, [*opened])
        hosts = found.hosts if isinstance(found, SandboxOpening) else ()
        only = SandboxOpening(hosts=tuple([one for one in hosts if one in opened]), for_later=True)
        if not only.hosts:
            return None
        case.note_instead("opened", list(only.words()))
        return only

    def explanation(
        self, case: Case, facts: Facts, opening: SandboxOpening | None, tried: str
    ) -> tuple[tuple[str, str], ...]:
        """Return the explanation for the reviewer of why a call is asked, and what would open."""
        said = [("Not contained", str(why)) for name, why in case.notes if name == _NOTE]
        hosts = dict.fromkeys((*hosts_of(facts), *facts.place.every_host()))
        said += [("It reaches", ", ".join(map(shown_host, hosts)))] if hosts else []
        if opening is not None and opening.reads:
            needs = " and ".join(programs_outside(facts))
            said.append(("It reads", f"{needs} may need {', '.join(map(str, opening.reads))}"))
        said += [("The sandbox stopped it on its way to", shown_host(tried))] if tried else []
        if places := self._kept_back.get(self.world.fingerprint(case)):
            kept = ", ".join(listed(places, lambda one: f"{_quoted(one.path)} ({one.why})"))
            kept += f"; an approval opens the first {MOST_NAMED}" * (len(places) > MOST_NAMED)
            said.append(("It was kept from changing", kept))
        if opening is not None:
            said.append((OPENS, ", ".join(opening.shown())))
        return tuple(said)

    def _kept_places(self, case: Case) -> tuple[str, ...]:
        """Return the control places that an approval opens: those alone that the question names."""
        kept = self._kept_back.get(self.world.fingerprint(case), ())
        return tuple([one.path for one in kept[:MOST_NAMED]])

    def _has_view(self, case: Case) -> bool:
        """Return whether the call changes nothing until its changes are committed."""
        return self.world.views is not None and self.world.views.serves(case.call.server)

    async def prepare(self, case: Case, facts: Facts, *, must_have_point: bool) -> bool:
        """Make the point of a call about to be forwarded. False: its consent no longer holds."""
        on = self.world.containment
        if case.settlement is not None and case.settlement.decided_by == CONTAINMENT:
            ended = None if on is None else on.ended(writes=not self._has_view(case))
            if on is not None and ended is None and await self._restrictions_hold(case, on):
                return True
            # The call waited for its turn; the sandbox or the session may have changed.
            case.unsettle()
            return False
        if self.world.views is not None and self._has_view(case):
            # Its point is made when its changes come in.
            return True
        if self.world.timeline is not None:
            await self._mark(case, facts, may_drop=True)
        # Parts that nobody approved run because they can be taken back.
        must_have_point = must_have_point or (case.held and case.question is None)
        return not must_have_point or case.call.request_id in self._points

    def forward(
        self, case: Case, facts: Facts, sent: Awaitable[ToolResult]
    ) -> Awaitable[ToolResult]:
        """Forward a call, then inspect what it left behind, even if it failed or was withdrawn."""
        is_watched = self.world.lookout or (self.world.views and self._has_view(case))
        if not is_watched and case.call.request_id not in self._points:
            return sent
        return self._forward(case, facts, sent)

    async def _forward(self, case: Case, facts: Facts, sent: Awaitable[ToolResult]) -> ToolResult:
        with self._allowing(case, facts):
            writes = not self._has_view(case)
            self._under_way += writes
            try:
                result = await sent
                return await self._commit(case, result) if result.view else result
            finally:
                self._under_way -= writes
                with anyio.CancelScope(shield=True):
                    await self._stand_still(case, facts)
                    await self._look(case)
                    await self.close_point(case)

    async def _stand_still(self, case: Case, facts: Facts) -> None:
        """Let nothing that a contained call left running act before the next call.

        What a person approved goes on; the judgement of a model, of the engine or of an earlier
        approval is about the call alone, and lifts nothing.
        """
        settlement, server = case.settlement, case.call.server
        if facts.command is None and facts.request.effect != "runs":
            return
        is_contained = settlement is not None and settlement.decided_by == CONTAINMENT
        if is_contained or (case.held and case.question is None):
            await self.world.servers.stand_still(server)
        elif (
            settlement is not None
            and settlement.decided_by == HUMAN
            and case.call.request_id not in self._opened
        ):
            # What is opened beyond the sandbox was done by another instance.
            self.world.servers.release(server)

    def _allowing(self, case: Case, facts: Facts) -> AbstractContextManager[None]:
        """Let the call change the files of agents, editors and shells that it names.

        A rule, or somebody, has seen the path of what a tool writes; of a command only a person.
        """
        settlement, workspace = case.settlement, self.policy.workspace
        is_contained = settlement is not None and settlement.decided_by == CONTAINMENT
        if self.world.lookout is None or is_contained or workspace is None:
            return nullcontext()
        allowed = [
            *may_change(facts, workspace),
            *self._opened.get(case.call.request_id, SandboxOpening()).paths,
        ]
        by_person = settlement is not None and settlement.decided_by == HUMAN
        # A person has read a command and what it names; nobody else has.
        allowed += written_to_act(facts, workspace) if by_person else ()
        return self.world.lookout.allowing([str(one) for one in allowed], by_person=by_person)

    async def _commit(self, case: Case, result: ToolResult) -> ToolResult:
        """Bring what a command changed in its view into the workspace."""
        from ironcurtain_proxy.mediation.committing import commit  # noqa: PLC0415  for our own shell alone

        done = await commit(self.world, case, result)
        fingerprint = self.world.fingerprint(case)
        self._kept_back.pop(fingerprint, None)
        if done.kept_back and len(self._kept_back) < _MOST_TRIED:
            self._kept_back[fingerprint] = done.kept_back
        if done.why_not and len(self._discarded) < _MOST_TRIED:
            self._discarded[fingerprint] = done.why_not
        if done.changes:
            case.note(("changed", _named(done.changes)), ("changes", len(done.changes)))
        return done.result

    def note_attempt(self, case: Case, host: str) -> None:
        """Note the host that the sandbox kept a call from."""
        case.note_instead("blocked", f"host {host}")
        if len(self.attempts.tried) < _MOST_TRIED:
            self.attempts.tried[self.world.fingerprint(case)] = host

    def can_be_repeated(self, case: Case, facts: Facts, result: ToolResult) -> bool:
        """Tell whether a call was done, stayed on this machine, and only read or has its point."""
        if result.result is None or result.result.get("isError") is True:
            return False
        if isinstance(case.decision, Allow) and _only_reads(facts):
            return True
        if not case.notes:
            return False
        has_point = self._has_view(case) or any(name == "point" for name, _ in case.notes)
        is_contained = case.settlement is not None and case.settlement.decided_by == CONTAINMENT
        return has_point and (is_contained or facts.command is None) and not case.put_back

    @property
    def is_idle(self) -> bool:
        """Whether no call in progress has a point or an opening."""
        return not (self._points or self._opened)

    async def close_point(self, case: Case) -> None:
        """Close the point of a call, whether or not it was forwarded. Never fails."""
        self._opened.pop(case.call.request_id, None)
        timeline, marked = self.world.timeline, self._points.pop(case.call.request_id, None)
        if timeline is None or marked is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                changes = await timeline.end_call(marked.point)
            except Exception:  # noqa: BLE001  the record of the call is worth more
                _log.exception("the changes of call %s could not be noted", case.call.request_id)
                return
        if isinstance(changes, NotHeld):
            case.note_instead("notHeld", changes.reason)
            return
        if changes:
            case.note(("changed", _named(changes)), ("changes", len(changes)))
        besides = [one for one in changes if not marked.announces(one)]
        if besides:
            case.note(("sideEffects", _named(besides)))

    async def _why_asked(self, on: Containment, case: Case, facts: Facts) -> str | None:
        ended = on.ended(writes=not self._has_view(case))
        if ended is not None:
            return f"containment has ended: {ended}"
        if (earlier := self._why_of_earlier(case)) is not None:
            return earlier
        workspace = self.policy.workspace
        if not on.is_same_workspace():
            return "the workspace is another directory than at the start"
        restrictions = await self.world.servers.restrictions(case.call.server)
        about = ContainmentInput(
            facts=facts,
            judged=case.judged,
            workspace=workspace,
            restrictions=restrictions,
            for_reviewers=rule_for_reviewers(facts.request, self.policy),
            asked_to_read=is_asked_to_read(facts.request, self.policy),
            tried=self.blocked_host(case),
        )
        if workspace is None or why_not_held(about) is not None:
            return why_asked(about)
        unheld = None
        if not self._has_view(case):
            unheld = await self._why_unheld(case, facts, workspace, restrictions)
        case.hold(held=unheld is None and facts.command is not None)
        return why_asked(about) or unheld

    def _why_of_earlier(self, case: Case) -> str | None:
        """Return why earlier calls make this one a reviewer's, or None."""
        known = (self.attempts.tried, self._kept_back, self._discarded)
        if any(len(one) >= _MOST_TRIED for one in known):
            return "too many calls have tried to leave the sandbox"
        if places := self._kept_places(case):
            return f"the same call was kept from changing {', '.join(map(_quoted, places))}"
        return self._discarded.get(self.world.fingerprint(case))

    async def _why_unheld(
        self,
        case: Case,
        facts: Facts,
        workspace: RealPath,
        restrictions: SandboxRestrictions | None,
    ) -> str | None:
        """Return why files that the call may delete could not be restored.

        It is None if they could.
        """
        for path in may_change(facts, workspace):
            missing = await self._unheld(path)
            # What the process cannot write to it cannot delete.
            open_to = [
                one for one in missing if restrictions is None or restrictions.can_write(one.path)
            ]
            if open_to:
                # If there can be no point at all, that reason says more.
                no_point = await self._mark(case, facts, may_drop=False)
                return no_point or self._said(open_to)
        return None

    def _said(self, unheld: Sequence[PathNotHeld]) -> str:
        named = ", ".join(map(str, unheld[:_MOST_SAID]))
        more = f" and {len(unheld) - _MOST_SAID} more" if len(unheld) > _MOST_SAID else ""
        if not self._has_advised:
            self._has_advised = True
            _log.warning(
                "calls that may delete these are asked about: %s%s; raise containment.max_bytes, "
                "or name them in denyWrite of the server's sandbox",
                *(named, more),
            )
        return f"what it may delete could not be brought back: {named}{more}"

    async def _unheld(self, path: RealPath) -> tuple[PathNotHeld, ...]:
        timeline = self.world.timeline
        try:
            if timeline is not None:
                return await timeline.unheld(path)
        except Exception:  # noqa: BLE001  what cannot be found out is asked about
            _log.exception("the timeline does not say what it holds")
        return (PathNotHeld(path, "the timeline met a fault"),)

    async def _restrictions_hold(self, case: Case, on: Containment) -> bool:
        restrictions, workspace = (
            await self.world.servers.restrictions(case.call.server),
            self.policy.workspace,
        )
        held = workspace is not None and why_open(restrictions, workspace) is None
        return held and on.is_same_workspace()

    async def _mark(self, case: Case, facts: Facts, *, may_drop: bool) -> str | None:
        """Make a call's point if it may change anything; otherwise say why that is not possible."""
        workspace, timeline, call = self.policy.workspace, self.world.timeline, case.call
        if workspace is None or timeline is None or call.request_id in self._points:
            return None
        announced = may_change(facts, workspace)
        if not announced:
            return None
        try:
            point = await timeline.mark(call.request_id, call.server, call.tool, may_drop=may_drop)
        except Exception:  # noqa: BLE001  what cannot be taken back is asked about
            _log.exception("there is no point before call %s", call.request_id)
            point = NotHeld("the timeline met a fault")
        if isinstance(point, NotHeld):
            case.note_instead("notHeld", point.reason)
            return f"it could not be taken back: {point.reason}"
        self._points[call.request_id] = _Marked(point, workspace, _announced(announced, facts))
        case.note(("point", point))
        return None

    async def _look(self, case: Case) -> None:
        if self.world.lookout is None:
            return
        case.clean(await self.world.lookout.look(is_last=not self._under_way))
        on = self.world.containment
        acting = [one.said for one in case.put_back if one.acts]
        # What ends it for all, before what ends it for some.
        ending = sorted([one for one in case.put_back if one.ends], key=lambda one: one.ends)
        if on is not None and ending:
            case.note(("containmentEnded", True))
            on.end(case.call.request_id, ending[0].said, ending[0].ends)
        elif acting and not self._has_view(case) and len(self._discarded) < _MOST_TRIED:
            why = f"after the same call, {'; '.join(acting[:_MOST_SAID])}"
            self._discarded[self.world.fingerprint(case)] = why


def opening_of(
    servers: Servers, server: str, facts: Facts, tried: str = ""
) -> SandboxOpening | str | None:
    """Return the access that a call needs beyond its server's sandbox, as `Containing.opening`."""
    hosts = [*hosts_of(facts), *facts.place.every_host(), tried]
    paths, programs = written_outside(facts), programs_outside(facts)
    return servers.opening(server, facts.request, hosts, paths, programs)


def _announced(paths: tuple[RealPath, ...], facts: Facts) -> tuple[RealPath, ...]:
    """Return the paths, and the repository whose history the call says that it writes."""
    repository = facts.request.repository
    roles = {role for fact in facts.request.arguments for role in fact.roles}
    if repository is None or roles.isdisjoint({"write-history", "delete-history"}):
        return paths
    return (*paths, repository)


def _quoted(path: str) -> str:
    return repr(path.encode("utf-8", "backslashreplace").decode())


def _named(changes: Iterable[Change]) -> list[Json]:
    return [
        f"{one.kind} {one.path}".encode("utf-8", "backslashreplace").decode()
        for one in sorted(changes, key=lambda one: one.path)[:MOST_NAMED]
    ]


_OF_READERS: Final = frozenset[ArgumentRole](
    (
        "read-path",
        "github-owner",
        "github-repo",
        "identifier",
        "resource-uri",
        "branch-name",
        "none",
    )
)
"""The roles that a call may name and only read. A URL may do anything."""


_READING: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})


def _only_reads(facts: Facts) -> bool:
    """Return whether a call only reads: by the word of the operator, or by all that it names."""
    asked = facts.request
    is_said = asked.method in _READING or asked.effect == "reads"
    is_known = is_said or (asked.effect is None and asked.server in CONTAINED_SERVERS)
    if facts.command is not None or not (asked.annotated and is_known):
        return False
    roles = {role for fact in asked.arguments for role in fact.roles}
    return roles <= _OF_READERS and (is_said or "read-path" in roles)
