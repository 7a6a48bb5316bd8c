"""How many examples a property is tried with."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

_Case = TypeVar("_Case")

THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(thorough: int) -> int:
    """So many in a thorough run. In a daily one a third, which are others on each day."""
    return thorough if THOROUGH else max(15, thorough // 3)


def sample(cases: Iterable[_Case], first: int = 0) -> Iterator[_Case]:
    """All cases of a large table in a thorough run. In a daily one each third, from one of them."""
    return islice(cases, 0 if THOROUGH else first % 3, None, 1 if THOROUGH else 3)
