"""`ironcurtain-proxy policy`: show, change, test and replay the policy, and suggest rules."""

import argparse
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
import orjson

from ironcurtain_proxy.audit.known_logs import all_logs, family
from ironcurtain_proxy.cli.audit_whole import raw_lines
from ironcurtain_proxy.cli.complain import complaints_file
from ironcurtain_proxy.cli.explain_overlay import tool_meant
from ironcurtain_proxy.cli.output import counted, is_confirmed, picked, say, shortened
from ironcurtain_proxy.cli.policy_change import (
    WRITTEN,
    change,
    checked,
    export,
    own_file,
    show,
    show_change,
    text_of,
    write_policy,
)
from ironcurtain_proxy.config.policy.policy_loading import load_candidate, load_policy
from ironcurtain_proxy.config.policy.proposing import is_directory, with_rule
from ironcurtain_proxy.config.policy.short_form import VERBS
from ironcurtain_proxy.config.reading.document import DocumentNode, MarkedReport, Report, json_path
from ironcurtain_proxy.config.reading.reading import parse, read_file
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.escalation import visible
from ironcurtain_proxy.model.policy import OTHERS_LAYERS
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.wiring.suggesting import (
    RepeatedQuestion,
    Replayed,
    Replaying,
    ReplayTally,
    Suggesting,
    Suggestion,
    SuggestionReport,
    what_changed,
)


def run(options: argparse.Namespace) -> int:
    """Run one of the commands.

    Raises:
        ConfigurationError: an argument or a file cannot be used.
    """
    match options.action:
        case "show":
            return show(options)
        case "test":
            return test(options)
        case "replay":
            return replay(options)
        case "suggest":
            return suggest(options)
        case "export":
            return export(options)
        case verb:
            return change(verb, options)


# --- policy replay: recorded calls, judged again --------------------------------------------------
# `policy test` and `policy replay`: calls decided as `serve` would, without any server.


_WORDS = ("allow", "ask", "deny")
_MOST_SHOWN = 100
_LONGEST_CALL = 120


def test(options: argparse.Namespace) -> int:
    """Test the policy with scenarios. Return 1 if a decision is not the expected one.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    replaying = Replaying(settings, loaded, os.environ)
    report = Report()
    nodes = [node for file in options.files for node in _scenarios(file, report)]
    tried = [_scenario(replaying, node, report) for node in nodes]
    met = [one for one in tried if not isinstance(one, str)]
    reached = {one.judged.decision.ground.rule for _, one in met}
    tools = {(one.server, one.tool) for _, one in met}
    for rule in loaded.policy.rules:
        if rule.layer not in OTHERS_LAYERS and rule.name not in reached:
            say(f"never reached: rule {rule.name}")
    names = {spec.annotations for spec in settings.servers}
    for server, tool in sorted(set(loaded.annotations) - tools):
        if server in names:
            say(f"never reached: tool {server}/{tool}")
    failed = sum(not is_met for is_met, _ in met)
    say(f"{counted(len(met), 'scenario')}, {failed} not met")
    for why, count in Counter([one for one in tried if isinstance(one, str)]).most_common():
        say(f"{counted(count, 'complaint')} not tried: {why}")
    return int(failed > 0)


def _scenario(
    replaying: Replaying, node: DocumentNode, report: Report, tell: Callable[[str], None] = say
) -> tuple[bool, Replayed] | str:
    """Return whether a call is decided as expected, or why a complaint cannot be tried.

    Args:
        replaying: decides the call.
        node: the scenario. `of` marks one that `complain` has kept.
        report: gets its mistakes.
        tell: is told the difference, if there is one.
    """
    members = node.object(("call", "args", "expect", "rule", "note", "of"))
    is_complaint = members.read("of", lambda one: one.value, None) is not None
    members.read("note", DocumentNode.text, "")
    name, wanted = members.required("call").name(), members.required("expect").word(_WORDS)
    rule = members.read("rule", DocumentNode.name, None)
    arguments = members.read("args", lambda one: one.value, {})
    report.raise_errors()
    server, tool = tool_meant(name, [], may_be_bare=False)
    if is_complaint and (changed := what_changed(orjson.dumps(arguments))):
        return changed
    if is_complaint and not replaying.knows(server):
        return "no such server is configured or annotated"
    try:
        one = anyio.run(replaying.call, server, tool, _object(arguments, node))
    except KeyError:
        raise ConfigurationError(f"{node.source}: no server of {visible(name)} is known") from None
    found, ground = VERBS[one.effect], one.judged.decision.ground
    is_met = found == wanted and rule in {None, ground.rule}
    if not is_met:
        wish = wanted if rule is None else f"{wanted} by {rule}"
        tell(f"{node.source} {visible(name)}: expected {wish}; {found} by {ground.rule}")
    return is_met, one


def _object(value: Json, node: DocumentNode) -> dict[str, Json]:
    if not isinstance(value, dict):
        where = json_path(node.place) or "the scenario"
        raise ConfigurationError(f"{node.source}: {where}: args must be an object")
    return value


def _scenarios(file: Path, report: Report) -> Sequence[DocumentNode]:
    marked = MarkedReport(report)
    data = read_file(file, marked)
    document = None if data is None else parse(data, file, marked, yaml=True)
    report.raise_errors()
    return DocumentNode(document, str(file), marked).items()


def replay(options: argparse.Namespace) -> int:
    """Decide the recorded calls again.

    Raises:
        ConfigurationError: the policy, the candidate or the log cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    report = Report()
    candidate = load_candidate(settings, options.candidate, report)
    report.raise_errors()
    tally = ReplayTally()
    replaying = Replaying(settings, loaded, os.environ, candidate.policy)
    gc.disable()  # the kept values have no cycles; looking for some takes a third of the time
    members = family(options.log or settings.audit.path)
    found = anyio.run(replaying.log, raw_lines(members), tally)
    differing = sorted(
        [one for one in found if one.differs], key=lambda one: (one.other_effect, -one.count)
    )
    if options.json:
        say(orjson.dumps(_changes_json(differing, tally)).decode())
        return 0
    for one in differing[:_MOST_SHOWN]:
        say(_line(one))
    if len(differing) > _MOST_SHOWN:
        say(f"… and {len(differing) - _MOST_SHOWN} more kinds of calls (--json shows all)")
    other = sum(one.count for one in differing)
    say(f"{tally.replayed} of {tally.calls} recorded calls replayed; {other} decided differently")
    for why, count in tally.passed_over.most_common():
        say(f"{count} not replayed: {why}")
    return 0


