"""`ironcurtain-proxy explain`: why a call is allowed, escalated or denied, step by step."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from ironcurtain_proxy.administration.engine_file import LoadedEngine, load_engine
from ironcurtain_proxy.administration.policy_loading import load_policy
from ironcurtain_proxy.administration.settings import Settings, load_settings
from ironcurtain_proxy.cli.explain_overlay import Asked, Found, judged
from ironcurtain_proxy.cli.explain_overlay import as_json as overlay_as_json
from ironcurtain_proxy.cli.explain_overlay import as_text as overlay_as_text
from ironcurtain_proxy.cli.kernel import Kernel
from ironcurtain_proxy.decision.explanation import Explanation, explain, shown
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.decision import Escalate, effect_of
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.policy import Rule
from ironcurtain_proxy.model.request import Facts, Gathered

if TYPE_CHECKING:
    from ironcurtain_proxy.cli import Subparsers

DESCRIPTION: Final = """\
Show each step of one decision: every argument with its role and canonical value, every invariant
and rule that was tried and why it did or did not hold, and the smallest change of policy that
would allow the call. Nothing is started, forwarded or recorded.
"""

EXAMPLE: Final = """\
example:
  ironcurtain-proxy explain filesystem/read_file --args '{"path": "~/notes.txt"}'
  ironcurtain-proxy explain git/git_status --args '{"repo_path": "."}' --dir ./policy --json

