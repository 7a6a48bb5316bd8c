"""What lies where the owner of a workspace could not look, and so its timeline neither.

A directory may be closed when the timeline first sees it, or be closed by a call. When it can be
looked into again, what is found there seems to be new. It is not: a rollback that took it away
would destroy files that no call has touched. So it is added to every state since the place was
closed, and only what was changed after a call began may be of that call.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from ironcurtain_proxy.snapshots.history import (
    Delta,
    Difference,
    Entry,
    History,
    NotedChange,
    directories_above,
    is_shut,
    kind_of_change,
)

_BASE: Final = -1
"""In the place of the index of a record: what there was before the first."""


def with_found(
    history: History, closed: Collection[str], found: Collection[Difference], until_ns: int | None
) -> list[Difference]:
    """Add what closed places hold to every state since then, and return the other differences.

    It is of the call that closed the place, or of none, as what was there from the beginning.

    Args:
        history: gets the additions.
        closed: paths that could not be looked into.
        found: what differs from the last scan now that they can.
        until_ns: what changed later was not there, and is not added; None: all was.
    """
    since, moved = _closed_since(history, closed), {one.before.inode for one in found if one.before}
    held = {
        one.path
        for one in found
        if until_ns is None
        or (one.after and one.after.ctime_ns < until_ns and one.after.inode not in moved)
    }
    held |= {above for path in held for above in directories_above(path)}
    others: list[Difference] = []
    for one in found:
        places = (one.path, *directories_above(one.path)) if one.path in held else ()
        index = next((since[place] for place in places if place in since), _BASE - 1)
        delta = history.records[index] if index > _BASE else None
        is_first = one.before is None or one.before.kind == "lost"
        # A file may have been changed by another of its names, at any time.
        is_alone = one.path not in since and one.before is not None and one.before.names == 1
        kind = kind_of_change(one.before, one.after)
        if index == _BASE and one.after is not None and is_first:
            history.base[one.path] = one.after
            if one.after.names > 1:
                _follow_another_name(history, one.path, one.after)
        elif isinstance(delta, Delta) and kind and (is_first or is_alone):
            changes = (*delta.changes, NotedChange(one.path, kind, one.after))
            history.records[index] = Delta(delta.calls, changes)
        else:
            others.append(one)
    return others


def _closed_since(history: History, paths: Collection[str]) -> dict[str, int]:
    """Return the index of the record that closed each of these."""
    found = {path: _BASE for path in paths if path in history.base}
    shut = {path for path in found if is_shut(history.base[path])}
    for index, record in enumerate(history.records):
        for noted in record.changes if isinstance(record, Delta) else ():
            if noted.path in paths and noted.kind is not None:
                if noted.path not in shut or not is_shut(noted.after):
                    found[noted.path] = index
                (shut.add if is_shut(noted.after) else shut.discard)(noted.path)
    return found


def _follow_another_name(history: History, path: str, entry: Entry) -> None:
    """Let a file be in each state as it was there under another name, which was seen."""
    seen = history.base.items()
    mate = next((at for at, one in seen if one.inode == entry.inode and at != path), None)
    if mate is None:
        return
    history.base[path] = history.base[mate]
    for index, record in enumerate(history.records):
        changes = [
            NotedChange(path, noted.kind, noted.after)
            for noted in (record.changes if isinstance(record, Delta) else ())
            if noted.path == mate and noted.after is not None and noted.after.inode == entry.inode
        ]
        if changes and isinstance(record, Delta):
            history.records[index] = Delta(record.calls, (*record.changes, *changes))


def known_until(history: History, now: datetime) -> int | None:
    """Return the time before which no call in progress changed anything, and nobody since a call.

    None: there were no calls. It is in nanoseconds.
    """
    windows, under_way = history.windows(now), history.unsettled()
    begun = [start for start, _, call in windows if call in under_way]
    return min(begun, default=max([end for _, end, _ in windows], default=None))
