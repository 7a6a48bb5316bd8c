"""`ironcurtain-proxy rollback`: undo the changes of a call."""

import argparse
import os
from typing import Final

from ironcurtain_proxy.cli.arguments import add_config, add_json
from ironcurtain_proxy.cli.output import complain, say, say_json
from ironcurtain_proxy.cli.rollback_timeline import (
    dropped_json,
    lines,
    listed_json,
    not_held_json,
    outcome_json,
    take_back,
    tell,
)
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.snapshots.faults import ConflictError, NoPointError
from ironcurtain_proxy.snapshots.timeline.history import Point
from ironcurtain_proxy.snapshots.timeline.rewinding import KeptTimeline, RollbackRequest, find, kept
from ironcurtain_proxy.wiring.timeline import TIMELINES, limits_of

DESCRIPTION: Final = "Undo the changes of a call, or all changes since it, in the workspace."

EXAMPLES: Final = """\
ID is the id of the request in the audit log, or its beginning. A file that changed after the call
is overwritten with --force alone. A rollback can be undone by another rollback.

examples:
  ironcurtain-proxy rollback --list
  ironcurtain-proxy rollback 3f2a --dry-run
  ironcurtain-proxy rollback 3f2a              this call alone
  ironcurtain-proxy rollback --to 3f2a         this call and all that came after it

exit status: 0 done, or nothing to do; 1 not done, not done completely, or unknown id
"""

_MOST_SHOWN: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("id", metavar="ID", nargs="?", help="the call; without it all are listed")
    what.add_argument(
        "--to", metavar="ID", help="go back to the point before this call, whatever came after it"
    )
    what.add_argument("--list", action="store_true", help="list the changes that can be undone")
    parser.add_argument(
        "--dry-run", action="store_true", help="show the changes that would be undone"
    )
    parser.add_argument(
        "--force", action="store_true", help="overwrite later changes of the same files"
    )
    add_json(parser)
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Undo the changes. 1 if that failed."""
    settings = load_settings(os.environ.copy(), options.config)
    timelines = kept(settings.state_dir / TIMELINES)
    if options.list or (options.id is None and options.to is None):
        _list(timelines, as_json=options.json)
        return 0
    reference = options.to if options.id is None else options.id
    found = find(reference, timelines) if reference else None
    if found is None:
        known = "`ironcurtain-proxy rollback --list` shows the calls"
        raise NoPointError(f"{reference!r} is no call of the timeline: {known}")
    return _take_back(options, found, settings)


def _take_back(
    options: argparse.Namespace, found: tuple[KeptTimeline, Point], settings: Settings
) -> int:
    timeline, point = found
    request = RollbackRequest(
        directory=timeline.directory,
        workspace=timeline.workspace,
        point=point,
        rewind=options.to is not None,
        force=options.force,
        dry_run=options.dry_run,
    )
    try:
        outcome = take_back(request, limits_of(settings), settings.state_dir, as_json=options.json)
    except ConflictError as error:
        _refused(error, as_json=options.json)
        return 1
    if options.json:
        say_json(outcome_json(outcome, request))
    else:
        tell(outcome, request)
    is_done = not outcome.failed and (outcome.id is not None or not outcome.plan.steps)
    return 0 if is_done or options.dry_run else 1


def _list(timelines: list[KeptTimeline], *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "calls": [*listed_json(timelines)],
                "dropped": dropped_json(timelines),
                "notHeld": not_held_json(timelines),
            }
        )
        return
    for line in list(lines(timelines)) or ["nothing can be put back: no point is kept"]:
        say(line)


def _refused(error: ConflictError, *, as_json: bool) -> None:
    if as_json:
        say_json({"error": str(error), "conflicts": [visible(name) for name in error.conflicts]})
    complain(f"{error}:")
    _complain_of(error.conflicts)
    complain("--force overwrites it")


def _complain_of(conflicts: tuple[str, ...]) -> None:
    for name in conflicts[:_MOST_SHOWN]:
        complain(f"  {visible(name)}")
    if len(conflicts) > _MOST_SHOWN:
        complain(f"  and {len(conflicts) - _MOST_SHOWN} more")
