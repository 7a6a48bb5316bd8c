"""Takes a snapshot of what a call may write or delete, and notes what the call left.

A snapshot holds all of it, or there is none: then the call must be asked about.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.contents import CopyBudget, Digesting, Keeping, Streaming
from ironcurtain_proxy.snapshots.faults import SafeguardError, SnapshotError
from ironcurtain_proxy.snapshots.git_commands import GitError
from ironcurtain_proxy.snapshots.manifest import (
    AfterState,
    HeldRepository,
    Manifest,
    Refs,
    after_bytes,
    manifest_bytes,
)
from ironcurtain_proxy.snapshots.own_repository import finish_stream, import_commit
from ironcurtain_proxy.snapshots.places import Parts, first_missing, is_within, text_of
from ironcurtain_proxy.snapshots.repository import (
    UnsafeRepositoryError,
    anchor,
    check_idle,
    check_safe,
    has_own_folder,
    ignored_directories,
    read_refs,
    remove_anchor,
    state_files,
    top_of,
)
from ironcurtain_proxy.snapshots.storage import (
    AFTER,
    ANCHORED,
    BLOBS,
    MANIFEST,
    REPOSITORY,
    empty_place,
    new_place,
    remove_file,
    remove_place,
    write_file,
)
from ironcurtain_proxy.snapshots.tree import SnapshotEntry, is_same
from ironcurtain_proxy.snapshots.walking import Walk

READ_LIMIT: Final = 1 << 30
"""Bytes that are read to compare; what is beyond is known by its inode and times."""
COMPARED_FILES: Final = 40_000
"""A call may leave more than a snapshot may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """How much a snapshot may hold."""

    bytes: int = 64 << 20
    files: int = 10_000
    """Files, directories and links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was taken, and where it lies."""

    place: Path
    """`snapshots/<id>`."""
    manifest: Manifest

    @property
    def id(self) -> str:
        """Its name, and that of the rollback."""
        return self.manifest.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What the call changed of what was held."""

    changed: tuple[str, ...]
    """Paths, `HEAD` and branches, in order."""
    problem: str = ""
    """Why what it left could not be recorded: a rollback needs `--force` then."""


def take(
    id: str,  # noqa: A002  the word of the audit
    paths: Sequence[RealPath],
    repository: RealPath | None,
    directory: Path,
    now: datetime,
    limits: SnapshotLimits = SnapshotLimits(),
) -> Snapshot:
    """Hold what a call may write or delete, as it is now.

    Blocks: not for an event loop. Files are copied; a repository is held by git, or copied if git
    had better not be run in it.

    Args:
        id: the request's or escalation's: letters, digits, `-` and `_`.
        paths: files or directories, which need not exist.
        repository: a directory of the repository that the call works on.
        directory: where all snapshots are; made private.
        now: aware, UTC.
        limits: how much is held.

    Raises:
        SnapshotError: not all of it can be held, and nothing is.
    """
    parts = None if repository is None else repository.parts
    try:
        with new_place(id, directory) as place:
            taking = _Taking(id, place, now, limits)
            try:
                return taking.take([path.parts for path in paths], parts)
            except BaseException:
                taking.undo()
                raise
    except OSError as error:
        raise SnapshotError(f"no snapshot can be kept: {error.strerror}") from None
    except GitError as error:
        raise SnapshotError(f"the repository cannot be held: {error}") from None


def finish(snapshot: Snapshot, limits: SnapshotLimits = SnapshotLimits()) -> Finished:
    """Note what the call left, so that a rollback can tell it from later work.

    Never raises for what it finds: the call is over.
    """
    manifest = snapshot.manifest
    try:
        after = state_now(manifest, max_files=max(COMPARED_FILES, limits.files))
        write_file(snapshot.place, AFTER, after_bytes(after))
    except (SafeguardError, OSError) as error:
        return Finished(changed=(), problem=f"what the call left is not recorded: {error}")
    return Finished(changed=_differences(manifest, after))


def forget(snapshot: Snapshot) -> None:
    """Remove a snapshot that is not needed: its call was not made."""
    held = snapshot.manifest.repository
    if held is not None:
        remove_anchor(held.top, snapshot.id)
    remove_place(snapshot.place)


def state_now(
    manifest: Manifest, *, max_files: int = COMPARED_FILES, ignored_name: str | None = None
) -> AfterState:
    """How everything is now that the snapshot holds.

    Raises:
        SafeguardError: it cannot be found out.
    """
    walk = walk_now(manifest, max_files=max_files, ignored_name=ignored_name)
    held = manifest.repository
    if held is None:
        return AfterState(tree=walk.found)
    check_safe(held.top)
    return AfterState(tree=walk.found, refs=read_refs(held.top))


def walk_now(
    manifest: Manifest, *, max_files: int = COMPARED_FILES, ignored_name: str | None = None
) -> Walk:
    """Walk over everything that the snapshot holds, as it is now.

    Raises:
        SnapshotError: it is too much.
    """
    held = manifest.repository
    skip = () if held is None else (*held.left_out, (*held.top, ".git"))
    contents = Digesting(READ_LIMIT)
    walk = Walk(contents, max_files, strict=False, ignored_name=ignored_name)
    for root in manifest.roots:
        walk.over(root)
    if held is None:
        return walk
    around = Walk(
        contents,
        max_files,
        strict=False,
        skip=(*skip, *manifest.roots),
        ignored_name=ignored_name,
    )
    around.over(held.top)
    walk.found |= around.found
    walk.ignored += around.ignored
    walk.unlisted += around.unlisted
    return walk


def _differences(manifest: Manifest, after: AfterState) -> tuple[str, ...]:
    before, held = manifest.before, manifest.repository
    names = [
        text_of(path)
        for path in sorted(before.keys() | after.tree.keys())
        if not is_same(before.get(path), after.tree.get(path))
    ]
    if held is None or after.refs is None:
        return tuple(names)
    old, new = held.refs, after.refs
    branches = sorted(old.heads.keys() | new.heads.keys())
    names += [name for name in branches if old.heads.get(name) != new.heads.get(name)]
    return tuple(names + (["HEAD"] if old.head != new.head else []))


class _Taking:
    """One snapshot on its way."""

    def __init__(self, identifier: str, place: Path, now: datetime, limits: SnapshotLimits) -> None:
        self._id = identifier
        self._place = place
        self._now = now
        self._limits = limits
        self._budget = CopyBudget(limits.bytes)
        self._anchored: Parts | None = None

    def take(self, paths: list[Parts], repository: Parts | None) -> Snapshot:
        top = None if repository is None else top_of(repository)
        if repository is not None and (
            top is None or any(is_within(top, path) and path != top for path in paths)
        ):
            # No work tree, or all of it is copied anyway.
            paths, top = [*paths, repository], None
        try:
            manifest = self._hold(paths, top)
        except (UnsafeRepositoryError, GitError):
            if top is None or not has_own_folder(top):
                raise
            self._start_again()
            manifest = self._hold([*paths, top], None)
        write_file(self._place, MANIFEST, manifest_bytes(manifest))
        return Snapshot(place=self._place, manifest=manifest)

    def undo(self) -> None:
        self._take_anchor_away()
        remove_place(self._place)

    def _take_anchor_away(self) -> None:
        if self._anchored is not None:
            remove_anchor(self._anchored, self._id)
        self._anchored = None

    def _start_again(self) -> None:
        self._take_anchor_away()
        empty_place(self._place)
        self._budget = CopyBudget(self._limits.bytes)

    def _hold(self, paths: list[Parts], top: Parts | None) -> Manifest:
        if top is not None:
            check_safe(top)
            check_idle(top)
            paths = [*[path for path in paths if path != top], *state_files(top)]
        roots = _outermost([_reached(path) for path in paths])
        if any(self._overlaps_own(path) for path in (*roots, *([top] if top else []))):
            raise SnapshotError("the call may change what is the proxy's own")
        contents = Keeping(self._place / BLOBS, self._budget)
        walk = Walk(contents, self._limits.files, strict=True)
        for root in roots:
            walk.over(root)
        contents.sync()
        manifest = Manifest(id=self._id, at=self._now, roots=roots, before=walk.found)
        return manifest if top is None else self._with_repository(manifest, top)

    def _overlaps_own(self, path: Parts) -> bool:
        own = RealPath.from_text(str(self._place.parent.parent.resolve())).parts
        return not path or is_within(path, own) or is_within(own, path)

    def _with_repository(self, manifest: Manifest, top: Parts) -> Manifest:
        refs = read_refs(top)
        commit, tree, left_out = self._work_tree(top, len(manifest.before))
        name = self._anchor(top, refs)
        if read_refs(top) != refs:
            raise SnapshotError("git is at work in the repository")
        return replace(
            manifest,
            before={**tree, **manifest.before},
            repository=HeldRepository(
                top=top, refs=refs, left_out=left_out, commit=commit, anchor=name
            ),
        )

    def _work_tree(
        self, top: Parts, counted: int
    ) -> tuple[str, Mapping[Parts, SnapshotEntry], tuple[Parts, ...]]:
        ignored = ignored_directories(top)
        ref = f"refs/ironcurtain/{self._id}"
        with TemporaryFile(dir=self._place) as stream:
            contents = Streaming(stream, self._budget)
            walk = Walk(
                contents,
                self._limits.files - counted,
                strict=True,
                skip=(*ignored, (*top, ".git")),
            )
            walk.over(top, repository=True)
            finish_stream(stream, contents, walk.found, top, ref, self._now)
            commit = import_commit(self._place / REPOSITORY, stream, ref)
        return commit, walk.found, (*ignored, *walk.nested)

    def _anchor(self, top: Parts, refs: Refs) -> str:
        # Noted before it is made, so that it is taken away whatever happens then.
        write_file(self._place, ANCHORED, os.fsencode(text_of(top)))
        self._anchored = top
        commit = anchor(top, refs, self._id, self._place / "index", self._now)
        remove_file(self._place, "index")
        return commit


def _reached(path: Parts) -> Parts:
    if not path:
        raise SnapshotError("the call may change everything")
    try:
        return first_missing(path)
    except OSError:
        raise SnapshotError("a path of the call leads through a link or a file") from None


def _outermost(paths: list[Parts]) -> tuple[Parts, ...]:
    distinct = sorted(set(paths))
    return tuple(
        [
            path
            for path in distinct
            if not any(other != path and is_within(path, other) for other in distinct)
        ]
    )
