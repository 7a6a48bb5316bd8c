"""`policy suggest`: rules that would have avoided questions, and unused rules and tools."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import orjson

from ironcurtain_proxy.audit.known_logs import all_logs, family
from ironcurtain_proxy.cli.audit_whole import raw_lines
from ironcurtain_proxy.cli.output import counted, is_confirmed, say, shortened
from ironcurtain_proxy.cli.policy_change import (
    WRITTEN,
    checked,
    own_file,
    show_change,
    text_of,
    write_policy,
)
from ironcurtain_proxy.config.policy.editing import with_rule
from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.policy.proposing import is_directory
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.wiring.replaying import Replaying
from ironcurtain_proxy.wiring.suggesting import (
    RepeatedQuestion,
    Suggesting,
    Suggestion,
    SuggestionReport,
)

_CALLS_SHOWN: Final = 3
_LONGEST: Final = 100


def suggest(options: argparse.Namespace) -> int:
    """Propose rules.

    Raises:
        ConfigurationError: the policy or a log cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    suggesting = Suggesting(Replaying(settings, loaded, os.environ), loaded, is_directory)
    servers = {spec.name: spec.annotations for spec in settings.servers}
    try:
        log: Path | None = options.log
        usual = settings.audit.path
        members = all_logs(usual, settings.state_dir) if log is None else family(log)
        found = anyio.run(suggesting.find, raw_lines(members), servers, options.least)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror or error}") from None
    if options.json:
        say(orjson.dumps(_as_json(found)).decode())
    else:
        for line in _as_text(found):
            say(line)
    return _apply(settings, found.suggestions) if options.apply and found.suggestions else 0


def _apply(settings: Settings, suggestions: list[Suggestion]) -> int:
    """Show the change of `policy.yaml`, and write it after a yes."""
    file = own_file(settings)
    old = new = text_of(file)
    # Each rule is added at the top, so the last one stands first.
    for one in reversed(suggestions):
        rule = one.rule
        new = with_rule(new, "allow", rule.server, rule.tool, rule.conditions)
    checked(settings, file, new)
    show_change(file, old, new)
    if not is_confirmed("write this?"):
        say("nothing was written")
        return 0
    write_policy(file, old, new)
    say(WRITTEN)
    return 0


def _as_text(found: SuggestionReport) -> Iterator[str]:
    for one in found.suggestions:
        yield f"{counted(one.spared, 'question')} spared by: {visible(one.rule.command)}"
        for call in one.calls[:_CALLS_SHOWN]:
            yield f"  {_told(call)}"
        if len(one.calls) > _CALLS_SHOWN:
            yield f"  and {len(one.calls) - _CALLS_SHOWN} other calls"
    spared = sum(one.spared for one in found.suggestions)
    yield f"{spared} of {found.questions} recorded questions spared"
    if found.never_general:
        yield (
            f"{found.never_general} without a proposal: calls that delete, run, push or publish, "
            "and tools that nobody described"
        )
    for why, count in found.tally.passed_over.most_common():
        yield f"{count} recorded calls left out: {why}"
    for name in found.unused_rules:
        yield f"never used: rule {visible(name)}"
    if found.unused_tools:
        yield f"never used: tools {visible(', '.join(found.unused_tools))}"


def _told(asked: RepeatedQuestion) -> str:
    arguments = shortened(visible(orjson.dumps(asked.call.arguments).decode()), _LONGEST)
    return f"{asked.questions} x {visible(f'{asked.call.server}/{asked.call.tool}')} {arguments}"


def _as_json(found: SuggestionReport) -> dict[str, Json]:
    return {
        "questions": found.questions,
        "neverGeneral": found.never_general,
        "notLookedAt": dict(found.tally.passed_over),
        "suggestions": [
            {
                "spared": one.spared,
                "command": one.rule.command,
                "calls": [
                    {
                        "server": call.call.server,
                        "tool": call.call.tool,
                        "arguments": dict(call.call.arguments),
                        "questions": call.questions,
                    }
                    for call in one.calls
                ],
            }
            for one in found.suggestions
        ],
        "unusedRules": [*found.unused_rules],
        "unusedTools": [*found.unused_tools],
    }
