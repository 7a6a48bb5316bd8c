"""Containment at work: a point before each call that may change the workspace, a look after it.

A call that its sandbox holds and the timeline can take back needs no reviewer. The session's
containment ends where something was put back that could act outside the sandbox, until a person
has looked.
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
"""The field of a record that says why a call was asked about all the same."""
_MOST_TRIED: Final = 4096
"""Calls whose attempts to leave are remembered; beyond that, nothing is contained."""
_MOST_NAMED: Final = 50
"""Changed paths that a record names; the timeline has them all."""


@dataclass(slots=True, kw_only=True)
class Containing:
    """The containment of one session's calls."""

    world: World
    policy: Policy
    _points: dict[str, PointId] = field(default_factory=dict, init=False)
    """Of the calls that are under way."""
    _tried: dict[str, str] = field(default_factory=dict, init=False)
    """By fingerprint of a call: the host that it tried to reach, or a word for one."""

    _shown: dict[str, str] = field(default_factory=dict, init=False)
    """Of the calls that are under way: the host that stood in their question."""

    async def consent(self, case: Case, facts: Facts) -> Consent | None:
        """What a call rests on that needs no reviewer, with its point; None: somebody is asked."""
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
        """What a call needs beyond its sandbox, or in words what no approval opens."""
        hosts = [*hosts_of(facts), self._tried_host(case)]
        return self.world.servers.opening(case.call.server, facts.request, hosts)

    def approved(self, case: Case, facts: Facts) -> Opening | None:
        """What was approved for a call that is about to go, beyond what its sandbox lets it do."""
        settlement = case.settlement
        if settlement is None or settlement.decided_by == CONTAINMENT:
            # The policy's own word opens no sandbox.
            return None
        hosts = [*hosts_of(facts)]
        if case.question and not is_by_itself(settlement.decided_by):
            # A host that the sandbox stopped stood in the question; no grant, model or engine
            # that looks at the command alone has seen it.
            hosts.append(self._shown.get(case.call.request_id, ""))
        found = self.world.servers.opening(case.call.server, facts.request, hosts)
        if not isinstance(found, Opening):
            return None
        case.note_instead("opened", list(found.words()))
        return found

    def told(self, case: Case) -> tuple[tuple[str, str], ...]:
        """What a reviewer is told of why a call is not contained."""
        said = [("Not contained", str(why)) for name, why in case.notes if name == _NOTE]
        host = self._shown[case.call.request_id] = self._tried_host(case)
        return (*said, *([("The sandbox stopped it on its way to", host)] if host else []))

    def _tried_host(self, case: Case) -> str:
        return self._tried.get(self.world.facts.fingerprint(case.call, case.arguments), "")

    async def before(self, case: Case, facts: Facts) -> bool:
        """Make the point of a call that is about to go. False: what let it go does not hold."""
        on = self.world.containment
        if on is None:
            return True
        if case.settlement is not None and case.settlement.decided_by == CONTAINMENT:
            if on.ended() is None and await self._walls_hold(case, on):
                return True
            # It waited for its turn, and the sandbox or the session is another one now.
            case.unsettle()
            return False
        await self._mark(on, case, facts, may_drop=True)
        return True

    async def watch(self, case: Case, send: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Send a call; then look what it left, also where it failed or was withdrawn."""
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
        """Close the point of a call, whether it went or not. Never fails."""
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
                return "what it may delete could not be brought back"
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
        """Make a call's point, if it may change anything. Says why not where it cannot."""
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
