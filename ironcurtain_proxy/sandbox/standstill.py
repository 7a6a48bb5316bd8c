"""The standstill of a sandbox: between calls, no process of it runs.

A process that a call leaves behind could write a control place between two looks, and a program of
the user's that acts at once would be faster than the next look. So all processes in the sandbox's
process namespace are stopped by SIGSTOP from outside, which none of them can refuse.

Theory of operation: processes start others while they are being stopped, and wake each other. A
standstill is proved by two passes. The first goes from the namespace's first process downwards and
stops whatever is not stopped. The second goes back upwards, and must find the same processes with
the same threads and children, each stopped, and each with as many switches of context as before. A
thread that ran in between has more. So there was a moment, between the passes, when everything
stood still, and what stands still starts and wakes nothing. A process moves upwards alone, when its
parent ends, and so cannot pass the second pass by.

    first pass (downwards, stops) ── all stopped? ──▶ second pass (upwards) ── the same? ──▶ stands
           ▲                             │ no                                     │ no
           └─────────────────────────────┴────────────────────────────────────────┘ at most 5 s

What cannot be brought to a standstill is killed, all of it. Nothing in the sandbox wakes it later:
a stopped process goes on when it gets SIGCONT. No process in there runs to send one, and `profile`
refuses whatever would have the kernel send one later, such as a timer.

The methods block. `want` and `go_on` never do; they are called by the task that sends messages.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

_LOGGER: Final = logging.getLogger(__name__)
_SECONDS: Final = 5.0
"""The longest time until everything stands still. A disk may hold a process up."""
_PATIENCE: Final = 2.0
"""Seconds of these in which children are stopped after their parents alone."""
_LOOKS: Final = 5
_KILLING: Final = 5.0
"""Seconds to wait for the end of what was killed."""
_SHORTEST, _LONGEST = 0.0002, 0.01
"""Seconds between two passes."""
_PARKED: Final = frozenset(b"TtZX")
"""States of threads that run nothing: stopped, stopped by a tracer that is stopped itself, dead."""
_IN_KERNEL: Final = ord("D")
_WAITS_FOR_CHILD: Final = frozenset({b"kernel_clone", b"_do_fork", b"wait_for_vfork_done"})
"""Where a thread in the kernel waits for its child to run another program (`vfork`). The child is
stopped, so it waits on; before it runs again it stops."""
_NO_CHILDREN: Final = (
    "this kernel does not list the children of a process: what a call leaves running goes on"
)


class _Thread(Struct, frozen=True):
    """What tells whether a thread ran between two looks at it."""

    id: int
    switches: tuple[int, ...]
    """How often it has left a processor, of its own will and not."""
    is_parked: bool


class _Process(Struct, frozen=True):
    pid: int
    threads: tuple[_Thread, ...]
    children: tuple[int, ...]

    @property
    def is_parked(self) -> bool:
        """Whether none of its threads runs."""
        return all(one.is_parked for one in self.threads)


class Standstill:
    """The processes of one sandbox, which are stopped and go on together."""

    def __init__(self, guardian: int, most: int) -> None:
        """Know the processes below a guardian.

        Args:
            guardian: the process that starts the sandbox.
            most: the processes and threads that the sandbox may have.
        """
        self._guardian = guardian
        self._most = most
        self._lock = threading.Lock()
        self._wanted = False
        self._is_over = False
        self._stopped: dict[int, None] = {}
        """The processes that were stopped here, the nearest first: no others are continued."""
        self._root: tuple[int, str] | None = None
        """The first process of the namespace, with its start time."""
        self.is_standing = False
        """Whether all processes are stopped."""
        self.last = ""
        """Why the sandbox was ended, in words, or empty if it was not."""

    def want(self) -> None:
        """Note that the processes are to stand still; `stop` then stops them."""
        self._wanted = not self._is_over

    def stop(self) -> None:
        """Stop all processes if that is wanted, until there is proof, or end them."""
        with self._lock:
            if not self.is_standing:
                self._stop()
        self._go_on_if_late()

    def keep(self) -> None:
        """Stop again what has gone on by itself, if the processes are to stand still.

        The kernel wakes stopped processes of a group whose last other member ends. Nothing ends by
        itself while it is stopped, but the kernel ends processes where memory runs out.
        """
        if self._wanted and self.is_standing:
            with self._lock:
                self._stop()
            self._go_on_if_late()

    def go_on(self) -> None:
        """Let all processes go on, at once or as soon as `stop` notices."""
        self._wanted = False
        if self._is_over or not (self._stopped or self.is_standing or self._lock.locked()):
            return
        if self._lock.acquire(blocking=False):
            try:
                self._continue([*self._stopped])
            finally:
                self._lock.release()

    def finish(self, readers: Sequence[int]) -> None:
        """Let the server go on for its end, and nothing that was left: the end kills that.

        Args:
            readers: the server, and the processes that it was started by.
        """
        self._wanted, self._is_over = False, True
        with self._lock:
            self._continue([one for one in self._stopped if one in readers])

    def _go_on_if_late(self) -> None:
        """Let the processes go on if `go_on` was called while the lock was held."""
        if self._is_to_run():
            with self._lock:
                # They may be wanted to stop again by now, and stand.
                if self._is_to_run():
                    self._continue([*self._stopped])

    def _is_to_run(self) -> bool:
        return not self._wanted and not self._is_over

    def _continue(self, pids: Sequence[int]) -> None:
        # The farthest first: a shell must not see its children stopped when it looks after them.
        for pid in reversed(pids):
            _send(pid, signal.SIGCONT)
            del self._stopped[pid]
        self.is_standing = False

    def _stop(self) -> None:
        self.is_standing = False
        end, pause = time.monotonic() + _SECONDS, _SHORTEST
        while self._wanted:
            root = self._first()
            if root is None:
                self._end_unseen()
                return
            try:
                is_patient = time.monotonic() < end - _SECONDS + _PATIENCE
                found = list(self._downwards(root, is_patient=is_patient))
                self.is_standing = all(one.is_parked for one in found) and _same(found)
            except (OSError, ValueError, IndexError) as error:
                self._end(root, f"its processes could not be looked at ({error})")
                return
            if sum([len(one.threads) for one in found]) > self._most:
                self._end(root, f"it has more than {self._most:,} processes and threads")
                return
            if self.is_standing:
                return
            if time.monotonic() >= end:
                self._end(root, "what a call left running could not be stopped")
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)

    def _downwards(self, root: int, *, is_patient: bool) -> Iterator[_Process]:
        """Yield the processes from the first one on, each stopped if it runs.

        Args:
            root: the first one.
            is_patient: leave the children of a process for the next pass that has not stopped yet.
                A shell that waits for its child would otherwise see it stopped, and report that.
        """
        below, members, threads = [root], {root}, 0
        for pid in below:
            if (seen := _seen(pid)) is None:
                # It ended, and its children are another's: the next pass finds them.
                continue
            if not seen.is_parked and pid not in self._stopped:
                if _stop_one(pid, None if pid == root else members):
                    self._stopped[pid] = None
                seen = _settled(pid) or seen
            elif not seen.is_parked:
                _send(pid, signal.SIGSTOP)
            yield seen
            threads += len(seen.threads)
            if threads > self._most:
                return
            if is_patient and not seen.is_parked:
                continue
            new = [one for one in seen.children if one not in members]
            members.update(new)
            below.extend(new)

    def _first(self) -> int | None:
        """Return the first process of the sandbox's namespace.

        It is None if there is none (any more).
        """
        if self._root is None:
            self._root = self._search()
        elif _started(self._root[0]) != self._root[1]:
            return None
        return None if self._root is None else self._root[0]

    def _search(self) -> tuple[int, str] | None:
        try:
            outside, below = _depth(self._guardian), [self._guardian]
        except (OSError, ValueError, IndexError):
            return None
        for pid in below:
            with suppress(OSError, ValueError, IndexError):
                if _depth(pid) > outside:
                    return pid, _started(pid)
            if (seen := _seen(pid)) is not None:
                below.extend(seen.children)
        if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
            _LOGGER.warning("%s", _NO_CHILDREN)
            self._is_over = True
        return None

    def _end_unseen(self) -> None:
        """End the server if its namespace was never found: what is not seen is not stopped."""
        if self._root is None and not self._is_over and _started(self._guardian):
            self.last = "its processes could not be found, so it was ended"
            _LOGGER.warning("a sandbox was ended: its processes could not be found")
            _send(self._guardian, signal.SIGTERM)

    def _end(self, root: int, why: str) -> None:
        """Kill the first process of the namespace: the kernel kills all others with it."""
        self.last = f"{why}, so all of its processes were ended"
        _LOGGER.warning("a sandbox was ended: %s", why)
        started = _started(root)
        _send(root, signal.SIGKILL)
        end = time.monotonic() + _KILLING
        # Its parent collects it once all others are gone.
        while _started(root) == started and time.monotonic() < end:
            time.sleep(_LONGEST)
        self._stopped.clear()
        self.is_standing = False


def _same(found: Sequence[_Process]) -> bool:
    """Return whether the processes are the same at another look, from the last to the first."""
    return all(_seen(one.pid) == one for one in reversed(found))


def _stop_one(pid: int, parents: set[int] | None) -> bool:
    """Stop a process, or False if it is gone. A pid may be another's by now, unless it is pinned.

    Args:
        pid: of the process.
        parents: of which one is its parent, or None if any may be.
    """
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if parents is None or int(_field(_status(f"/proc/{pid}"), b"PPid:")) in parents:
            signal.pidfd_send_signal(pinned, signal.SIGSTOP)
            return True
    except (OSError, ValueError, IndexError):
        pass
    finally:
        os.close(pinned)
    return False


def _settled(pid: int) -> _Process | None:
    """Return a process that was sent a signal to stop, once it has stopped if that is soon."""
    seen = _seen(pid)
    for _ in range(_LOOKS):
        if seen is None or seen.is_parked:
            break
        time.sleep(_SHORTEST)
        seen = _seen(pid)
    return seen


def _send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that was stopped here, and so has kept its pid."""
    with suppress(OSError):
        os.kill(pid, number)


