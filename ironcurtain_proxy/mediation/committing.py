"""The changes of a command of our own shell come into the workspace with a point of their own.

    forward ──▶ prepared in its view ──▶ can it be taken back? ──▶ point and commit in one
                                              │ no, and nobody approved the call
                                              ▼
                                         discard: the workspace is as it was

A call that containment settled brings nothing in that could not be taken back. What was kept back,
and why, is told to the agent and written down; the identical call is asked about afterwards.
"""

import logging

import anyio
import anyio.to_thread
from msgspec import Struct

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.mediation.journal import listed
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.decision import CONTAINMENT
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.reply import Change, NotHeld, NotTaken, ViewChanges
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import PreparedViews, World

_log = logging.getLogger(__name__)


class Committed(Struct, frozen=True, kw_only=True):
    """The end of a view."""

    result: ToolResult
    """The answer, with what the agent has to know."""
    kept_back: tuple[NotTaken, ...] = ()
    """The control places that the call wanted to change."""
    why_not: str = ""
    """Why nothing came into the workspace, or empty if it did."""
    changes: tuple[Change, ...] = ()


async def commit(world: World, case: Case, result: ToolResult) -> Committed:
    """Bring the changes of a call in, or discard them.

    Whatever happens, the view is gone afterwards, and the record of the call says what came in.
    """
    views = world.views
    if views is None:
        raise KernelError("an answer speaks of a view, and there are none")
    commit_ = _Commit(world=world, views=views, case=case, view=result.view)
    try:
        with anyio.CancelScope(shield=True):
            found = await views.changes(result.view)
            done = await commit_.run(found)
    except Exception as error:  # noqa: BLE001  nothing came in, and that is said
        _log.exception("the changes of call %s are lost", case.call.request_id)
        done = f"they could not be brought into it: {_why_lost(error)}"
        found = ViewChanges(paths=(), kept_back=(), others=())
    finally:
        with anyio.CancelScope(shield=True):
            await views.end(result.view)
    if isinstance(done, str):
        case.note(("discarded", done))
        text = f"[NOTHING WAS CHANGED in the workspace: {done}]"
        return Committed(result=_told(result, text, is_error=True), why_not=done)
    late, changes = done
    if found.kept_back:
        case.note(("keptBack", [*listed(found.kept_back)]))
    if others := (*found.others, *late):
        case.note(("notTaken", [*listed(others)]))
    if late:
        said = ", ".join(listed(late))
        result = _told(result, f"[CONFLICT, left as it is: {said}]", is_error=True)
    return Committed(result=result, kept_back=found.kept_back, changes=changes)


def _why_lost(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return "a fault"
    # A step names a path in the workspace; other files are the proxy's own.
    name = error.filename if isinstance(error.filename, str) else "/"
    where = "" if name.startswith("/") else f"{visible(name)}: "
    return where + error.strerror.lower()


class _Commit(Struct, kw_only=True):
    world: World
    views: PreparedViews
    case: Case
    view: str
    late: tuple[NotTaken, ...] = ()
    is_done: bool = False

    async def run(
        self, found: ViewChanges
    ) -> tuple[tuple[NotTaken, ...], tuple[Change, ...]] | str:
        """Commit. Return what came too late and what changed; or why nothing came in."""
        timeline, call = self.world.timeline, self.case.call
        settled = self.case.settlement
        must_hold = settled is not None and settled.decided_by == CONTAINMENT
        if not found.paths:
            return (), ()
        changes: tuple[Change, ...] = ()
        if timeline is not None:
            point = await timeline.transact(
                *(call.request_id, call.server, call.tool, found.paths, self._apply),
                may_drop=not must_hold,
            )
            if isinstance(point, NotHeld):
                self.case.note_instead("notHeld", point.reason)
                if must_hold and await self._is_out_again():
                    return f"it could not be taken back: {point.reason}"
            else:
                self.case.note(("point", point[0]))
                changes = point[1]
        elif must_hold:
            return "it could not be taken back: the workspace has no timeline"
        if not self.is_done:
            await anyio.to_thread.run_sync(self._apply)
        return self.late, changes

    async def _is_out_again(self) -> bool:
        """Take out what has come in and is not held after all: the call made too much, say.

        Returns:
            Whether the workspace is as it was; what stays in it is a conflict.
        """
        if not self.is_done:
            return True
        stays = await anyio.to_thread.run_sync(self.views.take_back, self.view)
        self.late += stays
        return not stays

    def _apply(self) -> list[str]:
        self.late = self.views.commit(self.view, self.case.call.request_id)
        self.is_done = True
        return [one.path for one in self.late]


def _told(result: ToolResult, text: str, *, is_error: bool) -> ToolResult:
    """Return an answer with a line more for the agent."""
    if result.result is None:
        return result
    content = result.result.get("content")
    blocks: list[Json] = [*content] if isinstance(content, list) else []
    answer: dict[str, Json] = {
        **result.result,
        "content": [*blocks, {"type": "text", "text": text}],
    }
    if is_error:
        answer["isError"] = True
    return result.with_result(answer, result.refused_host)
