"""The types of JSON values."""

from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""Any JSON value, as `json.loads` returns it."""

Arguments: TypeAlias = Mapping[str, Json]
"""The arguments of a tool call. Treated as read-only; untrusted until facts are gathered."""
