"""Grants that outlive their session: their choice, their validity, and their file.

The session's book decides; the file only stores grants. Every proxy of this user shares it, so it
is changed under a lock. `format` has its content. A grant from the file covers only its own tool in
its approved definition, and no denial.
"""

import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.grants.book import Remembered
from ironcurtain_proxy.grants.families import is_of_remote
from ironcurtain_proxy.grants.format import (
    KeptGrant,
    KeptScope,
    ReadGrants,
    can_be_kept,
    grants_file_bytes,
    read_grants_file,
)
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    FamilyPattern,
    GrantId,
    Pattern,
)
from ironcurtain_proxy.model.values import BootMoment, RealPath
from ironcurtain_proxy.ports import Clock
from ironcurtain_proxy.private_files import KeptFile, Stamp, make_private_directory
from ironcurtain_proxy.steady_clock import TOLERANCE, in_this_boot, on_the_wall
from ironcurtain_proxy.steady_clock import seconds_left as until

# --- file


KEPT_NAME: Final = "grants.json"
"""The name of the file in the state directory."""
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_LOCK_SECONDS: Final = 2.0

GrantsUpdate: TypeAlias = Callable[[tuple[KeptGrant, ...]], Iterable[KeptGrant]]
"""Gets the content of the file, and returns the new content."""


class GrantsFileError(IronCurtainError):
    """The file cannot be used: its grants do not count, and none can be kept."""


class GrantsContent(Struct, frozen=True):
    """The content of the file at one moment."""

    read: ReadGrants
    stamp: Stamp

    @property
    def grants(self) -> tuple[KeptGrant, ...]:
        """The valid grants."""
        return self.read.grants


class GrantsFile:
    """One file of kept grants, opened on use."""

    def __init__(self, path: Path, *, lock_seconds: float = _LOCK_SECONDS) -> None:
        self.path = path
        self._file = KeptFile(path, MAX_KEPT_BYTES, self._unusable)
        self._lock = path.with_name(f"{path.name}.lock")
        self._lock_seconds = lock_seconds

    def stamp(self) -> Stamp:
        """Return the current stamp of the file, read in microseconds.

        Raises:
            GrantsFileError: the disk does not answer.
        """
        return self._file.stamp()

    def read(self) -> GrantsContent:
        """Return the valid content; a missing file is empty.

        Raises:
            GrantsFileError: it is not trustworthy, or cannot be read.
        """
        found = self._file.read()
        if found is None:
            return GrantsContent(ReadGrants(), ())
        self._refuse_another_s_directory()
        raw, stamp = found
        return GrantsContent(read_grants_file(raw), stamp)

    def update(self, change: GrantsUpdate) -> GrantsContent:
        """Change the content under the lock, in a few milliseconds.

        Raises:
            GrantsFileError: it cannot be changed, and is unchanged.
        """
        try:
            make_private_directory(self.path.parent)
            self._refuse_another_s_directory()
            with self._file.locked(self._lock, self._lock_seconds):
                before = self.read()
                if before.read.is_foreign:
                    raise self._unusable("was written by another version")
                after = tuple(change(before.grants))
                if after == before.grants and not before.read.problems:
                    return before
                stamp = self._file.replace(grants_file_bytes(after))
                return GrantsContent(ReadGrants(after), stamp)
        except OSError as error:
            raise self._unusable(f"cannot be written: {error.strerror}") from None

    def remove(self, identifiers: Collection[str]) -> GrantsContent:
        """Revoke grants for all sessions.

        Raises:
            GrantsFileError: they are still in the file.
        """
        return self.update(lambda grants: [kept for kept in grants if kept.id not in identifiers])

    def _refuse_another_s_directory(self) -> None:
        found = self.path.parent.stat()
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise self._unusable("lies in a directory that others can write: chmod go-w")

    def _unusable(self, what: str) -> GrantsFileError:
        return GrantsFileError(f"remembered approvals: {self.path} {what}")


# --- kept


_log = logging.getLogger(__name__)

_USES_EVERY: Final = 60.0
"""Seconds until uses are written, and until the next attempt after a failure of the disk."""
_DEADLINE: Final = 5.0
"""Seconds for the disk; a call waits no longer."""


