"""The circuit breaker: identical calls are refused once they repeat too often.

Denied calls count too; otherwise an agent could repeat a forbidden call in a loop without limit.
Memory is bounded: calls outside the window are forgotten, and of a flood only the newest are
remembered.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from ironcurtain_proxy.model.decision import Ground

MAX_REMEMBERED: Final = 100_000
"""The largest number of remembered calls, about 10 MiB. To make the breaker forget one, an agent
needs as many different calls within one window."""


@dataclass(slots=True)
class Breaker:
    """Counts identical calls in a sliding window."""

    threshold: int = 20
    """The number of identical calls that pass within a window; the next one is refused."""
    window: float = 60.0
    """Seconds."""
    _calls: deque[tuple[float, str]] = field(default_factory=deque)
    _counts: Counter[str] = field(default_factory=Counter)

    def trips(self, key: str, now: float) -> bool:
        """Whether this call exceeds the threshold; if not, it is counted.

        Args:
            key: what makes two calls identical: server, tool and a digest of the arguments.
            now: seconds on a clock that never goes back.
        """
        while self._calls and self._calls[0][0] <= now - self.window:
            self._forget_oldest()
        if self._counts[key] >= self.threshold:
            return True
        if len(self._calls) >= MAX_REMEMBERED:
            self._forget_oldest()
        self._calls.append((now, key))
        self._counts[key] += 1
        return False

    def _forget_oldest(self) -> None:
        _, key = self._calls.popleft()
        left = self._counts[key] - 1
        if left:
            self._counts[key] = left
        else:
            del self._counts[key]

    def ground(self, server: str, tool: str) -> Ground:
        """The ground of a refusal by the breaker."""
        return Ground(
            "circuit-breaker",
            f"Tool '{server}__{tool}' called {self.threshold} times with identical arguments "
            f"within {self.window:g}s window. Try a different approach.",
        )
