"""`ironcurtain-proxy auto-approve`: measure the decisions of the auto-approver."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.audit.display import printable
from ironcurtain_proxy.auto_approver.evaluation import (
    ScenarioResult,
    Score,
    Share,
    judge,
    percentile,
    scores,
)
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, create_model
from ironcurtain_proxy.auto_approver.scenarios import read_scenarios, shipped_scenarios
from ironcurtain_proxy.cli.arguments import add_json, add_subcommand
from ironcurtain_proxy.cli.auto_approve_compare import add_compare, compare_log
from ironcurtain_proxy.cli.output import counted, say, say_json, shortened
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.llm.litellm_model import Model
from ironcurtain_proxy.own_process.clocks import SystemClock

DESCRIPTION: Final = """\
Measure the auto-approver before you switch it on. The auto-approver lets a model approve escalated
calls that the user's own message asks for, unless a deterministic check objects.
"""

EVAL_EPILOG: Final = """\
A false approval is a call that the message did not ask for and that would have been carried out. A
false escalation only costs a question. Without --model the target check is scored alone: then
"approved" means that it does not object. The key is taken from AUTO_APPROVE_API_KEY.

examples:
  ironcurtain-proxy auto-approve eval
  ironcurtain-proxy auto-approve eval --model anthropic:claude-haiku-4-5
  ironcurtain-proxy auto-approve eval --model openai:local --api-base http://127.0.0.1:8080/v1
  ironcurtain-proxy auto-approve eval --scenarios mine.jsonl --json

exit status: 0 scored; 1 the model could not be asked; 2 an argument cannot be used
"""

_KEY_VARIABLE: Final = "AUTO_APPROVE_API_KEY"
_TITLES: Final = {"model": "model alone", "check": "target check alone", "both": "both"}
_MESSAGE_WIDTH: Final = 60


EXAMPLES: Final = """\
examples:
  ironcurtain-proxy auto-approve eval
  ironcurtain-proxy auto-approve compare

exit status: 0 measured; 1 the model could not be asked; 2 an argument cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    commands = parser.add_subparsers(dest="auto_approve_command", metavar="COMMAND", required=True)
    words = "run labelled scenarios and print a scorecard"
    evaluation = add_subcommand(commands, "eval", words, EVAL_EPILOG)
    evaluation.add_argument(
        "--model", metavar="M", help="the model, as PROVIDER:MODEL (default: none)"
    )
    evaluation.add_argument(
        "--api-base", metavar="URL", help="the address of an OpenAI-compatible server"
    )
    evaluation.add_argument(
        "--scenarios",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="files of JSON lines (default: the shipped scenarios)",
    )
    evaluation.add_argument(
        "--deadline",
        type=float,
        default=8.0,
        metavar="S",
        help="the seconds for one question (default 8)",
    )
    add_json(evaluation)
    add_compare(commands)


def run(options: argparse.Namespace) -> int:
    """Run `eval` or `compare`."""
    if options.auto_approve_command == "compare":
        return compare_log(options)
    return _evaluate(options)


def _evaluate(options: argparse.Namespace) -> int:
    """Run `eval`. 0 if every scenario was scored, 1 if the model failed on some."""
    key = os.environ.pop(_KEY_VARIABLE, "")
    if not 0 < options.deadline <= 3600:  # noqa: PLR2004  an hour
        raise ConfigurationError("--deadline must be more than 0 and at most 3600 seconds")
    scenarios = (
        [one for path in options.scenarios for one in read_scenarios(path)]
        if options.scenarios
        else shipped_scenarios()
    )
    model = _model(options, key)

    async def everything() -> list[ScenarioResult]:
        if model is None:
            return await judge(scenarios, None, SystemClock(), options.deadline)
        await _warm(model)
        try:
            return await judge(scenarios, model, SystemClock(), options.deadline)
        finally:
            await model.aclose()

    judged = anyio.run(everything)
    if options.json:
        say_json(_as_json(judged, options.model))
    else:
        for line in _as_text(judged, options.model):
            say(line)
    return 1 if any(one.outage is not None for one in judged) else 0


def _model(options: argparse.Namespace, key: str) -> Model | None:
    if options.model is None:
        if options.api_base is not None:
            raise ConfigurationError(
                "--api-base is the address of a model: name the model with --model"
            )
        return None
    require("llm", "auto-approve --model")
    config = AutoApproverConfig(enabled=True, model_id=options.model, api_base=options.api_base)
    return create_model(config, key)


async def _warm(model: Model) -> None:
    """Load the model's library before time is measured; the proxy loads it in the background."""
    try:
        await model.warm()
    except Exception as error:
        raise ConfigurationError(
            f"the model's library cannot be loaded: {type(error).__name__}: "
            "pip install --force-reinstall 'ironcurtain-proxy[llm]'"
        ) from error


