"""The circuit breaker: identical calls are refused once they repeat too often.

The breaker ends loops: a call that fails or is refused and comes again as it was, and a call that
does something outside of the machine again and again. Denied calls count, too. A call that was done
and can be taken back is given back (`forgive`): the same edit in two files, the same test run after
each edit are work.
Memory is bounded: calls outside the window are forgotten, and of a flood only the newest are
remembered.
"""

from collections import deque
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.model.decision import Ground

MAX_REMEMBERED: Final = 100_000
"""The largest number of remembered calls, about 10 MiB. To make the breaker forget one, an agent
needs as many different calls within one window."""


class _Call(Struct, eq=False):
    at: float
    key: str
    counts: bool = True


class Breaker(Struct):
    """Counts identical calls in a sliding window."""

    threshold: int = 20
    """The number of identical calls that pass within a window; the next one is refused."""
    window: float = 60.0
    """Seconds."""
    _calls: deque[_Call] = field(default_factory=deque)
    _counts: dict[str, list[_Call]] = field(default_factory=dict)

    def trips(self, key: str, now: float) -> bool:
        """Whether this call exceeds the threshold; if not, it is counted.

        Args:
            key: what makes two calls identical: server, tool and a digest of the arguments.
            now: seconds on a clock that never goes back.
        """
        calls = self._calls
        while calls and calls[0].at <= now - self.window:
            self._forget_oldest()
        alike = self._counts.get(key)
        if alike is not None and len(alike) >= self.threshold:
            return True
        call = _Call(now, key)
        if alike is None:
            self._counts[key] = [call]
        else:
            alike.append(call)
        calls.append(call)
        if len(calls) > MAX_REMEMBERED:
            self._forget_oldest()
        return False

    def forgive(self, key: str) -> None:
        """Count one call of this key no longer: it was done, and can be taken back."""
        if found := self._counts.get(key):
            self._drop(found[-1])

    def _forget_oldest(self) -> None:
        self._drop(self._calls.popleft())

    def _drop(self, call: _Call) -> None:
        if not call.counts:
            return
        call.counts = False
        left = self._counts[call.key]
        left.remove(call)
        if not left:
            del self._counts[call.key]

    def ground(self, server: str, tool: str) -> Ground:
        """The ground of a refusal by the breaker."""
        return Ground(
            "circuit-breaker",
            f"Tool '{server}__{tool}' called {self.threshold} times with identical arguments "
            f"within {self.window:g}s window. Try a different approach.",
        )
