"""A rule from a call that waits: offered by `review`, written to the operator's own layer."""

import os
from functools import partial
from pathlib import Path

from ironcurtain_proxy.cli.policy_change import (
    changed_lines,
    checked,
    consequences,
    own_file,
    replace_policy,
    text_of,
)
from ironcurtain_proxy.cli.review_screen.rules import OfferedRule
from ironcurtain_proxy.config.policy.editing import with_rule
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.requests import PendingRequest
from ironcurtain_proxy.wiring.offering import offered_rule


def rule_for(one: PendingRequest) -> OfferedRule | None:
    """The rule for a call; None: calls of its kind are always asked about.

    Raises:
        ConfigurationError: the configuration or the policy cannot be read.
    """
    request = one.request
    proposal = offered_rule(os.environ, request.server, request.tool, request.arguments)
    if proposal is None:
        return None
    settings = load_settings(dict(os.environ), None)
    file = own_file(settings)
    old = text_of(file)
    new = with_rule(old, "allow", proposal.server, proposal.tool, proposal.conditions)
    after = checked(settings, file, new)
    return OfferedRule(
        command=proposal.command,
        change=[
            *changed_lines(file, old, new),
            *consequences(load_policy(settings), after, after.policy.rules[0]),
        ],
        write=partial(_write, file, old, new),
    )


def _write(file: Path, old: str, new: str) -> None:
    if text_of(file) != old:
        raise ConfigurationError(f"{file} was changed meanwhile: nothing was written")
    replace_policy(file, new)
