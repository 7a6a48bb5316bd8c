"""`ironcurtain-proxy rollback`: put back what a call changed that was approved under conditions."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ironcurtain_proxy.cli.reviewing import complain, say, say_json
from ironcurtain_proxy.cli.stored import add_config
from ironcurtain_proxy.config.reading.operator_paths import real
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.faults import ConflictError, NoSnapshotError
from ironcurtain_proxy.snapshots.places import text_of
from ironcurtain_proxy.snapshots.rollback import Held, Restored, find, listed, restore

DESCRIPTION: Final = "Put back what a call changed that was approved under conditions."

EXAMPLES: Final = """\
ID is the id of the request or of the escalation in the audit log, or the beginning of it. What was
changed since the call is not gone over without --force.

examples:
  ironcurtain-proxy rollback --list
  ironcurtain-proxy rollback 3f2a --dry-run
  ironcurtain-proxy rollback 3f2a
"""

_MOST_SHOWN: Final = 50
_KEYS: Final = (".ssh", ".gnupg", ".aws")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("id", metavar="ID", nargs="?", help="which call; without it all are shown")
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
    if options.list or options.id is None:
        _list(listed(directory), as_json=options.json)
        return 0
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


def _protected(settings: Settings) -> list[RealPath]:
    """Where no rollback ever writes, whatever a manifest says."""
    places = [settings.home / key for key in _KEYS]
    places += [settings.audit.path, settings.mailbox_dir]
    return [real(place) for place in places]


def _list(found: list[Held], *, as_json: bool) -> None:
    if as_json:
        _write([_held_json(one) for one in found])
        return
    if not found:
        say("nothing can be put back: no snapshot is kept")
    for one in found:
        told = ", ".join(_words(one))
        at = one.manifest.at.strftime("%Y-%m-%d %H:%M:%S")
        say(f"{one.manifest.id}  {at}  {told}")


def _words(one: Held) -> Iterable[str]:
    for place in _places(one):
        yield visible(place)
    if not one.is_finished:
        yield "what the call left was not recorded"
    if one.is_interrupted:
        yield "a rollback was cut short: run it again"


def _places(one: Held) -> list[str]:
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


def _held_json(one: Held) -> dict[str, Json]:
    return {
        "id": one.manifest.id,
        "at": one.manifest.at.isoformat(),
        "places": [visible(place) for place in _places(one)],
        "finished": one.is_finished,
        "interrupted": one.is_interrupted,
    }


def _write(value: Json) -> None:
    say_json(value)
