"""Our children that began a session of their own: no orphans, however they look.

When a guardian was killed, the processes below it become children of this process and are killed
(see `downstream.process`). They look as every other child does that began a session of its own: the
guardian that starts just now, the program of a notification, the process that makes views. What is
started through `in_own_session` is told apart, from before it exists until `forget`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["for_each_orphan", "forget", "in_own_session"]

_lock = Lock()
_pids: set[int] = set()
_starting: list[object] = []


@contextmanager
def in_own_session() -> Iterator[Callable[[int], None]]:
    """Yield what is to be called with the pid of the child that the block starts.

    Until the block ends, no child is an orphan: the new one exists before anybody has its pid.
    """
    mark = object()
    with _lock:
        _starting.append(mark)
    try:
        yield _pids.add
    finally:
        with _lock:
            _starting.remove(mark)


def forget(pid: int) -> None:
    """Forget a child that has ended: its number may be another process's from now on."""
    _pids.discard(pid)


def for_each_orphan(children: Callable[[], list[int]], use: Callable[[int], None]) -> int:
    """Call a function with each child that this process did not start itself.

    Args:
        children: lists the pids to choose from.
        use: called with the pid of each orphan.

    Returns:
        How many orphans there were, or 1 while a child is started: then look again.
    """
    with _lock:
        if _starting:
            return 1
        orphans = [pid for pid in children() if pid not in _pids]
        for pid in orphans:
            use(pid)
        return len(orphans)
