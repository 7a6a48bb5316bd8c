"""How many examples a property is tried with."""

import os
from typing import Final

THOROUGH: Final = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def examples(thorough: int) -> int:
    """So many in a thorough run. In a daily one a third, which are others on each day."""
    return thorough if THOROUGH else max(15, thorough // 3)
