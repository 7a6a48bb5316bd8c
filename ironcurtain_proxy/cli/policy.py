"""`ironcurtain-proxy policy`: show, change, test and replay the policy."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.cli.arguments import add_config, add_json, add_log, add_subcommand
from ironcurtain_proxy.cli.policy_change import change
from ironcurtain_proxy.cli.policy_judging import replay, test
from ironcurtain_proxy.cli.policy_show import export, show
from ironcurtain_proxy.cli.policy_suggest import suggest

DESCRIPTION: Final = """\
Show the rules of all layers, add a rule to yours, test the policy with scenarios, decide recorded
calls again by other rules, or have rules proposed. Nothing is started or forwarded.
"""

_EXIT_STATUS: Final = (
    "exit status: 0; 1 if a scenario fails; 2 if an argument or a file cannot be used"
)

_USES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "show": "",
        "allow": "filesystem/write_file --path ~/notes",
        "ask": "fetch/fetch --host '*.org' --dry-run",
        "deny": "'github/*'",
        "test": "scenarios.yaml",
        "replay": "--candidate new.yaml",
        "suggest": "--apply",
        "export": "./policy",
    }
)
"""The arguments of each sub-command's example."""

EXAMPLES: Final = f"""\
examples:
  ironcurtain-proxy policy show                             the rules of all layers, in order
  ironcurtain-proxy policy allow sqlite/read_query          add a rule to ~/.ironcurtain/policy.yaml
  ironcurtain-proxy policy ask fetch/fetch --host '*.org' --dry-run
  ironcurtain-proxy policy test scenarios.yaml              are these calls decided as expected?
  ironcurtain-proxy policy replay --candidate new.yaml      which recorded calls would differ?
  ironcurtain-proxy policy suggest --apply                  rules for what you approve often
  ironcurtain-proxy policy export DIR                       the shipped files, for reading

{_EXIT_STATUS}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    commands = parser.add_subparsers(dest="policy_command", metavar="COMMAND", required=True)

    def command(name: str, words: str) -> argparse.ArgumentParser:
        epilog = f"example:\n  ironcurtain-proxy policy {name} {_USES[name]}".rstrip()
        added = add_subcommand(commands, name, words, f"{epilog}\n\n{_EXIT_STATUS}")
        if name != "export":
            add_config(added)
        return added

    shown = command("show", "show the rules of all layers, in the order in which they are asked")
    add_json(shown)
    for verb in ("allow", "ask", "deny"):
        what = "ask about" if verb == "ask" else verb
        changed = command(verb, f"add a rule to your layer: {what} a tool")
        changed.add_argument(
            "tool", metavar="SERVER/TOOL", help="a tool; SERVER/* for all tools of a server"
        )
        add = changed.add_argument
        add(
            "--path",
            action="append",
            default=[],
            metavar="DIR",
            help="only below this directory; may be repeated",
        )
        add(
            "--host",
            action="append",
            default=[],
            metavar="HOST",
            help="only for this host; may be repeated",
        )
        add(
            "--sql",
            choices=("reads", "writes", "destroys"),
            help="only SQL that does no more than this",
        )
        add("--dry-run", action="store_true", help="show the change, and write nothing")
        if verb == "allow":
            add(
                "--secrets", action="store_true", help="also files such as .env, which hold secrets"
            )
    _add_judging(command)
    exported = command("export", "write the shipped policy and annotations into a directory")
    exported.add_argument("directory", type=Path, metavar="DIR", help="the directory to write")


def _add_judging(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the commands that judge scenarios or recorded calls."""
    tested = command("test", "test the policy with files of scenarios")
    tested.add_argument("files", nargs="+", type=Path, metavar="FILE", help="scenarios, as YAML")
    replayed = command("replay", "decide recorded calls again, by another file of rules")
    replayed.add_argument(
        "--candidate", type=Path, required=True, metavar="FILE", help="the other rules"
    )
    add_log(replayed, "yours")
    add_json(replayed)
    suggested = command("suggest", "propose rules that would have avoided questions")
    add_log(suggested)
    least = "the fewest questions that a rule spares (default 2)"
    suggested.add_argument("--least", type=int, default=2, metavar="N", help=least)
    add_json(suggested)
    applied = "show the change of policy.yaml, ask, and write it"
    suggested.add_argument("--apply", action="store_true", help=applied)


def run(options: argparse.Namespace) -> int:
    """Run one of the commands.

    Raises:
        ConfigurationError: an argument or a file cannot be used.
    """
    match options.policy_command:
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