exit status: 0, whatever the decision; 2 if the arguments or the files cannot be used
"""


def add_parser(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="show step by step why a call is allowed, escalated or denied",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tool", metavar="SERVER/TOOL", help="the tool, by its server's name")
    parser.add_argument("--args", default="{}", metavar="JSON", help="its arguments (default {})")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="use a directory as `decide` does (default: yours)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration file")
    parser.add_argument("--json", action="store_true", help="write JSON")


def run(options: argparse.Namespace) -> int:
    """Explain one call. 0 whatever the decision is."""
    server, slash, tool = options.tool.partition("/")
    if not (server and slash and tool):
        raise ConfigurationError(
            f"{options.tool!r} is not SERVER/TOOL, such as filesystem/read_file"
        )
    arguments = _arguments(options.args)
    engine, known_as, settings = _engine(options, server)
    gathered = Kernel.of(engine, check_schemas=True).gather(known_as, tool, arguments)
    explanation = (
        explain(gathered.request, engine.loaded.policy) if isinstance(gathered, Facts) else None
    )
    overlay: Found | None = None
    asked = None if settings is None else Asked(server, tool, settings)
    if asked is not None and isinstance(gathered, Facts):
        overlay = judged(asked, gathered, engine.loaded.policy)
    if options.json:
        fields = _as_json(gathered, explanation)
        if overlay is not None and asked is not None:
            fields["overlay"] = dict(overlay_as_json(overlay, asked))
        document = orjson.dumps(fields, option=orjson.OPT_INDENT_2)
        sys.stdout.write(document.decode() + "\n")
        return 0
    lines = _as_text(options.tool, gathered, explanation)
    if overlay is not None and asked is not None:
        lines += overlay_as_text(overlay, asked)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _arguments(text: str) -> Arguments:
    try:
        arguments = orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--args is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ConfigurationError('--args must be a JSON object, such as {"path": "a.txt"}')
    return arguments


def _engine(options: argparse.Namespace, server: str) -> tuple[LoadedEngine, str, Settings | None]:
    """The files to use, the name policy and annotations know the server by, and the settings.

    No settings: a directory was named, which holds a policy and nothing else.
    """
    if options.dir is not None:
        return load_engine(options.dir, Path(os.environ.get("HOME", "/"))), server, None

    settings = load_settings(dict(os.environ), options.config)
    names = {spec.name: spec.annotations for spec in settings.servers}
    engine = LoadedEngine(
        loaded=load_policy(settings),
        home=settings.home,
        container_workspace_dir=settings.container_workspace_dir,
    )
    return engine, names.get(server, server), settings


def _as_text(tool: str, gathered: Gathered, explanation: Explanation | None) -> list[str]:

    if not isinstance(gathered, Facts) or explanation is None:
        ground = gathered.ground if not isinstance(gathered, Facts) else None
        reason = ground.reason if ground is not None else ""
        return [f"{tool}: deny", f"  the arguments cannot be read: {reason}"]
    decision = explanation.decision
    lines = [
        f"{tool}: {effect_of(decision)} by {decision.ground.rule}",
        f"  {decision.ground.reason}",
        "",
        "arguments",
    ]
    for fact in gathered.request.arguments:
        values = ", ".join(shown(value) or '""' for value in fact.values) or "(not given)"
        lines.append(f"  {fact.name} [{', '.join(fact.roles)}]: {values}")
    if not gathered.request.arguments:
        lines.append("  none that names a resource")
    lines += ["", "invariants"]
    lines += [f"  {name}: {said}" for name, said in explanation.invariants]
    for trace in explanation.roles:
        lines += ["", f"role {trace.role or '(none: the tool names no resource)'}"]
        if trace.contained:
            lines.append("  settled: every path lies in the workspace")
        for trial in trace.trials:
            lines.append(f"  {'+' if trial.holds else '-'} {trial.rule}: {trial.why}")
        lines.append(f"  = {effect_of(trace.answer)} by {trace.answer.ground.rule}")
    if explanation.roles:
        lines += ["", f"({explanation.other_rules} rules speak only of other tools)"]
    return [*lines, *_remedy(explanation)]


def _remedy(explanation: Explanation) -> list[str]:
    if explanation.change:
        rules = orjson.dumps(
            [rule_as_json(rule) for rule in explanation.change], option=orjson.OPT_INDENT_2
        ).decode()
        return ["", "to allow exactly this, put before all other rules:", rules]
    return ["", explanation.advice] if explanation.advice else []


def rule_as_json(rule: Rule) -> dict[str, Json]:
    """A rule as it stands in compiled-policy.json."""
    condition: dict[str, Json] = {}
    if rule.roles is not None:
        condition["roles"] = [*sorted(rule.roles)]
    if rule.servers is not None:
        condition["server"] = [*sorted(rule.servers)]
    if rule.tools is not None:
        condition["tool"] = [*sorted(rule.tools)]
    if rule.paths is not None:
        condition["paths"] = {
            "roles": [*sorted(rule.paths.roles)],
            "within": str(rule.paths.within),
        }
    if rule.names is not None:
        condition["names"] = {
            "roles": [*sorted(rule.names.roles)],
            "matching": [*sorted(rule.names.matching)],
            "unless": [*sorted(rule.names.unless)],
        }
    if rule.domains is not None:
        condition["domains"] = {
            "roles": [*sorted(rule.domains.roles)],
            "allowed": [*sorted(rule.domains.allowed)],
        }
    if rule.lists:
        condition["lists"] = [
            {
                "roles": [*sorted(entry.roles)],
                "allowed": [*sorted(entry.allowed)],
                "matchType": entry.kind,
            }
            for entry in rule.lists
        ]
    return {
        "name": rule.name,
        "description": rule.description or rule.reason,
        "principle": rule.principle or "Added by the operator",
        "if": condition,
        "then": rule.effect,
        "reason": rule.reason,
    }


def _as_json(gathered: Gathered, explanation: Explanation | None) -> dict[str, Json]:

    if not isinstance(gathered, Facts) or explanation is None:
        ground = None if isinstance(gathered, Facts) else gathered.ground
        return {
            "decision": "deny",
            "rule": ground.rule if ground else "",
            "reason": ground.reason if ground else "",
        }
    decision = explanation.decision
    return {
        "decision": effect_of(decision),
        "rule": decision.ground.rule,
        "reason": decision.ground.reason,
        "escalatedRoles": [*decision.roles] if isinstance(decision, Escalate) else [],
        "arguments": [
            {
                "name": fact.name,
                "roles": [*fact.roles],
                "values": [shown(value) for value in fact.values],
            }
            for fact in gathered.request.arguments
        ],
        "invariants": [{"name": name, "said": said} for name, said in explanation.invariants],
        "roles": [
            {
                "role": trace.role,
                "contained": trace.contained,
                "rules": [
                    {"rule": trial.rule, "holds": trial.holds, "why": trial.why}
                    for trial in trace.trials
                ],
                "decision": effect_of(trace.answer),
                "rule": trace.answer.ground.rule,
            }
            for trace in explanation.roles
        ],
        "change": [rule_as_json(rule) for rule in explanation.change],
        "advice": explanation.advice,
    }
