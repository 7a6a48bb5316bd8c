"""Regular expressions that are compiled when they are first used.

The modules of a start hold some 200 expressions, and compiling them took a tenth of its processor
time; a session uses about half of them. `re.compile` is right where the start itself needs one.
"""

import re
from typing import AnyStr, Generic, cast


class _Pattern(Generic[AnyStr]):
    """Stands for a pattern until its first use; each method is then an attribute of its own."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self.pattern: AnyStr = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        found: object = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, found)
        return found


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what serves as the compiled pattern. A mistake in it shows at the first use."""
    return cast("re.Pattern[AnyStr]", _Pattern(pattern, flags))
