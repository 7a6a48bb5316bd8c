"""The entry point for the agent's calls, of a server's tools and of the proxy's own tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ironcurtain_proxy.grants.session_grants import SessionGrants
from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.mediator import Mediator
from ironcurtain_proxy.mediation.own_tools import OwnTools
from ironcurtain_proxy.model.decision import Deny
from ironcurtain_proxy.model.grounds import NO_ROOM
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.reply import Reply
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
    _shown: list[Mapping[str, Json]] = field(default_factory=list, init=False)

    async def handle(
        self,
        exposed_name: str,
        params: Mapping[str, Json],
        on_progress: ProgressListener | None = None,
    ) -> Reply:
        """Carry one call from its arrival to its reply."""
        grants = self.grants
        grants.take_back()
        if self.own.has(exposed_name):
            reply = await self.own.handle(exposed_name, params, on_progress)
        else:
            reply = await self.mediator.handle(exposed_name, params, on_progress)
        if (self._shown or len(grants)) and (listing := grants.listing()) != self._shown:
            self._shown = listing
            self.show(listing)
        if grants.persisted is not None:
            await grants.keep()
        return reply

    async def turn_away(self, exposed_name: str, params: Mapping[str, Json]) -> Reply:
        """Refuse a call because too many calls are in progress, and record it."""
        found = self.tools.find(exposed_name)
        case = self.journal.open(exposed_name, params, found, decision=Deny(NO_ROOM))
        return await self.journal.guard(case, self.journal.refuse(case, "busy", NO_ROOM))
