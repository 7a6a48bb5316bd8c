"""The entry point for the agent's calls, of a server's tools and of the proxy's own tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ironcurtain_proxy.grants.session_grants import SessionGrants
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.mediator import Mediator
from ironcurtain_proxy.mediation.own_tools import OwnTools
from ironcurtain_proxy.model.caller import Caller
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.grounds import NO_ROOM, NO_TASKS
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import Answered, Reply
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.ports import ProgressListener, ToolFinder


@dataclass(slots=True, kw_only=True)
class Calls:
    """Implements `ports.CallHandler`, and synchronises remembered approvals with their file."""

    tools: ToolFinder
    journal: Journal
    mediator: Mediator
    own: OwnTools
    grants: SessionGrants
    show: Callable[[Sequence[Mapping[str, Json]]], None]
    """Publishes the remembered approvals for `grants list`."""
    renamed: Callable[[str, ToolResult], ToolResult] | None = None
    """Renames the resources that a server's answer names; None: they keep their names."""
    _shown: list[Mapping[str, Json]] = field(default_factory=list, init=False)

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
        *,
        caller: Caller | None = None,
    ) -> Reply:
        """Carry one call from its arrival to its reply."""
        grants = self.grants
        if grants.persisted is not None:
            grants.take_back()
        if "task" in params:
            return await self._refuse_task(exposed_name, params)
        if self.own.has(exposed_name):
            reply = await self.own.handle(exposed_name, params, on_progress)
        else:
            reply = await self.mediator.handle(exposed_name, params, on_progress, caller=caller)
            if self.renamed is not None and isinstance(reply, Answered):
                reply = self._with_names(exposed_name, reply, self.renamed)
        if (self._shown or len(grants)) and (listing := grants.listing()) != self._shown:
            self._shown = listing
            self.show(listing)
        if grants.persisted is not None:
            await grants.keep()
        return reply

    async def _refuse_task(self, exposed_name: str, params: Mapping[str, Json]) -> Reply:
        """Refuse a call that asks to continue as a task: its end could not be recorded."""
        found = self.tools.find(exposed_name)
        case = self.journal.open(exposed_name, params, found, decision=Deny(NO_TASKS))
        return await self.journal.guard(case, self.journal.refuse(case, "policy", NO_TASKS))

    def _with_names(
        self, exposed_name: str, reply: Answered, renamed: Callable[[str, ToolResult], ToolResult]
    ) -> Answered:
        found = self.tools.find(exposed_name)
        result = reply.result if found is None else renamed(found[0], reply.result)
        return reply if result is reply.result else replace(reply, result=result)

    async def turn_away(self, exposed_name: str, params: Mapping[str, Json]) -> Reply:
        """Refuse a call because too many calls are in progress, and record it."""
        found = self.tools.find(exposed_name)
        case = self.journal.open(exposed_name, params, found, decision=Deny(NO_ROOM))
        return await self.journal.guard(case, self.journal.refuse(case, "busy", NO_ROOM))
