"""The answer of a server: recorded, withheld where it must be, and given to the agent."""

from msgspec import Struct, field

from ironcurtain_proxy.mediation.journal import Journal
from ironcurtain_proxy.mediation.refusals import why_withheld, withhold
from ironcurtain_proxy.mediation.results import Results
from ironcurtain_proxy.model.authorized import AuthorizedCall
from ironcurtain_proxy.model.case import Case
from ironcurtain_proxy.model.reply import Answered, Reply
from ironcurtain_proxy.model.server import ToolResult
from ironcurtain_proxy.ports import World


class Outcomes(Struct, frozen=True, kw_only=True):
    """The outcomes of one session's calls."""

    world: World
    journal: Journal
    results: Results = field(default_factory=Results)

    async def reply(self, case: Case, authorized: AuthorizedCall, result: ToolResult) -> Reply:
        """Record an answer, and make the reply to the agent from it."""
        summary = self.world.recorder.summarize(result)
        why = why_withheld(self.world.pins, case, result)
        if why is not None:
            return await withhold(self.journal, case, summary, *why)
        if summary.status == "success":
            self.world.facts.succeeded(authorized)
        recorded = await self.journal.end(case, summary)
        allowed = case.allowed
        if self.results.rules:
            result = await self.results.treated(case.call.server, result, summary.size or 0)
        return Answered(result=result, recorded=recorded, put_back=case.put_back, allowed=allowed)