def _seen(pid: int) -> _Process | None:
    """Return a process with its threads and children, or None if it is gone."""
    threads: list[_Thread] = []
    children: list[int] = []
    try:
        for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  names are enough
            place = f"/proc/{pid}/task/{name}"
            try:
                children += map(int, _read(f"{place}/children").split())
                threads.append(_thread(int(name), place))
            except (FileNotFoundError, ProcessLookupError):
                continue
    except (FileNotFoundError, ProcessLookupError):
        return None
    return _Process(pid, tuple(threads), tuple(children))


def _thread(number: int, place: str) -> _Thread:
    status = _status(place)
    state = _field(status, b"State:")[0]
    is_parked = state in _PARKED
    if state == _IN_KERNEL:
        with suppress(OSError):
            is_parked = _read(f"{place}/wchan") in _WAITS_FOR_CHILD
    counts = [line for line in status.splitlines()[-2:] if b"ctxt_switches:" in line]
    return _Thread(number, tuple([int(line.split()[1]) for line in counts]), is_parked)


def _depth(pid: int) -> int:
    """Return how many process namespaces a process is in, as far as they are seen from here."""
    return len(_line(_status(f"/proc/{pid}"), b"NSpid:").split())


def _status(place: str) -> bytes:
    return _read(f"{place}/status")


def _field(status: bytes, name: bytes) -> bytes:
    return _line(status, name).split()[0]


def _line(status: bytes, name: bytes) -> bytes:
    # The name of a program stands in the first line, with its line feeds written as `\n`.
    return status.split(b"\n" + name, 1)[1].split(b"\n", 1)[0]


def _started(pid: int) -> str:
    """Return the start time of a process, or empty if it is gone."""
    with suppress(OSError, IndexError):
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19].decode()
    return ""


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        # The kernel gives a page at a time.
        while more := os.read(descriptor, 1 << 16):
            content += more
        return content
    finally:
        os.close(descriptor)


def standstill_of(guardian: int, most: int) -> Standstill | None:
    """Return the standstill of the sandbox below a guardian, or None if this system has none."""
    return Standstill(guardian, most) if sys.platform == "linux" else None
