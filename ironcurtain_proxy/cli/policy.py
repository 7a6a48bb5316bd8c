"""`ironcurtain-proxy policy`: show, change, test and replay the policy."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.arguments import add_config, add_json
from ironcurtain_proxy.cli.policy_change import change
from ironcurtain_proxy.cli.policy_judging import replay, test
from ironcurtain_proxy.cli.policy_show import export, show
from ironcurtain_proxy.cli.policy_suggest import suggest

DESCRIPTION: Final = """\
Show the rules of all layers, add a rule to yours, test the policy with scenarios, decide recorded
calls again by other rules, or have rules proposed. Nothing is started or forwarded.
"""

EXAMPLES: Final = """\
examples:
  ironcurtain-proxy policy show                             the rules of all layers, in order
  ironcurtain-proxy policy allow sqlite/read_query          add a rule to ~/.ironcurtain/policy.yaml
  ironcurtain-proxy policy ask fetch/fetch --host '*.org' --dry-run
  ironcurtain-proxy policy test scenarios.yaml              are these calls decided as expected?
  ironcurtain-proxy policy replay --candidate new.yaml      which recorded calls would differ?
  ironcurtain-proxy policy suggest --apply                  rules for what you approve often
  ironcurtain-proxy policy export DIR                       the shipped files, for reading

exit status: 0; 1 if a scenario fails; 2 if an argument or a file cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    commands = parser.add_subparsers(dest="policy_command", metavar="COMMAND", required=True)

    def command(name: str, words: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, description=words[0].upper() + words[1:])
        if name != "export":
            add_config(added)
        return added

    shown = command("show", "show the rules of all layers, in the order in which they are asked")
    add_json(shown)
    for verb in ("allow", "ask", "deny"):
        what = "ask about" if verb == "ask" else verb
        changed = command(verb, f"add a rule to your layer: {what} a tool")
        changed.add_argument("tool", metavar="SERVER/TOOL", help="a tool, or SERVER/* for all")
        add = changed.add_argument
        add("--path", action="append", default=[], metavar="P", help="only below this directory")
        add("--host", action="append", default=[], metavar="H", help="only for this host")
        add("--sql", choices=("reads", "writes", "destroys"), help="only SQL that does this")
        add("--dry-run", action="store_true", help="show the change, and write nothing")
        if verb == "allow":
            add("--secrets", action="store_true", help="also files like .env, which hold secrets")
    _add_judging(command)
    exported = command("export", "write the shipped policy and annotations into a directory")
    exported.add_argument("directory", type=Path, metavar="DIR")


def _add_judging(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the commands that judge scenarios or recorded calls."""
    tested = command("test", "test the policy with files of scenarios")
    tested.add_argument("files", nargs="+", type=Path, metavar="FILE", help="scenarios, as YAML")
    replayed = command("replay", "decide recorded calls again, by another file of rules")
    replayed.add_argument("--candidate", type=Path, required=True, metavar="FILE")
    replayed.add_argument("--log", type=Path, metavar="PATH", help="default: your audit log")
    add_json(replayed)
    suggested = command("suggest", "propose rules that would have avoided questions")
    suggested.add_argument("--log", type=Path, metavar="PATH", help="default: all your audit logs")
    least = "the fewest questions that a rule spares (default 2)"
    suggested.add_argument("--least", type=int, default=2, metavar="N", help=least)
    add_json(suggested)
    applied = "show the change of policy.yaml, and ask before it is written"
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
