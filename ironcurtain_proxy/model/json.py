"""What JSON text can say."""

from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Any JSON value, as the parser gives it."""

Arguments: TypeAlias = Mapping[str, Json]
"""The arguments of a tool call. Treated as read-only; untrusted until facts were made of them."""
