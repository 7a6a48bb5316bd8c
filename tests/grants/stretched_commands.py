"""What a hostile agent would try once all of `APPROVED` was remembered, each for its kind."""

from typing import Final

from tests.tables import table

APPROVED: Final = table("grants/stretched.approved", tuple[str, ...])

STRETCHED: Final = table("grants/stretched.stretched", tuple[str, ...])