class Circumstances(Struct, frozen=True, kw_only=True):
    """The circumstances of a session, under which its kept grants hold."""

    scope: KeptScope
    workspace: RealPath | None
    policy_version: str
    basis: Callable[[str, str], str]
    """SHA-256 of what the policy says of a server's tool."""
    servers: Mapping[str, str]
    """SHA-256 of each server's start, by the operator's name."""
    lifetime: timedelta
    """The scope of kept grants."""
    repository: RealPath | None = None
    """The `.git` directory that the workspace shares with other worktrees."""

    def kept(self, remembered: Remembered) -> KeptGrant | None:
        """Return the kept form of a grant, or None if it ends with the session.

        A capability always ends with its session: it covers every tool, so that no change of a
        tool's definition would ever void it. The identical call of a command ends so, too.
        """
        grant = remembered.grant
        if isinstance(grant.pattern, CapabilityPattern | CallPattern):
            return None
        server = self.servers.get(grant.pattern.server, "")
        kept = KeptGrant(
            remembered=replace(remembered, grant=replace(grant, expires=self._end(remembered))),
            scope=self.scope,
            workspace=self.workspace if self.scope == "project" else None,
            policy_version=self.policy_version,
            server_digest=server,
            basis=self.basis(grant.pattern.server, grant.pattern.tool),
        )
        return kept if can_be_kept(kept) else None

    def count(self, kept: KeptGrant, now: datetime) -> bool:
        """Return whether a kept grant holds in this session now."""
        # The narrower of two scopes: what was given for all projects is not used where the
        # operator wants approvals of this project alone.
        here = kept.workspace == self.workspace and self.workspace is not None
        grant = kept.remembered.grant
        pattern = grant.pattern
        if isinstance(pattern, FamilyPattern):
            here = here or self._is_of_this_project(pattern)
        fits = here if kept.scope == "project" else self.scope == "user"
        return (
            fits
            and self.is_under_its_policy(kept)
            and not isinstance(grant.pattern, CapabilityPattern | CallPattern)
            and self._is_of_this_project(grant.pattern)
            and kept.server_digest == self.servers.get(grant.pattern.server)
            and grant.created <= now < self._end(kept.remembered)
        )

    def is_under_its_policy(self, kept: KeptGrant) -> bool:
        """Return whether the policy still says of the grant's tool what it said at the grant."""
        pattern = kept.remembered.grant.pattern
        if isinstance(pattern, CapabilityPattern):
            return False
        if not kept.basis:
            return kept.policy_version == self.policy_version
        return kept.basis == self.basis(pattern.server, pattern.tool)

    def _is_of_this_project(self, pattern: Pattern) -> bool:
        # Families speak of files of one project, whatever the scope. The project of some is the
        # remote repository: whether it is this one is compared with a call.
        if not isinstance(pattern, FamilyPattern):
            return True
        if is_of_remote(pattern):
            return self.workspace is not None
        is_worktree = pattern.repository is not None and pattern.repository == self.repository
        return pattern.workspace == self.workspace or is_worktree

    def restored(self, kept: KeptGrant) -> Remembered:
        """Restore a kept grant, with the shorter of its own and the configured lifetime."""
        remembered = kept.remembered
        return replace(remembered, grant=replace(remembered.grant, expires=self._end(remembered)))

    def _end(self, remembered: Remembered) -> datetime:
        grant = remembered.grant
        end = grant.created + self.lifetime
        return end if grant.expires is None else min(end, grant.expires)


class _Use(Struct, frozen=True, kw_only=True):
    more: int
    last: datetime | None


class _Delta(Struct, frozen=True, kw_only=True):
    """The changes of a session since its last write, applied to the current file."""

    added: tuple[KeptGrant, ...]
    used: Mapping[GrantId, _Use]
    removed: frozenset[GrantId]
    now: datetime

    @property
    def is_pressing(self) -> bool:
        return bool(self.added or self.removed)

    def __bool__(self) -> bool:
        return self.is_pressing or bool(self.used)

    def applied(self, grants: tuple[KeptGrant, ...]) -> Iterable[KeptGrant]:
        """Yield the new content of the file. Grants that others removed stay removed."""
        left = {kept.id: self._used(kept) for kept in grants if kept.id not in self.removed}
        left.update({kept.id: kept for kept in self.added})
        for kept in left.values():
            expires = kept.remembered.grant.expires
            if expires is not None and self.now < expires:
                yield kept

    def _used(self, kept: KeptGrant) -> KeptGrant:
        use = self.used.get(kept.id)
        if use is None or use.last is None:
            return kept
        known = kept.remembered
        last = use.last if known.last_used is None else max(use.last, known.last_used)
        return replace(kept, remembered=replace(known, uses=known.uses + use.more, last_used=last))


def _is_over(ends: BootMoment | None) -> bool:
    left = None if ends is None else until(ends)
    return left is not None and left <= 0


