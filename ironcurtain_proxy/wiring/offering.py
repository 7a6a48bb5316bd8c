"""The rule that is offered for a call that waits, by the configuration of whoever reviews."""

from collections.abc import Mapping

import anyio

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.policy.proposing import Proposal, is_directory, proposal_for
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.model.json import Arguments
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.wiring.replaying import Replaying


def offered_rule(
    environ: Mapping[str, str], server: str, tool: str, arguments: Arguments
) -> Proposal | None:
    """The narrowest rule that would allow a call; None: calls of its kind are always asked about.

    Blocks, and runs an event loop of its own: call it in a thread.

    Raises:
        ConfigurationError: the configuration cannot be read here.
    """
    # A copy: reading takes secrets out of what it is handed.
    settings = load_settings(dict(environ), None)
    loaded = load_policy(settings)
    replaying = Replaying(settings, loaded, environ)
    if not replaying.knows(server):
        return None
    call = anyio.run(replaying.call, server, tool, arguments)
    if not isinstance(call.gathered, Facts):
        return None
    return proposal_for(call.gathered, loaded.policy, is_directory)
