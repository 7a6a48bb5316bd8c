"""`ironcurtain-proxy rollback`: put back what a call changed.

The timeline of the workspace has the call, or a snapshot that the engine took of it.
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.reviewing import complain, say, say_json
from ironcurtain_proxy.cli.rollback_timeline import (
    dropped_json,
    lines,
    listed_json,
    not_held_json,
    outcome_json,
    take_back,
    tell,
)
from ironcurtain_proxy.cli.stored import add_config
from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.faults import ConflictError, NoSnapshotError
from ironcurtain_proxy.snapshots.places import text_of
from ironcurtain_proxy.snapshots.rollback import ListedSnapshot, Restored, find, listed, restore
from ironcurtain_proxy.snapshots.timeline.history import Point
from ironcurtain_proxy.snapshots.timeline.rewinding import Kept, RollbackRequest, kept
from ironcurtain_proxy.snapshots.timeline.rewinding import find as find_point
from ironcurtain_proxy.wiring.timeline import TIMELINES, limits_of

DESCRIPTION: Final = "Undo the changes of a call, or all changes since it, in the workspace."

EXAMPLES: Final = """\
ID is the id of the request in the audit log, or the beginning of it; of a call that the engine
approved with safeguards, also that of the escalation. Files that changed
since the call are only overwritten with --force. A rollback can be undone by another rollback.

examples:
  ironcurtain-proxy rollback --list
  ironcurtain-proxy rollback 3f2a --dry-run
  ironcurtain-proxy rollback 3f2a              this call alone
  ironcurtain-proxy rollback --to 3f2a         this call and all that came after it

exit status: 0 done, or nothing to do; 1 not done or not completely, or the id is not known
"""

_MOST_SHOWN: Final = 50
_KEYS: Final = (".ssh", ".gnupg", ".aws")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("id", metavar="ID", nargs="?", help="which call; without it all are shown")
    what.add_argument(
        "--to", metavar="ID", help="go back to the point before this call, whatever came after it"
    )
    what.add_argument("--list", action="store_true", help="show what can be put back")
    parser.add_argument("--dry-run", action="store_true", help="show what would be put back")
    parser.add_argument(
        "--force", action="store_true", help="go over what was changed since the call"
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Put it back. 1 if it could not be."""
    settings = load_settings(os.environ.copy(), options.config)
    directory = settings.state_dir / "snapshots"
    timelines = kept(settings.state_dir / TIMELINES)
    if options.list or (options.id is None and options.to is None):
        _list(timelines, listed(directory), as_json=options.json)
        return 0
    reference = options.to if options.id is None else options.id
    found = find_point(reference, timelines) if reference else None
    if found is not None and not _is_snapshot(reference, directory):
        return _take_back(options, found, settings)
    if options.to is not None:
        raise NoSnapshotError(f"{options.to!r} is no call of the timeline: see rollback --list")
    try:
        restored = restore(
            _meant(options.id, directory),
            directory,
            force=options.force,
            dry_run=options.dry_run,
            protected=_protected(settings),
        )
    except ConflictError as error:
        _refused(error, as_json=options.json)
        return 1
    if options.json:
        _write(_restored_json(restored, dry_run=options.dry_run))
    else:
        _tell(restored, dry_run=options.dry_run)
    return 0


def _meant(reference: str, directory: Path) -> str:
    try:
        return find(reference, directory)
    except NoSnapshotError as error:
        raise NoSnapshotError(f"{error}: see rollback --list") from None


def _is_snapshot(reference: str, directory: Path) -> bool:
    try:
        find(reference, directory)
    except NoSnapshotError:
        return False
    raise NoSnapshotError(f"{reference!r} is several: a call of the timeline, and a snapshot")


