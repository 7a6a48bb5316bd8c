"""What a rollback would change. Pure: no I/O, no clock, no log."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.snapshots.manifest import AfterState, Manifest, Refs
from ironcurtain_proxy.snapshots.places import Parts, is_within, text_of
from ironcurtain_proxy.snapshots.tree import SnapshotEntry, SnapshotTree, is_same

RestoreKind: TypeAlias = Literal["created", "replaced", "removed"]
"""What becomes of a path, or of a branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreStep:
    """One thing that is put back."""

    what: str
    """A path, a branch such as `refs/heads/main`, or `HEAD`."""
    kind: RestoreKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What a rollback comes to."""

    paths: tuple[Parts, ...]
    """Those to be changed; a directory before what is in it."""
    refs: tuple[str, ...]
    """Branches, and `HEAD`."""
    changes: tuple[RestoreStep, ...]
    conflicts: tuple[str, ...]
    """What is neither as it was held nor as the call left it."""
    kept: tuple[str, ...]
    """What came into a repository later and stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSituation:
    """All that is known."""

    manifest: Manifest
    after: AfterState | None
    """What the call left; None: that was not recorded."""
    interrupted: AfterState | None
    """What an earlier rollback found that did not end."""
    now: AfterState
    unlisted: tuple[Parts, ...] = ()
    """Directories that could not be looked into: who knows what is in them."""


def plan(situation: RestoreSituation) -> RestorePlan:
    """Find out what is to be put back, and what speaks against it."""
    before, now = situation.manifest.before, situation.now.tree
    differing = [
        path
        for path in sorted(before.keys() | now.keys())
        if not is_same(before.get(path), now.get(path)) and not _is_refreshed_index(path, situation)
    ]
    kept = frozenset([path for path in differing if _came_later(path, situation)])
    around = frozenset([path[:length] for path in kept for length in range(len(path))])
    paths = [
        path
        for path in differing
        if path not in kept and not (path in around and path not in before)
    ]
    refs = list(_differing_refs(situation))
    return RestorePlan(
        paths=tuple(paths),
        refs=tuple(refs),
        changes=tuple(
            [_path_change(path, before, now) for path in paths]
            + [_ref_change(name, situation) for name in refs]
        ),
        conflicts=tuple(
            [
                text_of(path)
                for path in paths
                if _conflicts(path, situation)
                or (path in around and not _is_directory(before.get(path)))
            ]
            + [text_of(path) for path in situation.unlisted if path not in paths]
            + [name for name in refs if _ref_conflicts(name, situation)]
        ),
        kept=tuple([text_of(path) for path in sorted(kept)]),
    )


def _came_later(path: Parts, situation: RestoreSituation) -> bool:
    """In a repository, what neither was there nor was left by the call is none of ours."""
    held = situation.manifest.repository
    if held is None or path in situation.manifest.before or situation.manifest.holds(path):
        return False
    known = [state for state in (situation.after, situation.interrupted) if state is not None]
    return is_within(path, held.top) and not any(path in state.tree for state in known)


def _is_index(path: Parts, situation: RestoreSituation) -> bool:
    held = situation.manifest.repository
    return held is not None and path == (*held.top, ".git", "index")


def _is_refreshed_index(path: Parts, situation: RestoreSituation) -> bool:
    """Somebody only looked, with `git status`: it says the same as when it was held."""
    held, now = situation.manifest.repository, situation.now.refs
    same = held is not None and now is not None and held.refs.index == now.index
    return same and _is_index(path, situation)


def _index_is_known(situation: RestoreSituation) -> bool:
    left = [state.refs for state in (situation.after, situation.interrupted) if state is not None]
    now = situation.now.refs
    return now is not None and any(refs is not None and refs.index == now.index for refs in left)


def _conflicts(path: Parts, situation: RestoreSituation) -> bool:
    before, now = situation.manifest.before.get(path), situation.now.tree.get(path)
    if path in situation.unlisted:
        return True
    if situation.after is not None and is_same(now, situation.after.tree.get(path)):
        return False
    if _is_index(path, situation) and _index_is_known(situation):
        return False
    if situation.interrupted is None:
        return True
    # A rollback that was cut short leaves what it found, what was held, or nothing; and
    # directories whose permissions it had not set yet.
    both_directories = _is_directory(before) and _is_directory(now)
    return not (
        now is None or is_same(now, situation.interrupted.tree.get(path)) or both_directories
    )


def _is_directory(entry: SnapshotEntry | None) -> bool:
    return entry is not None and entry.kind == "directory"


def _path_change(path: Parts, before: SnapshotTree, now: SnapshotTree) -> RestoreStep:
    kind: RestoreKind = "replaced"
    if path not in before:
        kind = "removed"
    elif path not in now:
        kind = "created"
    return RestoreStep(what=text_of(path), kind=kind)


def _differing_refs(situation: RestoreSituation) -> Iterator[str]:
    held, now = situation.manifest.repository, situation.now.refs
    if held is None or now is None:
        return
    known = set(held.refs.heads)
    for state in (situation.after, situation.interrupted):
        if state is not None and state.refs is not None:
            known |= set(state.refs.heads)
    for name in sorted(known):
        if held.refs.heads.get(name) != now.heads.get(name):
            yield name
    if held.refs.head != now.head:
        yield "HEAD"


def _ref_change(name: str, situation: RestoreSituation) -> RestoreStep:
    held = situation.manifest.repository
    kind: RestoreKind = "replaced"
    if name != "HEAD" and held is not None and name not in held.refs.heads:
        kind = "removed"
    elif name != "HEAD" and name not in (situation.now.refs or _NONE).heads:
        kind = "created"
    return RestoreStep(what=name, kind=kind)


_NONE: Final = Refs(head="", heads={}, index="")


def _ref_conflicts(name: str, situation: RestoreSituation) -> bool:
    found = _target(situation.now.refs, name)
    left = [
        _target(state.refs, name)
        for state in (situation.after, situation.interrupted)
        if state is not None and state.refs is not None
    ]
    return found not in left


def _target(refs: Refs | None, name: str) -> str | None:
    if refs is None:
        return None
    return refs.head if name == "HEAD" else refs.heads.get(name)
