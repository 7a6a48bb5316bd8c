"""The plan of a rollback: its paths, their order, its obstacles, and its errors."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.snapshots.history import (
    Entry,
    History,
    ReplacedEntry,
    Tree,
    is_among,
    kind_of_change,
    mates,
    parent_of,
    without,
)


class RollbackError(IronCurtainError):
    """A state cannot be restored. The message is for a person and names paths."""


class NoPointError(RollbackError):
    """A point that does not exist."""


class ConflictError(RollbackError):
    """The current state is neither the held one nor the call's. Nothing was changed."""

    def __init__(self, message: str, conflicts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.conflicts = conflicts
        """The paths, and why."""


Act: TypeAlias = Literal["created", "replaced", "removed", "mode"]
"""The change of a path. `created`: it is restored."""

_JOURNALS: Final = ("-wal", "-shm", "-journal")
"""The ends of the names of files beside a database of SQLite."""


class RollbackStep(Struct, frozen=True):
    """One restored path."""

    path: str
    act: Act


class Obstacle(Struct, frozen=True, kw_only=True):
    """The reason why a path is not restored without force."""

    path: str
    why: str
    calls: frozenset[int] | None = None
    """Later calls that touched it, perhaps unknown ones, or None if that is not the reason."""


class RollbackPlan(Struct, frozen=True, kw_only=True):
    """The plan of a rollback."""

    target: Tree
    """The workspace as it is to be."""
    steps: tuple[RollbackStep, ...]
    """The steps by path."""
    obstacles: tuple[Obstacle, ...]
    lost: tuple[RollbackStep, ...] = ()
    """Paths that should be restored and were never held."""
    others: frozenset[int] = frozenset()
    """The numbers of other calls that the rollback undoes."""
    stays: tuple[str, ...] = ()
    """Files of the call that stay: objects of a repository that later commits may need."""

    def without(self, left_out: frozenset[str]) -> "RollbackPlan":
        """Return the plan without these paths and all below them."""
        return replace(
            self,
            target=without(self.target, left_out),
            steps=tuple([one for one in self.steps if not is_among(one.path, left_out)]),
            obstacles=tuple([one for one in self.obstacles if not is_among(one.path, left_out)]),
            lost=tuple([one for one in self.lost if not is_among(one.path, left_out)]),
        )


def rewind(history: History, number: int, now: Tree) -> RollbackPlan:
    """Plan the return to a point, including changes of others.

    Args:
        history: the history.
        number: the point.
        now: the present workspace, with what calls replaced where the scanner does not look.
    """
    calls = {point.number for point in history.points() if point.number >= number}
    target = _with_replaced(history.state(number), now, history.replaced(calls))
    target = {path: one for path, one in target.items() if not _is_gone_lock(path, now)}
    others = {call for delta in history.since(number) for call in delta.calls} - {number}
    others |= {point.number for point in history.points() if point.number > number}
    nobodys = {
        path for delta in history.since(number) if not delta.calls for path, _ in delta.counted()
    }
    obstacles = [
        Obstacle(path=path, why=f"cannot be held, so this could not be undone: {now[path].content}")
        for path in sorted(nobodys & now.keys())
        if now[path].kind == "lost" and not is_same(target.get(path), now[path])
    ]
    return _planned(target, now, _differing(target, now), obstacles, frozenset(others))


def take_back(
    history: History,
    number: int,
    now: Tree,
    says_the_same: Callable[[str, Entry, Entry], bool],
    *,
    force: bool,
) -> RollbackPlan:
    """Plan the undo of one call, without later changes.

    Args:
        history: the history.
        number: the call.
        now: the present workspace.
        says_the_same: whether a path was written again and means what it did.
        force: whether later changes are overwritten.
    """
    before = history.state(number)
    replaced = history.replaced({number})
    before = _with_replaced(before, {}, replaced)
    touched = history.touched(number) | {one.path for one in replaced if one.kind is not None}
    touched = frozenset([one for one in touched if not _is_gone_lock(one, now)])
    later = history.others(number) | _replaced_later(history, number, replaced, now)
    left = history.left(number)

    def is_as_left(path: str) -> bool:
        then, present = left.get(path), now.get(path)
        return then is not None and present is not None and says_the_same(path, then, present)

    obstacles = [
        Obstacle(path=path, why="was touched later", calls=later[path])
        for path in sorted(touched & later.keys())
        if kind_of_change(before.get(path), now.get(path)) is not None and not is_as_left(path)
    ]
    stays = _objects(touched, before, now) if later else frozenset()
    target = dict(now)
    for path in touched - stays:
        if path in before:
            target[path] = before[path]
        else:
            target.pop(path, None)
    obstacles += _made_whole(target, before, touched, force=force)
    chosen = {path for path in _differing(target, now) if path not in stays}
    return _planned(target, now, chosen, obstacles, frozenset(), tuple(sorted(stays)))


def again(plan: RollbackPlan, paths: Collection[str], now: Tree) -> RollbackPlan:
    """Return the plan with the steps for these paths alone, from another present state."""
    steps = [
        RollbackStep(step.path, _act(plan.target.get(step.path), now.get(step.path)))
        for step in plan.steps
        if step.path in paths
    ]
    return replace(plan, steps=tuple(steps))


def _with_replaced(tree: Tree, now: Tree, replaced: Iterable[ReplacedEntry]) -> dict[str, Entry]:
    """Return a tree with the old states of what calls replaced, and the present ones around it."""
    whole = dict(tree)
    for one in replaced:
        state = one.before if one.kind is not None else now.get(one.path, one.before)
        if state is not None:
            whole[one.path] = state
    return whole


def _replaced_later(
    history: History, number: int, replaced: Iterable[ReplacedEntry], now: Tree
) -> dict[str, frozenset[int]]:
    """Return the paths that are no longer as a call left them, with the later calls."""
    calls = {point.number for point in history.points() if point.number > number}
    by_call = {call: {one.path for one in history.replaced({call})} for call in calls}
    return {
        one.path: frozenset([call for call in calls if one.path in by_call[call]])
        for one in replaced
        if one.kind is not None and kind_of_change(one.after, now.get(one.path)) is not None
    }


def _is_gone_lock(path: str, now: Tree) -> bool:
    """Return whether it is a lock of git that is gone: brought back, it would stop the user's git.

    It is there for a moment, in which a point may have been made.
    """
    return path.endswith(".lock") and "/.git/" in f"/{path}" and path not in now


def _objects(touched: Iterable[str], before: Tree, now: Tree) -> frozenset[str]:
    """Return objects that a call made in a repository.

    Nothing changes them; a later commit may need them.

    Their directories stay with them.
    """
    made = [one for one in touched if one not in before and one in now]
    return frozenset([one for one in made if "/.git/objects/" in f"/{one}"])


def _made_whole(
    target: dict[str, Entry], before: Tree, touched: frozenset[str], *, force: bool
) -> Iterator[Obstacle]:
    """Add the directories of each path."""
    for path in sorted(target):
        above = parent_of(path)
        while above and above not in target:
            # The call removed nothing here: a later one took the directory away, or the call made
            # the directory and something later is in it.
            if path in touched and above in before:
                target[above] = before[above]
            else:
                break
            above = parent_of(above)
    for path in sorted(target):
        if not _has_place(path, target):
            if force:
                target.pop(path)
            else:
                yield Obstacle(path=path, why="came later, and its directory would be removed")


def _has_place(path: str, target: Mapping[str, Entry]) -> bool:
    above = parent_of(path)
    return not above or (above in target and target[above].kind == "directory")


def _differing(target: Tree, now: Tree) -> set[str]:
    """Return the paths that differ from the target, including hard links."""
    found = set()
    wanted_mates, present_mates = mates(target.items()), mates(now.items())
    for path in target.keys() | now.keys():
        before, after = target.get(path), now.get(path)
        if not is_same(before, after) or wanted_mates.get(path) != present_mates.get(path):
            found.add(path)
    return found


def is_same(before: Entry | None, after: Entry | None) -> bool:
    """Return whether two states of a path are alike, apart from inodes, times and other names."""
    return before is after or kind_of_change(_alone(before), _alone(after)) is None


def _alone(entry: Entry | None) -> Entry | None:
    return None if entry is None else entry._replace(inode=0, names=1)


def _planned(
    target: Tree,
    now: Tree,
    differing: Collection[str],
    obstacles: Iterable[Obstacle],
    others: frozenset[int],
    stays: tuple[str, ...] = (),
) -> RollbackPlan:
    steps, lost = list[RollbackStep](), list[RollbackStep]()
    # A program that has a database open writes its journal into it later, unless it is another file
    # by then: what was restored beside it would be overwritten.
    bases = {path.rpartition("-")[0] for path in differing if path.endswith(_JOURNALS)}
    beside = {base + end for base in bases for end in ("", *_JOURNALS)}
    for path in sorted({*differing} | beside & target.keys() & now.keys()):
        wanted = target.get(path)
        was_held = wanted is None or wanted.kind not in ("special", "lost")
        (steps if was_held else lost).append(RollbackStep(path, _act(wanted, now.get(path))))
    return RollbackPlan(
        target=target,
        steps=tuple(steps),
        obstacles=tuple(obstacles),
        lost=tuple(lost),
        others=others,
        stays=stays,
    )


def _act(wanted: Entry | None, present: Entry | None) -> Act:
    if wanted is None:
        return "removed"
    if present is None:
        return "created"
    return "mode" if kind_of_change(_alone(present), _alone(wanted)) == "mode" else "replaced"
