"""`ironcurtain-proxy auto-approve`: measure the decisions of the auto-approver."""

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct, field

from ironcurtain_proxy.audit.display import printable
from ironcurtain_proxy.audit.known_logs import all_logs, family
from ironcurtain_proxy.auto_approver.evaluation import (
    ScenarioResult,
    Score,
    Share,
    judge,
    percentile,
    read_scenarios,
    scores,
    shipped_scenarios,
)
from ironcurtain_proxy.auto_approver.reviewer import AutoApproverConfig, create_model
from ironcurtain_proxy.cli.audit import default_log
from ironcurtain_proxy.cli.audit_whole import no_log, parsed_lines
from ironcurtain_proxy.cli.output import counted, say_answer, shortened
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.annotating.texts import COMMAND_ARGUMENTS, words_of
from ironcurtain_proxy.config.extras import require
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.llm.litellm_model import Model
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.decision import HUMAN, in_record
from ironcurtain_proxy.model.request import CommandPlace, Family
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.family_table import task_texts
from ironcurtain_proxy.shell.statements import parse_command

_KEY_VARIABLE: Final = "AUTO_APPROVE_API_KEY"
_TITLES: Final = {"model": "model alone", "check": "target check alone", "both": "both"}
_MESSAGE_WIDTH: Final = 60


def run(options: argparse.Namespace) -> int:
    """Run `eval` or `compare`."""
    if options.action == "compare":
        return compare_log(options)
    return _evaluate(options)


def _evaluate(options: argparse.Namespace) -> int:
    """Run `eval`. Return 0 if every scenario was scored, 1 if the model failed on some."""
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
    given = judged, options.model
    say_answer(options, lambda: _as_json(*given), lambda: _as_text(*given))
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
    """Return every scenario that a judge got wrong: its id, its call, and the words of the user."""
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
    """Return one or two lines. A scenario may have any text, so it is cut and escaped."""
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


# --- auto-approve compare -------------------------------------------------------------------------
# `auto-approve compare`: agreement of the auto-approver and people, from the audit log.


_OBJECTED: Final = "shadow: recorded, not used"
"""The objection that shadow mode records for each approval of the auto-approver."""


class Agreement(Struct):
    """The decisions of the auto-approver and of people on the calls of one tool or kind."""

    outcomes: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """The number of calls by (the auto-approver would have approved, a person approved)."""
    commands: "dict[str, Agreement]" = field(default_factory=dict)
    """Of a tool that runs shell commands: the same by kind of command, such as `git push`."""

    @property
    def total(self) -> int:
        """The number of calls that both judged."""
        return sum(self.outcomes.values())

    @property
    def agreed(self) -> int:
        """The number of calls that both approved, or that neither did."""
        return self.outcomes[True, True] + self.outcomes[False, False]

    def fields(self) -> dict[str, int]:
        """Return the counts, for JSON."""
        return {
            "calls": self.total,
            "agreed": self.agreed,
            "wrong": self.outcomes[True, False],
            "spared": self.outcomes[True, True],
            "asked": self.outcomes[False, True],
        }


def compare_log(options: argparse.Namespace) -> int:
    """Run `compare`."""
    log: Path = options.log or default_log()
    try:
        members = family(log) if options.log else all_logs(log, state_directory())
        found = agreements(parsed_lines(members))
    except FileNotFoundError as error:
        raise no_log(log) from error
    tools = {tool: _described(one) for tool, one in sorted(found.items())}
    say_answer(options, lambda: {"tools": tools}, lambda: _agreements(found))
    return 0


def agreements(entries: Iterable[Mapping[str, object]]) -> dict[str, Agreement]:
    """Count the decisions in an audit log, by tool."""
    found: dict[str, Agreement] = {}
    for entry in entries:
        thought, result = entry.get("autoApprover"), entry.get("escalationResult")
        is_a_persons = entry.get("decidedBy") == in_record(HUMAN) and result in {
            "approved",
            "denied",
        }
        if not is_a_persons or not isinstance(thought, dict) or entry.get("phase") == "intent":
            continue
        would = thought.get("said") == "approve" and thought.get("objection") in {None, _OBJECTED}
        tool = f"{entry.get('serverName')}/{entry.get('toolName')}"
        outcome = would, result == "approved"
        of_tool = found.setdefault(tool, Agreement())
        of_tool.outcomes[outcome] += 1
        if (kind := _kind_of_command(entry)) is not None:
            of_tool.commands.setdefault(kind, Agreement()).outcomes[outcome] += 1
    return found


def _kind_of_command(entry: Mapping[str, object]) -> str | None:
    """Return the programs and sub-commands of a recorded shell command, if there is one."""
    arguments = entry.get("arguments")
    if not isinstance(arguments, dict):
        return None
    for name, text in arguments.items():
        if isinstance(text, str) and "".join(words_of(name)) in COMMAND_ARGUMENTS:
            families = families_of(parse_command(text), _SOMEWHERE)
            if families is None:
                return "a command that cannot be read"
            programs = dict.fromkeys(map(_program, families))
            return " && ".join(programs) or "a command that only reads"
    return None


def _program(family: Family) -> str:
    """Return a program with its sub-command, such as `git push`."""
    words = family.program
    if words[0] in _WITH_SUBCOMMANDS and len(words) == 1:
        words = (*words, *family.kept[:1])
    return " ".join(words)


_WITH_SUBCOMMANDS: Final = frozenset({path[0] for path in task_texts() if len(path) > 1})
_SOMEWHERE: Final = CommandPlace(workspace="/workspace", directory="/workspace", home="/home")
"""The place of a recorded command is not known. Its programs do not depend on it."""


def _described(one: Agreement) -> dict[str, object]:
    kinds = {kind: commands.fields() for kind, commands in sorted(one.commands.items())}
    return {**one.fields(), **({"commands": kinds} if kinds else {})}


def _agreements(found: Mapping[str, Agreement]) -> Iterator[str]:
    if not found:
        yield "no call was judged by both the model and a person: switch on autoApprove.shadow"
        return
    yield f"{'tool':<40}{'calls':>7}{'agreed':>8}{'wrong':>7}{'spared':>8}{'asked':>7}"
    for tool, of_tool in sorted(found.items(), key=_most_first):
        yield _row(tool, of_tool)
        for kind, of_kind in sorted(of_tool.commands.items(), key=_most_first):
            yield _row(f"  {kind}", of_kind)


def _most_first(pair: tuple[str, Agreement]) -> tuple[int, str]:
    return -pair[1].total, pair[0]


def _row(name: str, one: Agreement) -> str:
    counts = one.fields()
    numbers = f"{counts['calls']:>7}{counts['agreed']:>8}{counts['wrong']:>7}"
    # An agent wrote the command, and a server the name of its tool.
    return f"{visible(name)[:39]:<40}{numbers}{counts['spared']:>8}{counts['asked']:>7}"