def _take_back(options: argparse.Namespace, found: tuple[Kept, Point], settings: Settings) -> int:
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
        outcome = take_back(request, limits_of(settings), as_json=options.json)
    except ConflictError as error:
        _refused(error, as_json=options.json)
        return 1
    if options.json:
        _write(outcome_json(outcome, request))
    else:
        tell(outcome, request)
    is_done = outcome.id is not None or not outcome.plan.steps
    return 0 if is_done or options.dry_run else 1


def _protected(settings: Settings) -> list[RealPath]:
    """Where no rollback ever writes, whatever a manifest says."""
    places = [settings.home / key for key in _KEYS]
    places += [settings.audit.path, settings.mailbox_dir]
    return [real(place) for place in places]


def _list(timelines: list[Kept], snapshots: list[ListedSnapshot], *, as_json: bool) -> None:
    if as_json:
        _write(
            {
                "calls": [*listed_json(timelines), *[_held_json(one) for one in snapshots]],
                "dropped": dropped_json(timelines),
                "notHeld": not_held_json(timelines),
            }
        )
        return
    told = list(lines(timelines))
    for one in snapshots:
        words = ", ".join(_words(one))
        at = one.manifest.at.strftime("%Y-%m-%d %H:%M:%S")
        told.append(f"{one.manifest.id}  {at}  {words}")
    for line in told or ["nothing can be put back: no point and no snapshot is kept"]:
        say(line)


def _words(one: ListedSnapshot) -> Iterable[str]:
    for place in _places(one):
        yield visible(place)
    if not one.is_finished:
        yield "what the call left was not recorded"
    if one.is_interrupted:
        yield "a rollback was cut short: run it again"


def _places(one: ListedSnapshot) -> list[str]:
    held = one.manifest.repository
    roots = one.manifest.roots
    if held is None:
        return [text_of(root) for root in roots]
    folder = (*held.top, ".git")
    named = [text_of(root) for root in roots if root[:-1] != folder]
    return [f"{text_of(held.top)} (repository)", *named]


def _tell(restored: Restored, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    if not restored.changes:
        say("nothing to do: all is as it was before the call")
    for change in restored.changes[:_MOST_SHOWN]:
        say(f"{would}{change.kind}  {visible(change.what)}")
    _rest(len(restored.changes))
    for name in restored.kept[:_MOST_SHOWN]:
        say(f"stays, as it came later  {visible(name)}")
    _rest(len(restored.kept))
    if dry_run and restored.conflicts:
        complain("it would be refused without --force; changed since the call:")
        _complain_of(restored.conflicts)


def _rest(count: int) -> None:
    if count > _MOST_SHOWN:
        say(f"and {count - _MOST_SHOWN} more (--json shows all)")


def _refused(error: ConflictError, *, as_json: bool) -> None:
    if as_json:
        _write({"error": str(error), "conflicts": [visible(name) for name in error.conflicts]})
    complain(f"{error}:")
    _complain_of(error.conflicts)
    complain("--force goes over it")


def _complain_of(conflicts: tuple[str, ...]) -> None:
    for name in conflicts[:_MOST_SHOWN]:
        complain(f"  {visible(name)}")
    if len(conflicts) > _MOST_SHOWN:
        complain(f"  and {len(conflicts) - _MOST_SHOWN} more")


def _restored_json(restored: Restored, *, dry_run: bool) -> dict[str, Json]:
    return {
        "id": restored.id,
        "dryRun": dry_run,
        "changes": [
            {"what": visible(change.what), "kind": change.kind} for change in restored.changes
        ],
        "conflicts": [visible(name) for name in restored.conflicts],
        "kept": [visible(name) for name in restored.kept],
    }


def _held_json(one: ListedSnapshot) -> dict[str, Json]:
    return {
        "id": one.manifest.id,
        "kind": "snapshot",
        "at": one.manifest.at.isoformat(),
        "places": [visible(place) for place in _places(one)],
        "finished": one.is_finished,
        "interrupted": one.is_interrupted,
    }


def _write(value: Json) -> None:
    say_json(value)