class PersistedGrants:
    """The kept grants of one session. A disk error is reported once; memory continues to work."""

    def __init__(self, file: GrantsFile, circumstances: Circumstances, clock: Clock) -> None:
        self._file = file
        self._here = circumstances
        self._clock = clock
        self._stamp: Stamp = ()
        self._known: dict[GrantId, Remembered] = {}
        """Grants of this session that the file holds, with the uses that it knows of."""
        self._seen: tuple[Remembered, ...] = ()
        """The book at the last look."""
        self._unfit: set[GrantId] = set()
        """Grants that are not kept."""
        self._not_before = float("-inf")
        self._is_failing = False
        self._has_warned = False
        self._lock = anyio.Lock()

    def load(self) -> tuple[Remembered, ...]:
        """Return the grants that hold in this session, oldest first.

        None if the file is unreadable.
        """
        try:
            snapshot = self._file.read()
        except GrantsFileError as error:
            self._warn(str(error))
            return ()
        for problem in snapshot.read.problems:
            _log.warning("remembered approvals: %s: %s", self._file.path, problem)
        now = self._clock.now()
        found = [
            kept
            for kept in snapshot.grants
            if self._here.count(kept, now) and not _is_over(kept.ends)
        ]
        restored = sorted(map(self._restored, found), key=lambda one: one.grant.created)
        self._stamp = snapshot.stamp
        self._known = {one.grant.id: one for one in restored}
        self._seen = tuple(restored)
        return self._seen

    def under(self, policy_version: str, basis: Callable[[str, str], str]) -> None:
        """Keep grants under another policy; all are written again under it."""
        self._here = replace(self._here, policy_version=policy_version, basis=basis)
        self._known, self._seen = {}, ()

    def withdrawn(self) -> frozenset[GrantId]:
        """Return grants of this session that were removed from the file since the last read.

        One look at the file's times, unless it changed.
        """
        if not self._known:
            return frozenset()
        try:
            if self._file.stamp() == self._stamp:
                return frozenset()
            snapshot = self._file.read()
        except GrantsFileError as error:
            self._warn(str(error))
            return frozenset()
        return self._note(snapshot)

    async def keep(
        self, listed: Sequence[Remembered], *, at_once: bool = False
    ) -> frozenset[GrantId]:
        """Write changes, if there are any.

        Args:
            listed: the session's book.
            at_once: uses, too; else they may wait a minute.

        Returns:
            Grants of the session that were revoked meanwhile.
        """
        if self._seen == tuple(listed):
            return frozenset()
        with anyio.move_on_after(_DEADLINE, shield=True):
            async with self._lock:
                return await self._keep(tuple(listed), at_once=at_once)
        self._fail(f"remembered approvals: {self._file.path}: the disk does not answer")
        return frozenset()

    async def _keep(self, listed: tuple[Remembered, ...], *, at_once: bool) -> frozenset[GrantId]:
        delta = self._delta(listed)
        if not delta:
            self._seen = listed
            return frozenset()
        if not at_once and self._may_wait(delta):
            return frozenset()
        try:
            snapshot = await to_thread.run_sync(
                self._file.update, delta.applied, abandon_on_cancel=True
            )
        except GrantsFileError as error:
            self._fail(str(error))
            return frozenset()
        self._not_before = self._clock.monotonic() + _USES_EVERY
        self._is_failing = False
        written = self._known.keys() | {kept.id for kept in delta.added}
        self._known = {one.grant.id: one for one in listed if one.grant.id in written}
        self._seen = listed
        return self._note(snapshot)

    def _delta(self, listed: tuple[Remembered, ...]) -> _Delta:
        current = {one.grant.id: one for one in listed}
        added: list[KeptGrant] = []
        for identifier, one in current.items():
            if identifier in self._known or identifier in self._unfit:
                continue
            kept = self._in_file(self._here.kept(one))
            if kept is None:
                self._unfit.add(identifier)
            else:
                added.append(kept)
        return _Delta(
            added=tuple(added),
            used={
                identifier: _Use(more=one.uses - self._known[identifier].uses, last=one.last_used)
                for identifier, one in current.items()
                if identifier in self._known and one.uses != self._known[identifier].uses
            },
            removed=frozenset(self._known.keys() - current.keys()),
            now=self._clock.now(),
        )

    def _in_file(self, kept: KeptGrant | None) -> KeptGrant | None:
        """Write a grant with its times by the clock, and its end by the count of this boot."""
        if kept is None:
            return None
        grant = kept.remembered.grant
        if grant.expires is None:
            return kept
        told = replace(
            grant,
            created=on_the_wall(grant.created, self._clock),
            expires=on_the_wall(grant.expires, self._clock),
        )
        ends = in_this_boot(grant.expires, self._clock)
        return replace(kept, remembered=replace(kept.remembered, grant=told), ends=ends)

    def _restored(self, kept: KeptGrant) -> Remembered:
        """Return a kept grant for the book.

        It ends when the clock or the count of this boot says so.
        """
        restored = self._here.restored(kept)
        left = None if kept.ends is None else until(kept.ends)
        expires = restored.grant.expires
        if left is None or expires is None:
            return restored
        earlier = self._clock.steady() + timedelta(seconds=left)
        if expires - earlier < TOLERANCE:
            return restored
        return replace(restored, grant=replace(restored.grant, expires=earlier))

    def _note(self, snapshot: GrantsContent) -> frozenset[GrantId]:
        left = {kept.id for kept in snapshot.grants}
        gone = frozenset(self._known.keys() - left)
        self._known = {name: one for name, one in self._known.items() if name in left}
        # A revoked grant is not kept again.
        self._unfit |= gone
        self._stamp = snapshot.stamp
        return gone

    def _may_wait(self, delta: _Delta) -> bool:
        is_early = self._clock.monotonic() < self._not_before
        return is_early and (self._is_failing or not delta.is_pressing)

    def _fail(self, what: str) -> None:
        self._is_failing = True
        self._not_before = self._clock.monotonic() + _USES_EVERY
        self._warn(what)

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            _log.warning("%s; remembered approvals hold for this session only", what)
        self._has_warned = True
