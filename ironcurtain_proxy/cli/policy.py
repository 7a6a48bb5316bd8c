"""`ironcurtain-proxy policy`: show, change, test and replay the policy, and suggest rules.

`ironcurtain-proxy complain`: keep a decision that was wrong, as a scenario for `policy test`.

Each complaint is one line of `complaints.yaml` in the state directory: JSON, which YAML can read,
with escapes for characters that nobody sees. The file is a file of scenarios like any other; a
person may edit it. `of` holds the facts of the record, which no test compares. An agent has no such
tool: what it says of its own refusals would be words of the judged about the judge, and `policy
suggest` must not learn from them.
"""

import argparse
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import orjson

from ironcurtain_proxy.audit.calls import find_calls
from ironcurtain_proxy.audit.display import printable
from ironcurtain_proxy.audit.files import parsed
from ironcurtain_proxy.audit.known_logs import all_logs, family
from ironcurtain_proxy.cli.audit import logs_to_read
from ironcurtain_proxy.cli.audit_whole import no_log, raw_lines
from ironcurtain_proxy.cli.explain_overlay import tool_meant
from ironcurtain_proxy.cli.output import (
    complain,
    counted,
    encodable,
    is_confirmed,
    picked,
    say,
    shortened,
)
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
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.policy.policy_loading import load_candidate, load_policy
from ironcurtain_proxy.config.policy.proposing import is_directory, with_rule
from ironcurtain_proxy.config.policy.short_form import VERBS
from ironcurtain_proxy.config.reading.document import (
    DocumentNode,
    MarkedReport,
    Report,
    json_path,
    strictly,
)
from ironcurtain_proxy.config.reading.reading import parse, read_file
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.escalation import is_invisible, visible
from ironcurtain_proxy.model.policy import OTHERS_LAYERS
from ironcurtain_proxy.model.values import Json, object_of, word_list
from ironcurtain_proxy.private_files import KeptFile, make_private_directory
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

# --- complain

FILE_NAME: Final = "complaints.yaml"


_FACTS: Final = word_list(
    """
    timestamp client decidedBy refusedBy refusalRule escalationResult origins policyVersion
    """
)
"""The fields of a record that a complaint keeps besides the call."""
_MOST_BYTES: Final = 8 << 20
_SECONDS: Final = 5.0


def run_complain(options: argparse.Namespace) -> int:
    """Keep one complaint. Return 1 if no call, or several, have this reference.

    Raises:
        ConfigurationError: a log or the file cannot be used.
    """
    logs = logs_to_read(options.log)
    shown = printable(options.reference)
    try:
        calls = find_calls(logs.members(), options.reference)
    except FileNotFoundError as error:
        raise no_log(logs.log) from error
    record = parsed(calls[0].lines[-1].raw or b"") if len(calls) == 1 else None
    if record is None or not calls[0].request_id:
        found = "no call has" if not calls else f"{len(calls)} calls have"
        complain(f"{found} the reference {shown}; `ironcurtain-proxy audit tail` shows the numbers")
        return 1
    scenario = _complaint(record, options.expect, encodable(options.note))
    file = complaints_file(state_directory())
    if not _keep(file, scenario):
        complain(f"{shown} was complained of before: change its line in {file}")
        return 1
    say(f"kept in {file}: {printable(str(scenario['call']))}, expected {scenario['expect']}")
    return 0


def complaints_file(state: Path) -> Path:
    """Return the file of complaints in a state directory."""
    return state / FILE_NAME


def _complaint(record: Mapping[str, object], expected: str | None, note: str) -> dict[str, object]:
    found = object_of(record.get("policyDecision"))
    usual = VERBS["escalate" if found.get("status") == "allow" else "allow"]
    facts = {name: record[name] for name in _FACTS if name in record}
    return {
        "call": f"{record.get('serverName')}/{record.get('toolName')}",
        "args": record.get("arguments", {}),
        "expect": expected or usual,
        **({"note": note} if note else {}),
        "of": {"id": record.get("requestId"), "decision": found, **facts},
    }


def _keep(path: Path, scenario: dict[str, object]) -> bool:
    """Add a scenario to the file. Return False if it holds one of the same call.

    Raises:
        ConfigurationError: the file cannot be used, or could not be read with the new line.
    """

    def fault(what: str) -> ConfigurationError:
        return ConfigurationError(f"{path} {what}")

    file = KeptFile(path, _MOST_BYTES, fault)
    line = b"- %b\n" % _seen(orjson.dumps(scenario).decode()).encode()
    try:
        make_private_directory(path.parent)
        with file.locked(path.with_name(f"{path.name}.lock"), _SECONDS):
            kept = file.read()
            old = b"" if kept is None else kept[0]
            items = _items(old, path) if old else []
            if scenario["of"] in [_facts_of(one) for one in items]:
                return False
            new = old + (b"" if old.endswith(b"\n") or not old else b"\n") + line
            # What YAML would read as something else, or not at all, must not spoil the file.
            if not _reads_as(new, [*items, scenario], path):
                raise fault("cannot hold this call: its arguments have no form in YAML")
            file.replace(new)
    except OSError as error:
        raise fault(f"cannot be written: {error.strerror or error}") from None
    return True


def _seen(text: str) -> str:
    """Return JSON with escapes for invisible characters, which stand in its texts alone.

    Those beyond 16 bits get YAML's form: YAML joins no surrogates.
    """
    return "".join([_escaped(char) if is_invisible(char) else char for char in text])


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"


def _facts_of(item: Json) -> Json:
    return item.get("of") if isinstance(item, dict) else None


def _reads_as(raw: bytes, items: list[object], path: Path) -> bool:
    try:
        return _items(raw, path) == items
    except ConfigurationError:
        return False


def _items(raw: bytes, path: Path) -> list[Json]:
    report = Report()
    document = parse(raw, path, report, yaml=True)
    report.raise_errors()
    return [one.value for one in DocumentNode(document, str(path), report).items()]


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
    # A file that is no list would be a test that passes.
    report.raise_errors()
    tried = [_scenario(replaying, node, report) for node in nodes]
    met = [one for one in tried if not isinstance(one, str)]
    reached = {one.judged.decision.ground.rule for _, one in met}
    tools = {(one.server, one.tool) for _, one in met}
    for rule in loaded.policy.rules:
        if rule.layer not in OTHERS_LAYERS and rule.name not in reached:
            say(f"never reached: rule {rule.name}")
    names = {spec.annotations for spec in settings.servers}
    for server, tool in sorted([one for one in {*loaded.annotations} - tools if one[0] in names]):
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
    candidate = strictly(lambda report: load_candidate(settings, options.candidate, report))
    tally = ReplayTally()
    replaying = Replaying(settings, loaded, os.environ, candidate.policy)
    gc.disable()  # the kept values have no cycles; looking for some takes a third of the time
    lines = raw_lines(family(options.log or settings.audit.path))
    found = anyio.run(replaying.log, lines, tally)
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
