"""Puts back what a snapshot holds, and nothing else.

What is there must be what was held or what the call left; else somebody worked on it since, and
only `force` goes over that.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.applying import TreeRestorer, open_up
from ironcurtain_proxy.snapshots.contents import Contents, Extent
from ironcurtain_proxy.snapshots.faults import (
    ConflictError,
    NoSnapshotError,
    RollbackError,
    SnapshotError,
)
from ironcurtain_proxy.snapshots.git_commands import GitError
from ironcurtain_proxy.snapshots.manifest import (
    AfterState,
    Manifest,
    after_bytes,
    read_after,
    read_manifest,
)
from ironcurtain_proxy.snapshots.own_repository import fetched
from ironcurtain_proxy.snapshots.places import Parts, is_within, text_of
from ironcurtain_proxy.snapshots.planning import RestorePlan, RestoreSituation, RestoreStep, plan
from ironcurtain_proxy.snapshots.repository import (
    check_idle,
    check_safe,
    is_believable,
    read_refs,
    set_refs,
)
from ironcurtain_proxy.snapshots.snapshot import walk_now
from ironcurtain_proxy.snapshots.storage import (
    AFTER,
    BLOBS,
    MANIFEST,
    REPOSITORY,
    RESTORING,
    complete_ids,
    locked,
    place_of,
    read_file,
    remove_file,
    write_file,
)
from ironcurtain_proxy.snapshots.tree import SnapshotEntry

_MOST_COMPARED: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a rollback did, or with `dry_run` would do."""

    id: str
    changes: tuple[RestoreStep, ...]
    """Empty: all was as it was held."""
    conflicts: tuple[str, ...]
    """What was, or would be, gone over: only with `force` or `dry_run`."""
    kept: tuple[str, ...]
    """What came into the repository after the call and stays there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSnapshot:
    """One snapshot in a list."""

    manifest: Manifest
    is_finished: bool
    """It is known what the call left."""
    is_interrupted: bool
    """A rollback of it did not end."""


def listed(directory: Path) -> list[ListedSnapshot]:
    """All snapshots that can be read, the newest first."""
    found: list[ListedSnapshot] = []
    for identifier in complete_ids(directory):
        place = directory / identifier
        try:
            manifest = _manifest(place)
        except (RollbackError, OSError):
            continue
        found.append(
            ListedSnapshot(
                manifest=manifest,
                is_finished=(place / AFTER).is_file(),
                is_interrupted=(place / RESTORING).is_file(),
            )
        )
    return sorted(found, key=lambda one: one.manifest.at, reverse=True)


def find(reference: str, directory: Path) -> str:
    """The id that is meant by an id or the beginning of one.

    Raises:
        NoSnapshotError: none is, or more than one.
    """
    ids = complete_ids(directory)
    reference = reference if reference in ids else reference.lower()
    if reference in ids:
        return reference
    meant = [identifier for identifier in ids if reference and identifier.startswith(reference)]
    if len(meant) != 1:
        if meant:
            raise NoSnapshotError(f"{reference!r} is the beginning of several ids")
        raise NoSnapshotError(f"{reference!r} is no call that changed anything that is held")
    return meant[0]


def restore(
    id: str,  # noqa: A002  the word of the audit
    directory: Path,
    *,
    force: bool = False,
    dry_run: bool = False,
    protected: Collection[RealPath] = (),
) -> Restored:
    """Put back what the snapshot holds. Repeated, or after it was cut short, it completes.

    Args:
        id: the whole id.
        directory: where all snapshots are.
        force: go over what was changed since the call.
        dry_run: only say what would be done.
        protected: places that nothing is ever put back into, besides that of our own state.

    Raises:
        NoSnapshotError: there is none.
        ConflictError: somebody worked on it since the call; nothing was changed.
        RollbackError: it could not be done, or not to the end.
    """
    place = place_of(id, directory)
    try:
        with locked(place, wait=False) as alone:
            if not alone:
                raise RollbackError(f"snapshot {id} is in use; try again")
            return _SnapshotRollback(place, protected).run(force=force, dry_run=dry_run)
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        raise RollbackError(
            f"{where}{error.strerror}: the rollback is not complete; run it again"
        ) from None
    except (SnapshotError, GitError) as error:
        raise RollbackError(f"the rollback is not complete: {error}") from None


class _SnapshotRollback:
    """One rollback."""

    def __init__(self, place: Path, protected: Collection[RealPath]) -> None:
        self._place = place
        self._manifest = _manifest(place)
        _check_places(self._manifest, place, [path.parts for path in protected])
        self._temporary = f".ironcurtain-rollback-{self._manifest.id}"

    def run(self, *, force: bool, dry_run: bool) -> Restored:
        if force and not dry_run:
            self._open_up()
        situation, leftovers = self._situation()
        found = plan(situation)
        restored = Restored(
            id=self._manifest.id,
            changes=found.changes,
            conflicts=found.conflicts,
            kept=found.kept,
        )
        if dry_run:
            return restored
        if found.conflicts and not force:
            raise _conflict(found.conflicts, is_finished=situation.after is not None)
        self._carry_out(found, situation.now, leftovers)
        return restored

    def _open_up(self) -> None:
        """Make directories readable that are not: what is in them is to be gone over."""
        tried: set[Parts] = set()
        while unlisted := set(walk_now(self._manifest, max_files=_MOST_COMPARED).unlisted) - tried:
            for path in unlisted:
                open_up(path)
            tried |= unlisted

    def _situation(self) -> tuple[RestoreSituation, list[Parts]]:
        held = self._manifest.repository
        if held is not None:
            check_safe(held.top)
            check_idle(held.top)
        walk = walk_now(self._manifest, max_files=_MOST_COMPARED, ignored_name=self._temporary)
        refs = None if held is None else read_refs(held.top)
        # A root that is a single file has its temporary file beside it.
        beside = [(*root[:-1], self._temporary) for root in self._manifest.roots]
        situation = RestoreSituation(
            manifest=self._manifest,
            after=self._state(AFTER),
            interrupted=self._state(RESTORING),
            now=AfterState(tree=walk.found, refs=refs),
            unlisted=tuple(walk.unlisted),
        )
        return situation, [*walk.ignored, *beside]

    def _state(self, name: str) -> AfterState | None:
        raw = read_file(self._place, name)
        return None if raw is None else read_after(raw)

    def _carry_out(self, found: RestorePlan, now: AfterState, leftovers: list[Parts]) -> None:
        before = self._manifest.before
        wanted = [before[path] for path in found.paths if path in before]
        with self._contents(wanted) as contents:
            write_file(self._place, RESTORING, after_bytes(now))
            application = TreeRestorer(before, now.tree, contents, self._temporary)
            application.apply(found.paths, leftovers)
        held = self._manifest.repository
        if held is not None and now.refs is not None:
            set_refs(held.top, held.refs, now.refs, list(found.refs))
        remove_file(self._place, RESTORING)

    @contextmanager
    def _contents(self, wanted: list[SnapshotEntry]) -> Iterator[Contents]:
        """All contents that are needed, looked through before anything is changed."""
        digests = sorted({entry.content for entry in wanted if entry.kind == "file"})
        blobs = self._place / BLOBS
        missing = [digest for digest in digests if not (blobs / digest).is_file()]
        with ExitStack() as stack:
            extents: Mapping[str, Extent] = {}
            if missing:
                extents = stack.enter_context(fetched(self._place / REPOSITORY, missing))
            contents = Contents(blobs, extents)
            for digest in digests:
                contents.copy(digest, _nowhere)
            yield contents


def _manifest(place: Path) -> Manifest:
    raw = read_file(place, MANIFEST)
    if raw is None:
        raise NoSnapshotError(f"there is no snapshot {place.name!r}")
    manifest = read_manifest(raw)
    held = manifest.repository
    if manifest.id != place.name or (held is not None and not is_believable(held.refs)):
        raise RollbackError("the snapshot's manifest cannot be believed")
    return manifest


def _check_places(manifest: Manifest, place: Path, protected: list[Parts]) -> None:
    own = RealPath.from_text(str(place.parent.parent.resolve())).parts
    held = manifest.repository
    tops = manifest.roots if held is None else (*manifest.roots, held.top)
    for path in (own, *protected):
        if any(is_within(top, path) or is_within(path, top) for top in tops):
            raise RollbackError(f"{text_of(path)} is protected: nothing is put back there")


def _conflict(conflicts: tuple[str, ...], *, is_finished: bool) -> ConflictError:
    since = "since the call" if is_finished else "and what the call left was not recorded"
    count = len(conflicts)
    what = "one thing was" if count == 1 else f"{count} things were"
    return ConflictError(f"{what} changed {since}; nothing was put back", conflicts)


def _nowhere(_part: bytes) -> None:
    return None
