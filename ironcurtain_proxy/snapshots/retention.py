"""Which snapshots are kept, and the removal of the others."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.faults import RollbackError
from ironcurtain_proxy.snapshots.manifest import Manifest, read_manifest
from ironcurtain_proxy.snapshots.repository import remove_anchor
from ironcurtain_proxy.snapshots.storage import (
    ANCHORED,
    MANIFEST,
    all_ids,
    locked,
    locked_remains,
    read_file,
    remove_place,
    size_of,
)
from ironcurtain_proxy.snapshots.under_way import is_under_way


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long and how much is kept: what is beyond any of these goes, the oldest first."""

    count: int = 50
    age: timedelta = timedelta(days=7)
    bytes: int = 1 << 30


def prune(
    directory: Path,
    now: datetime,
    retention: Retention = Retention(),
) -> tuple[str, ...]:
    """Remove the snapshots that are not to be kept, and those whose taking was cut short.

    Blocks: not for an event loop. One that is in use, or whose call is under way, stays.

    Args:
        directory: where all snapshots are; it need not exist.
        now: aware, UTC.
        retention: what to keep.

    Returns:
        The ids of those that were removed.
    """
    complete = sorted(_read(directory), key=lambda one: one[1].at, reverse=True)
    known = {identifier for identifier, _ in complete}
    doomed = [(name, False) for name in all_ids(directory) if name not in known]
    total = 0
    for count, (identifier, manifest) in enumerate(complete):
        total += size_of(directory / identifier)
        old = now - manifest.at > retention.age
        if old or count >= retention.count or total > retention.bytes:
            doomed.append((identifier, True))
    return tuple([name for name, whole in doomed if _remove(directory / name, is_whole=whole)])


def _read(directory: Path) -> Iterator[tuple[str, Manifest]]:
    for identifier in all_ids(directory):
        with suppress(OSError, RollbackError):
            raw = read_file(directory / identifier, MANIFEST)
            if raw is not None:
                yield identifier, read_manifest(raw)


def _remove(place: Path, *, is_whole: bool) -> bool:
    lock = locked(place, wait=False) if is_whole else locked_remains(place)
    with suppress(OSError), lock as alone:
        # It may have been finished since it was looked at.
        if not alone or is_under_way(place) or (not is_whole and _readable(place)):
            return False
        with suppress(RollbackError):
            top = read_file(place, ANCHORED)
            if top is not None:
                remove_anchor(RealPath.from_text(os.fsdecode(top)).parts, place.name)
        remove_place(place)
        return True
    return False


def _readable(place: Path) -> bool:
    with suppress(OSError, RollbackError):
        raw = read_file(place, MANIFEST)
        return raw is not None and bool(read_manifest(raw).id)
    return False
