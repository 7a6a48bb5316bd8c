"""`auto-approve compare`: agreement of the auto-approver and people, from the audit log."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.audit.known_logs import all_logs, family
from ironcurtain_proxy.cli.audit import default_log
from ironcurtain_proxy.cli.audit_whole import no_log, parsed_lines
from ironcurtain_proxy.cli.output import say, say_json
from ironcurtain_proxy.cli.reviewing import state_directory
from ironcurtain_proxy.config.annotating.texts import COMMAND_ARGUMENTS, words_of
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.decision import HUMAN, in_record
from ironcurtain_proxy.model.request import CommandPlace, Family
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.family_table import task_texts
from ironcurtain_proxy.shell.statements import parse_command

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


def run(options: argparse.Namespace) -> int:
    """Run `compare`."""
    log: Path = options.log or default_log()
    try:
        members = family(log) if options.log else all_logs(log, state_directory())
        found = agreements(parsed_lines(members))
    except FileNotFoundError as error:
        raise no_log(log) from error
    if options.json:
        tools = {tool: _described(one) for tool, one in sorted(found.items())}
        say_json({"tools": tools})
    else:
        say("\n".join(_agreements(found)))
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