def _line(one: Replayed) -> str:
    arguments = shortened(visible(orjson.dumps(one.arguments).decode()), _LONGEST_CALL)
    before, after = one.judged.decision.ground.rule, (one.other or one.judged).decision.ground.rule
    old, new = VERBS[one.effect], VERBS[one.other_effect]
    name = visible(f"{one.server}/{one.tool}")
    return f"{one.count:>6} x {name} {arguments}: {old} by {before} → {new} by {after}"


def _changes_json(found: Sequence[Replayed], tally: ReplayTally) -> dict[str, object]:
    return {
        **picked(tally, "lines calls replayed"),
        "notReplayed": dict(tally.passed_over),
        "otherwise": [
            {
                **picked(one, "server tool arguments count"),
                "before": {"decision": one.effect, "rule": one.judged.decision.ground.rule},
                "after": {
                    "decision": one.other_effect,
                    "rule": (one.other or one.judged).decision.ground.rule,
                },
            }
            for one in found
        ],
    }


# --- policy suggest -------------------------------------------------------------------------------
# `policy suggest`: rules that would have avoided questions, and unused rules and tools.


_CALLS_SHOWN: Final = 3
_LONGEST: Final = 100


def suggest(options: argparse.Namespace) -> int:
    """Propose rules.

    Raises:
        ConfigurationError: the policy or a log cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    replaying = Replaying(settings, loaded, os.environ)
    suggesting = Suggesting(replaying, loaded, is_directory)
    servers = {spec.name: spec.annotations for spec in settings.servers}
    log: Path | None = options.log
    usual = settings.audit.path
    members = all_logs(usual, settings.state_dir) if log is None else family(log)
    found = anyio.run(suggesting.find, raw_lines(members), servers, options.least)
    complaints = _complaints(replaying, complaints_file(settings.state_dir))
    if options.json:
        say(orjson.dumps(_as_json(found) | {"complaints": complaints}).decode())
    else:
        for line in _as_text(found):
            say(line)
        if complaints["kept"]:
            file = visible(str(complaints_file(settings.state_dir)))
            say(
                f"{counted(complaints['kept'], 'complaint')}, {complaints['unmet']} of them still "
                f"decided so: `ironcurtain-proxy policy test {file}`"
            )
    return _apply(settings, found.suggestions) if options.apply and found.suggestions else 0


def _complaints(replaying: Replaying, file: Path) -> dict[str, int]:
    """Count the complaints, and those that the policy still decides as was complained of."""
    report = Report()
    nodes = _scenarios(file, report) if file.exists() else ()
    tried = [_scenario(replaying, node, report, lambda _difference: None) for node in nodes]
    unmet = sum(not isinstance(one, str) and not one[0] for one in tried)
    return {"kept": len(tried), "unmet": unmet}


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
        **picked(found, "questions neverGeneral unusedRules unusedTools"),
        "notLookedAt": dict(found.tally.passed_over),
        "suggestions": [
            {
                "spared": one.spared,
                "command": one.rule.command,
                "calls": [
                    {**picked(call.call, "server tool arguments"), "questions": call.questions}
                    for call in one.calls
                ],
            }
            for one in found.suggestions
        ],
    }
