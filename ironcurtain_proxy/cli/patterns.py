"""`ironcurtain-proxy patterns`: patterns of calls that the engine may approve.

Nothing becomes a pattern by itself: `propose` shows what reviewers' approvals suggest, and
`promote` is a person's decision.
"""

import argparse
import getpass
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from ironcurtain_proxy.cli.arguments import add_config, add_json, add_subcommand, whole
from ironcurtain_proxy.cli.metrics import opened_store
from ironcurtain_proxy.cli.output import complain, counted, say, say_json
from ironcurtain_proxy.mailbox.display import visible

if TYPE_CHECKING:
    from ironcurtain_proxy.auto_confirm.store.rows import PatternProposal, PatternRow
    from ironcurtain_proxy.auto_confirm.store.store import Store

_EVIDENCE: Final = 4
"""The fewest approvals for a proposal. The approve rate, too, needs more than three decisions."""

DESCRIPTION: Final = "Propose, list, promote or disable the engine's approval patterns."

_EXIT_STATUS: Final = "exit status: 0; 1 if there is no such pattern, or it cannot be promoted"

EXAMPLES: Final = f"""\
A pattern lets the engine approve an operation whose path matches as a whole. The engine never
approves a call of high risk, and never overrides the policy.

examples:
  ironcurtain-proxy patterns propose
  ironcurtain-proxy patterns promote 'file_edit in /srv/app/docs'
  ironcurtain-proxy patterns list --json
  ironcurtain-proxy patterns disable 'file_edit in /srv/app/docs'

{_EXIT_STATUS}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action_of(name: str, words: str, arguments: str = "") -> argparse.ArgumentParser:
        epilog = f"example:\n  ironcurtain-proxy patterns {name} {arguments}".rstrip()
        return add_subcommand(actions, name, words, f"{epilog}\n\n{_EXIT_STATUS}")

    name = "'file_edit in /srv/app/docs'"
    proposing = action_of("propose", "propose patterns from reviewers' approvals")
    listing = action_of("list", "list all patterns")
    promoting = action_of("promote", "let a proposed or a disabled pattern approve", name)
    disabling = action_of("disable", "stop a pattern from approving", name)
    for action in (proposing, promoting):
        action.add_argument(
            "--min",
            type=whole(1),
            default=_EVIDENCE,
            dest="evidence",
            metavar="N",
            help=f"the fewest approvals behind a pattern (default {_EVIDENCE})",
        )
    for action in (promoting, disabling):
        action.add_argument(
            "name",
            metavar="NAME",
            help="the whole name of the pattern, as `list` and `propose` show it",
        )
    for action in (proposing, listing, promoting, disabling):
        add_json(action)
        add_config(action)


def run(options: argparse.Namespace) -> int:
    """Run one action. Return 1 if there is no pattern of that name."""
    with opened_store(options) as store:
        match options.action:
            case "propose":
                _propose(store.propose_patterns(options.evidence), as_json=options.json)
                return 0
            case "list":
                _list(store.patterns(), as_json=options.json)
                return 0
            case "promote":
                return _promote(store, options)
            case _:
                if not store.disable_pattern(options.name):
                    complain(
                        f"there is no pattern {options.name!r}: `patterns list` shows the names"
                    )
                    return 1
                return _done(options, "disabled")


def _propose(proposals: Sequence["PatternProposal"], *, as_json: bool) -> None:
    if as_json:
        say_json([asdict(one) for one in proposals])
        return
    if not proposals:
        say("nothing to propose")
    for one in proposals:
        say(
            f"{visible(one.name)}  {one.risk_level}  {visible(one.scope_regex)}  "
            f"({one.approved} approved, {one.rejected} refused, in "
            f"{counted(one.sessions, 'session')})"
        )


def _list(patterns: Sequence["PatternRow"], *, as_json: bool) -> None:
    if as_json:
        say_json([asdict(one) for one in patterns])
        return
    if not patterns:
        say("there are no patterns")
    for one in patterns:
        scope = "any scope" if one.scope_regex is None else visible(one.scope_regex)
        state = "approves" if one.auto_approve else "disabled"
        say(
            f"{visible(one.name)}  {state}  {one.risk_level or 'any risk'}  {scope}  "
            f"(used {one.usage_count} times, {one.success_rate:.0%} succeeded; "
            f"by {visible(one.created_by or 'unknown')})"
        )


def _promote(store: "Store", options: argparse.Namespace) -> int:
    known = {one.name for one in store.patterns()}
    if options.name in known:
        if store.enable_pattern(options.name):
            return _done(options, "promoted")
        complain(f"{options.name!r} is of high risk: such a pattern never approves")
        return 1
    for proposal in store.propose_patterns(options.evidence):
        if proposal.name == options.name:
            store.promote(proposal, getpass.getuser())
            return _done(options, "promoted")
    complain(
        f"there is no proposal or pattern {options.name!r}: `patterns propose` and `patterns list` "
        "show the names"
    )
    return 1


def _done(options: argparse.Namespace, what: str) -> int:
    if options.json:
        say_json({"name": options.name, "state": what})
    else:
        say(f"{what} {visible(options.name)}")
    return 0
