"""`auto-approve compare`: agreement of the auto-approver and people, from the audit log."""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.audit.family import family
from ironcurtain_proxy.audit.known_logs import all_logs
from ironcurtain_proxy.cli.arguments import add_json
from ironcurtain_proxy.cli.audit import default_log
from ironcurtain_proxy.cli.audit_whole import parsed_lines
from ironcurtain_proxy.cli.output import say, say_json
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.errors import ConfigurationError

DESCRIPTION: Final = """\
Read the audit logs and show, by tool, how often the auto-approver would have decided as a person
did. A call counts if the auto-approver gave its opinion and a person decided. With "autoApprove":
{"enabled": true, "shadow": true}, that is every call that a person answers after the model did.

wrong: a person denied a call that the auto-approver would have approved. spared: both approved the
call. asked: a person approved a call that the auto-approver passed on.
"""

_OBJECTED: Final = "shadow: recorded, not used"
"""The objection that shadow mode records for each approval of the auto-approver."""


@dataclass(slots=True)
class Agreement:
    """The decisions of the auto-approver and of people on the calls of one tool."""

    outcomes: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    """The number of calls by (the auto-approver would have approved, a person approved)."""

    @property
    def total(self) -> int:
        """The number of calls that both judged."""
        return sum(self.outcomes.values())

    @property
    def agreed(self) -> int:
        """The number of calls that both approved, or that neither did."""
        return self.outcomes[True, True] + self.outcomes[False, False]

    def fields(self) -> dict[str, int]:
        """The counts, for JSON."""
        return {
            "calls": self.total,
            "agreed": self.agreed,
            "wrong": self.outcomes[True, False],
            "spared": self.outcomes[True, True],
            "asked": self.outcomes[False, True],
        }


def add_compare(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command `compare`."""
    parser = commands.add_parser(
        "compare",
        help="count from the audit log how often people agree with it",
        description=DESCRIPTION,
        epilog="example:\n  ironcurtain-proxy auto-approve compare",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="PATH",
        help="the log (default: AUDIT_LOG_PATH, else ~/.ironcurtain/audit.jsonl)",
    )
    add_json(parser)


def compare_log(options: argparse.Namespace) -> int:
    """Run `compare`."""
    log: Path = (options.log or default_log()).expanduser()
    try:
        members = family(log) if options.log else all_logs(log, state_directory())
        found = agreements(parsed_lines(members))
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"there is no audit log {log}; name another with --log or AUDIT_LOG_PATH"
        ) from error
    if options.json:
        tools = {tool: one.fields() for tool, one in sorted(found.items())}
        say_json({"tools": tools})
    else:
        say("\n".join(_as_text(found)))
    return 0


def agreements(entries: Iterable[Mapping[str, object]]) -> dict[str, Agreement]:
    """Count the decisions in an audit log, by tool."""
    found: dict[str, Agreement] = {}
    for entry in entries:
        thought, result = entry.get("autoApprover"), entry.get("escalationResult")
        is_a_persons = entry.get("decidedBy") == "human" and result in {"approved", "denied"}
        if not is_a_persons or not isinstance(thought, dict) or entry.get("phase") == "intent":
            continue
        would = thought.get("said") == "approve" and thought.get("objection") in {None, _OBJECTED}
        tool = f"{entry.get('serverName')}/{entry.get('toolName')}"
        found.setdefault(tool, Agreement()).outcomes[would, result == "approved"] += 1
    return found


def _as_text(found: Mapping[str, Agreement]) -> list[str]:
    if not found:
        return ["no call was judged by both: switch on autoApprove.shadow"]
    lines = [f"{'tool':<40}{'calls':>7}{'agreed':>8}{'wrong':>7}{'spared':>8}{'asked':>7}"]
    for tool, one in sorted(found.items(), key=lambda pair: -pair[1].total):
        counts = one.fields()
        numbers = f"{counts['calls']:>7}{counts['agreed']:>8}{counts['wrong']:>7}"
        lines.append(f"{tool[:39]:<40}{numbers}{counts['spared']:>8}{counts['asked']:>7}")
    return lines
