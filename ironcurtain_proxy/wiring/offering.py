"""The rule that is offered for a call that waits, by the configuration of the session that asks."""

import anyio

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.policy.proposing import Proposal, is_directory, proposal_for
from ironcurtain_proxy.mailbox.messages import Request
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.sessions.configuration import SessionConfiguration
from ironcurtain_proxy.wiring.replaying import Replaying


def offered_rule(request: Request, asking: SessionConfiguration) -> Proposal | None:
    """The narrowest rule that would allow a call; None: calls of its kind are always asked about.

    Blocks, and runs an event loop of its own: call it in a thread.

    Raises:
        ConfigurationError: the policy cannot be read.
    """
    loaded = load_policy(asking.settings)
    replaying = Replaying(asking.settings, loaded, asking.environ)
    if not replaying.knows(request.server):
        return None
    call = anyio.run(replaying.call, request.server, request.tool, request.arguments)
    if not isinstance(call.gathered, Facts):
        return None
    return proposal_for(call.gathered, loaded.policy, is_directory)
