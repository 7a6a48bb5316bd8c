"""`policy test` and `policy replay`: calls decided as `serve` would, without any server."""

import argparse
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import orjson

from ironcurtain_proxy.audit.known_logs import family
from ironcurtain_proxy.cli.audit_whole import raw_lines
from ironcurtain_proxy.cli.explain_names import tool_meant
from ironcurtain_proxy.cli.output import counted, say, shortened
from ironcurtain_proxy.config.policy.policy_loading import load_candidate, load_policy
from ironcurtain_proxy.config.policy.short_form import VERBS
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.problems import MarkedReport, Report, json_path
from ironcurtain_proxy.config.reading.reading import parse, read_file
from ironcurtain_proxy.config.settings import load_settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.question import visible
from ironcurtain_proxy.wiring.replaying import Replayed, Replaying, ReplayTally

_WORDS = ("allow", "ask", "deny")
_MOST_SHOWN = 100
_LONGEST = 120


def test(options: argparse.Namespace) -> int:
    """Test the policy with scenarios. 1 if a decision is not the expected one.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    settings = load_settings(os.environ, options.config)
    loaded = load_policy(settings)
    replaying = Replaying(settings, loaded, os.environ)
    report = Report()
    spots = [spot for file in options.files for spot in _scenarios(file, report)]
    met = [_scenario(replaying, spot, report) for spot in spots]
    reached = {one.judged.decision.ground.rule for _, one in met}
    tools = {(one.server, one.tool) for _, one in met}
    for rule in loaded.policy.rules:
        if rule.layer != "shipped" and rule.name not in reached:
            say(f"never reached: rule {rule.name}")
    names = {spec.annotations for spec in settings.servers}
    for server, tool in sorted(set(loaded.annotations) - tools):
        if server in names:
            say(f"never reached: tool {server}/{tool}")
    failed = sum(not is_met for is_met, _ in met)
    say(f"{counted(len(met), 'scenario')}, {failed} not met")
    return int(failed > 0)


def _scenario(replaying: Replaying, spot: Spot, report: Report) -> tuple[bool, Replayed]:
    """Whether a call is decided as expected. Prints the difference if it is not."""
    members = spot.object(("call", "args", "expect", "rule"))
    name, wanted = members.required("call").name(), members.required("expect").word(_WORDS)
    rule = members.read("rule", Spot.name, None)
    arguments = members.read("args", lambda one: one.value, {})
    report.raise_errors()
    server, tool = tool_meant(name, [], may_be_bare=False)
    try:
        one = anyio.run(replaying.call, server, tool, _object(arguments, spot))
    except KeyError:
        raise ConfigurationError(f"{spot.source}: no server of {visible(name)} is known") from None
    found, ground = VERBS[one.effect], one.judged.decision.ground
    is_met = found == wanted and rule in {None, ground.rule}
    if not is_met:
        wish = wanted if rule is None else f"{wanted} by {rule}"
        say(f"{spot.source} {visible(name)}: expected {wish}; {found} by {ground.rule}")
    return is_met, one


def _object(value: Json, spot: Spot) -> dict[str, Json]:
    if not isinstance(value, dict):
        where = json_path(spot.place) or "the scenario"
        raise ConfigurationError(f"{spot.source}: {where}: args must be an object")
    return value


def _scenarios(file: Path, report: Report) -> Sequence[Spot]:
    marked = MarkedReport(report)
    data = read_file(file, marked)
    document = None if data is None else parse(data, file, marked, yaml=True)
    report.raise_errors()
    return Spot(document, str(file), marked).items()


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
    try:
        members = family(options.log or settings.audit.path)
        found = anyio.run(replaying.log, raw_lines(members), tally)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror or error}") from None
    differing = sorted(
        [one for one in found if one.differs], key=lambda one: (one.other_effect, -one.count)
    )
    if options.json:
        say(orjson.dumps(_as_json(differing, tally)).decode())
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
    arguments = shortened(visible(orjson.dumps(one.arguments).decode()), _LONGEST)
    before, after = one.judged.decision.ground.rule, (one.other or one.judged).decision.ground.rule
    old, new = VERBS[one.effect], VERBS[one.other_effect]
    name = visible(f"{one.server}/{one.tool}")
    return f"{one.count:>6} x {name} {arguments}: {old} by {before} → {new} by {after}"


def _as_json(found: Sequence[Replayed], tally: ReplayTally) -> dict[str, object]:
    return {
        "lines": tally.lines,
        "calls": tally.calls,
        "replayed": tally.replayed,
        "notReplayed": dict(tally.passed_over),
        "otherwise": [
            {
                "server": one.server,
                "tool": one.tool,
                "arguments": one.arguments,
                "count": one.count,
                "before": {"decision": one.effect, "rule": one.judged.decision.ground.rule},
                "after": {
                    "decision": one.other_effect,
                    "rule": (one.other or one.judged).decision.ground.rule,
                },
            }
            for one in found
        ],
    }
