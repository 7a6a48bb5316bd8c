"""Containment: a point before each call that may change the workspace, an inspection after it.

Theory of operation: a call needs no reviewer if its sandbox confines it and the timeline can undo
what it changes.

    escalated ── consent: why not contained? ── a reason ──▶ reviewer
                    │ none
                    ▼
                 before: point ──▶ watch: forward, look what was left ──▶ settle: close the point
                                                │
                                                └─ steering file restored ──▶ containment ends

`before` repeats the check when the call's turn comes, because sandbox and session may have changed
while it waited. Hosts that a call tried to reach are remembered by its fingerprint, so that the
identical call is asked about with the host shown. Containment of the session ends once a file was
restored that could act outside the sandbox, until a person has looked.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from ironcurtain_proxy.approval.containment import (
    Considered,
    hosts_of,
    may_change,
    why_asked,
    why_open,
)
from ironcurtain_proxy.approval.settlements import by_containment, is_by_itself
from ironcurtain_proxy.decision.containment import rule_for_reviewers
from ironcurtain_proxy.mediation.escalated import Consent
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.escalation import CONTAINMENT
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.opening import Opening
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.timeline import NotHeld, PointId
from ironcurtain_proxy.ports import Containment, World

_log = logging.getLogger(__name__)

_NOTE: Final = "uncontained"
"""The record field that says why a contained session still asked about a call."""
_MOST_TRIED: Final = 4096
"""The largest number of remembered calls that tried to leave; beyond it, no call is contained."""
_MOST_NAMED: Final = 50
"""The largest number of changed paths that a record names; the timeline has all of them."""


@dataclass(slots=True, kw_only=True)
class Containing:
    """Containment for the calls of one session."""

    world: World
    policy: Policy
    _points: dict[str, PointId] = field(default_factory=dict, init=False)
    """The points of calls in progress."""
    _tried: dict[str, str] = field(default_factory=dict, init=False)
    """By call fingerprint: the host that the call tried to reach, or a word for a host."""

    _shown: dict[str, str] = field(default_factory=dict, init=False)
    """By call in progress: the host that its question showed."""

    async def consent(self, case: Case, facts: Facts) -> Consent | None:
        """The settlement of a contained call, with its point made; None: a reviewer is needed."""
        on = self.world.containment
        if on is None:
            return None
        why = await self._why_asked(on, case, facts) or await self._mark(
            on, case, facts, may_drop=False
        )
        if why is not None:
            case.note_instead(_NOTE, why)
            return None
        directories = await self.world.facts.directories(facts.request)
        case.settle(by_containment())
        roots = self.world.facts.roots(facts.request, directories)
        return Consent(reasons=case.judged.reasons, roots=roots)

    def opening(self, case: Case, facts: Facts) -> Opening | str | None:
        """The access that a call needs beyond its sandbox; a text: what no approval can grant."""
        hosts = [*hosts_of(facts), *facts.place.every_host(), self._tried_host(case)]
        return self.world.servers.opening(case.call.server, facts.request, hosts)

    def approved(self, case: Case, facts: Facts) -> Opening | None:
        """The access beyond the sandbox that was approved for a call about to be forwarded."""
        settlement = case.settlement
        if settlement is None or settlement.decided_by == CONTAINMENT:
            # A decision of the policy alone opens no sandbox.
            return None
        hosts = [*hosts_of(facts)]
        if settlement.names_hosts:
            hosts += facts.place.every_host()
        if case.question and not is_by_itself(settlement.decided_by):
            # The host that the sandbox blocked was shown in the question. Grants, models and the
            # engine look at the command alone and have not seen it.
            hosts.append(self._shown.get(case.call.request_id, ""))
        found = self.world.servers.opening(case.call.server, facts.request, hosts)
        if not isinstance(found, Opening):
            return None
        case.note_instead("opened", list(found.words()))
        return found

    def told(self, case: Case, facts: Facts) -> tuple[tuple[str, str], ...]:
        """The explanation for the reviewer of why a call is not contained."""
        said = [("Not contained", str(why)) for name, why in case.notes if name == _NOTE]
        hosts = facts.place.every_host()
        said += [("It reaches", ", ".join(hosts))] if hosts else []
        host = self._shown[case.call.request_id] = self._tried_host(case)
        return (*said, *([("The sandbox stopped it on its way to", host)] if host else []))

    def _tried_host(self, case: Case) -> str:
        return self._tried.get(self.world.facts.fingerprint(case.call, case.arguments), "")

    async def before(self, case: Case, facts: Facts) -> bool:
        """Make the point of a call about to be forwarded. False: its consent no longer holds."""
        on = self.world.containment
        if on is None:
            return True
        if case.settlement is not None and case.settlement.decided_by == CONTAINMENT:
            if on.ended() is None and await self._walls_hold(case, on):
                return True
            # The call waited for its turn; the sandbox or the session may have changed.
            case.unsettle()
            return False
        await self._mark(on, case, facts, may_drop=True)
        return True

    async def watch(self, case: Case, send: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Forward a call, then inspect what it left behind, even if it failed or was withdrawn."""
        try:
            result = await send()
            self._note_attempt(case, result)
            return result
        finally:
            if self.world.lookout is not None or self._points:
                with anyio.CancelScope(shield=True):
                    await self._look(case)
                    await self.settle(case)

    async def settle(self, case: Case) -> None:
        """Close the point of a call, whether or not it was forwarded. Never fails."""
        self._shown.pop(case.call.request_id, None)
        on, point = self.world.containment, self._points.pop(case.call.request_id, None)
        if on is None or point is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                changes = await on.timeline.settle(point)
            except Exception:  # noqa: BLE001  the record of the call is worth more
                _log.exception("what call %s changed is not noted", case.call.request_id)
                return
        named: list[Json] = [
            f"{one.kind} {one.path}".encode("utf-8", "backslashreplace").decode()
            for one in sorted(changes, key=lambda one: one.path)[:_MOST_NAMED]
        ]
        if named:
            case.note(("changed", named), ("changes", len(changes)))

    async def _why_asked(self, on: Containment, case: Case, facts: Facts) -> str | None:
        ended = on.ended()
        if ended is not None:
            return f"containment has ended: {ended}"
        if len(self._tried) >= _MOST_TRIED:
            return "too many calls have tried to leave the sandbox"
        workspace = self.policy.workspace
        if not on.is_same_workspace():
            return "the workspace is another directory than at the start"
        why = why_asked(
            Considered(
                facts=facts,
                judged=case.judged,
                workspace=workspace,
                walls=await self.world.servers.walls(case.call.server),
                for_reviewers=rule_for_reviewers(facts.request, self.policy),
                tried=self._tried_host(case),
            )
        )
        if why is not None or workspace is None:
            return why or "there is no workspace"
        for path in may_change(facts, workspace):
            if not await self._holds(on, path):
                # Where there can be no point at all, that is the better word.
                no_point = await self._mark(on, case, facts, may_drop=False)
                return no_point or "what it may delete could not be brought back"
        return None

    async def _holds(self, on: Containment, path: RealPath) -> bool:
        try:
            return await on.timeline.holds(path)
        except Exception:  # noqa: BLE001  what cannot be found out is asked about
            _log.exception("the timeline does not say what it holds")
            return False

    async def _walls_hold(self, case: Case, on: Containment) -> bool:
        walls, workspace = await self.world.servers.walls(case.call.server), self.policy.workspace
        held = workspace is not None and why_open(walls, workspace) is None
        return held and on.is_same_workspace()

    async def _mark(
        self, on: Containment, case: Case, facts: Facts, *, may_drop: bool
    ) -> str | None:
        """Make a call's point if it may change anything; otherwise say why that is not possible."""
        workspace, call = self.policy.workspace, case.call
        if workspace is None or call.request_id in self._points or not may_change(facts, workspace):
            return None
        try:
            point = await on.timeline.mark(
                call.request_id, call.server, call.tool, may_drop=may_drop
            )
        except Exception:  # noqa: BLE001  what cannot be taken back is asked about
            _log.exception("there is no point before call %s", call.request_id)
            point = NotHeld("the timeline met a fault")
        if isinstance(point, NotHeld):
            case.note_instead("notHeld", point.reason)
            return f"it could not be taken back: {point.reason}"
        self._points[call.request_id] = point
        case.note(("point", point))
        return None

    def _note_attempt(self, case: Case, result: ToolResult) -> None:
        if not result.refused_host:
            return
        if len(self._tried) < _MOST_TRIED:
            key = self.world.facts.fingerprint(case.call, case.arguments)
            self._tried[key] = result.refused_host

    async def _look(self, case: Case) -> None:
        if self.world.lookout is None:
            return
        case.clean(await self.world.lookout.look())
        on = self.world.containment
        if on is not None and case.put_back:
            case.note(("containmentEnded", True))
            on.end(case.call.request_id, case.put_back[0].said)
