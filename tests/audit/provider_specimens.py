"""Keys of providers, made to the shape that each publishes. None was ever issued."""

import random
import re
from collections.abc import Mapping
from typing import Final

from tests.tables import table

_ALPHABETS: Final = table("audit/provider_specimens.alphabets", dict[str, str])
_FIELD: Final = re.compile(r"<([A-Za-z])(\d+)>")

SHAPES: Final[Mapping[str, str]] = table("audit/provider_specimens.shapes", dict[str, str])
"""By provider: `<A36>` is 36 letters and digits."""


def generate(shape: str, source: random.Random) -> str:
    """One key of this shape."""
    return _FIELD.sub(
        lambda field: "".join(source.choices(_ALPHABETS[field[1]], k=int(field[2]))), shape
    )
