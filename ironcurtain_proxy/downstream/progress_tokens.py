"""The tokens by which a server names the call whose progress it tells."""

from collections.abc import Mapping
from typing import TypeAlias

from ironcurtain_proxy.model.json import Json

TokenKey: TypeAlias = tuple[type, str | int | float]
"""A token, so that 1, 1.0 and "1" are three."""


def token_of(params: Mapping[str, Json]) -> TokenKey | None:
    """The token of a call; None: it has none."""
    meta = params.get("_meta")
    return token_key(meta.get("progressToken")) if isinstance(meta, dict) else None


def token_key(token: Json) -> TokenKey | None:
    """The key of a token; None: it cannot be one."""
    if isinstance(token, bool) or not isinstance(token, str | int | float):
        return None
    return type(token), token