def _as_json(judged: Sequence[ScenarioResult], model: str | None) -> dict[str, object]:
    seconds = [one.seconds for one in judged if one.model_approves is not None]
    categories = sorted({one.scenario.category for one in judged})
    return {
        "scenarios": len(judged),
        "model": model,
        "judges": {name: _score_as_json(found) for name, found in scores(judged).items()},
        "categories": {
            category: {
                name: _score_as_json(found) for name, found in scores(_of(judged, category)).items()
            }
            for category in categories
        },
        "latencySeconds": {"p50": percentile(seconds, 0.5), "p95": percentile(seconds, 0.95)},
        "outages": [
            {"id": one.scenario.id, "why": one.outage} for one in judged if one.outage is not None
        ],
    }


def _of(judged: Sequence[ScenarioResult], category: str) -> list[ScenarioResult]:
    return [one for one in judged if one.scenario.category == category]


def _score_as_json(found: Score) -> dict[str, object]:
    return {
        "falseApprovals": [*found.false_approvals],
        "falseApprovalRate": _share_as_json(found.wrongly_approved),
        "falseEscalations": [*found.false_escalations],
        "falseEscalationRate": _share_as_json(found.wrongly_escalated),
    }


def _share_as_json(share: Share) -> dict[str, object]:
    return {"count": share.count, "of": share.total, "rate": share.rate, "ci95": share.interval}


def _as_text(judged: Sequence[ScenarioResult], model: str | None) -> list[str]:
    found = scores(judged)
    lines = [f"{counted(len(judged), 'scenario')}, {f'model {model}' if model else 'no model'}", ""]
    lines.append(f"{'':<22}{'false approvals':<30}{'false escalations':<30}")
    for name, title in _TITLES.items():
        if name in found:
            one = found[name]
            wrong = _shown(one.wrongly_approved)
            lines.append(f"{title:<22}{wrong:<30}{_shown(one.wrongly_escalated):<30}".rstrip())
    lines += ["", f"{'category':<26}{'judge':<22}{'false approvals':<18}false escalations"]
    for category in sorted({one.scenario.category for one in judged}):
        of_category = scores(_of(judged, category))
        for name, title in _TITLES.items():
            if name in of_category:
                one = of_category[name]
                wrong = _counted(one.wrongly_approved)
                other = _counted(one.wrongly_escalated)
                lines.append(f"{category[:25]:<26}{title:<22}{wrong:<18}{other}")
    return [*lines, *_wrong(judged, found), *_latency(judged)]


def _wrong(judged: Sequence[ScenarioResult], found: dict[str, Score]) -> list[str]:
    """Every scenario that a judge got wrong: its id, its call, and the words of the user."""
    by_id = {one.scenario.id: one for one in judged}
    lines: list[str] = []
    for name, title in _TITLES.items():
        if name in found:
            one = found[name]
            for kind, ids in (
                ("false approvals", one.false_approvals),
                ("false escalations", one.false_escalations),
            ):
                lines += ["", f"{title}, {kind}:{'' if ids else ' none'}"]
                lines += [line for each in ids for line in _case(by_id[each])]
    return lines


def _case(result: ScenarioResult) -> list[str]:
    """One or two lines. A scenario may have any text, so it is cut and escaped."""
    scenario = result.scenario
    call = f"{scenario.escalation.server}/{scenario.escalation.tool}"
    message = shortened(scenario.message, _MESSAGE_WIDTH)
    lines = [printable(f'  {scenario.id}  {call}  "{message}"')]
    if result.objection is not None:
        lines.append(printable(f"      the check: {result.objection}"))
    return lines


def _latency(judged: Sequence[ScenarioResult]) -> list[str]:
    seconds = [one.seconds for one in judged if one.model_approves is not None]
    middle, high = percentile(seconds, 0.5), percentile(seconds, 0.95)
    if middle is None or high is None:
        return []
    lines = ["", f"latency of the model: p50 {middle * 1000:.0f} ms, p95 {high * 1000:.0f} ms"]
    failed = [one.scenario.id for one in judged if one.outage is not None]
    if failed:
        first = next(one.outage for one in judged if one.outage is not None)
        lines.append(f"the model could not be asked {len(failed)} times; the first reason: {first}")
    return lines


def _shown(share: Share) -> str:
    if share.rate is None or share.interval is None:
        return "-"
    low, high = share.interval
    return f"{share.count} of {share.total} ({low:.1%} to {high:.1%})"


def _counted(share: Share) -> str:
    return f"{share.count}/{share.total}" if share.total else "-"
