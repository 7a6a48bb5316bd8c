"""A rule for a call that waits, and the explanation of its question, for a reviewer.

Both are answered by the configuration of the session that asks. A rule goes to the operator's own
layer of that session.
"""

import os
from collections.abc import Iterator
from functools import partial

import anyio

from ironcurtain_proxy.cli.explain import explained_lines
from ironcurtain_proxy.cli.policy_change import (
    changed_lines,
    checked,
    consequences,
    own_file,
    text_of,
    write_policy,
)
from ironcurtain_proxy.cli.review_screen.plain_review import OfferedRule
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.policy.proposing import (
    RuleProposal,
    is_directory,
    proposal_for,
    with_rule,
)
from ironcurtain_proxy.config.settings import home_directory
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.mailboxes import PendingRequest, sessions_directory
from ironcurtain_proxy.mailbox.messages import Request
from ironcurtain_proxy.model.operation import METHODS
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.sessions.running import (
    SessionConfiguration,
    command_prefix,
    configuration_of,
)
from ironcurtain_proxy.wiring.suggesting import Replaying


def rule_for(one: PendingRequest) -> OfferedRule | None:
    """Return the rule for a call, or None if such calls always need an approval.

    Raises:
        ConfigurationError: the configuration of the session that asks is not known, or it or the
            policy cannot be read.
    """
    asking = _asking(one)
    proposal = offered_rule(one.request, asking)
    if proposal is None:
        return None
    settings = asking.settings
    file = own_file(settings)
    old = text_of(file)
    new = with_rule(old, "allow", proposal.server, proposal.tool, proposal.conditions)
    after = checked(settings, file, new)
    before = load_policy(settings)
    return OfferedRule(
        command=command_prefix(asking, os.environ) + proposal.command,
        change=[
            *changed_lines(file, old, new),
            *consequences(before, after, after.policy.rules[0]),
            *_what_holds(asking, before.version),
        ],
        write=partial(write_policy, file, old, new),
    )


def rule_command(one: PendingRequest) -> str:
    """Return the command that adds a rule for a call, or "" if there is none.

    Raises:
        ConfigurationError: as `rule_for`.
    """
    asking = _asking(one)
    found = offered_rule(one.request, asking)
    return "" if found is None else command_prefix(asking, os.environ) + found.command


def explanation_of(one: PendingRequest) -> list[str]:
    """Return the explanation of a question, step by step, as `explain` prints it.

    Raises:
        ConfigurationError: as `rule_for`.
    """
    request = one.request
    method, _, _ = request.tool.partition(" ")
    if method in METHODS:
        raise ConfigurationError(
            f"{method} is explained in a terminal: ironcurtain-proxy explain SERVER --read URI, "
            "or --prompt NAME"
        )
    asking = _asking(one)
    name = f"{request.server}/{request.tool}"
    lines = explained_lines(name, request.arguments, asking.settings, asking.environ)
    return [*lines, *_what_holds(asking, load_policy(asking.settings).version)]


def _asking(one: PendingRequest) -> SessionConfiguration:
    sessions = sessions_directory(home_directory(os.environ))
    return configuration_of(one, sessions, os.environ)


def _what_holds(asking: SessionConfiguration, version: str) -> Iterator[str]:
    """Yield a note for a session that decides by another policy than its files have."""
    if asking.policy_problem:
        yield f"  the session keeps its policy, because of its files: {asking.policy_problem}"
    elif asking.policy_version and asking.policy_version != version:
        yield "  the session decides by an older policy than its files have now"


def offered_rule(request: Request, asking: SessionConfiguration) -> RuleProposal | None:
    """Return the narrowest rule that would allow a call, or None if such calls always ask.

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
