"""The names of files that usually hold secrets, as the shipped policy lists them."""

from functools import cache
from pathlib import Path
from typing import Final

import orjson

from ironcurtain_proxy.model.policy import NameCondition

SECRETS: Final = "@secrets"
"""The word for these names in the short form."""
_SHIPPED: Final = Path(__file__).parent / "shipped/compiled-policy.json"
_RULE: Final = "escalate-read-secret-file"


@cache
def secret_names() -> NameCondition:
    """The condition of the shipped rule on reading such files."""
    rules = orjson.loads(_SHIPPED.read_bytes())["rules"]
    (names,) = [rule["if"]["names"] for rule in rules if rule["name"] == _RULE]
    return NameCondition(
        roles=frozenset(names["roles"]),
        matching=frozenset(names["matching"]),
        unless=frozenset(names["unless"]),
    )
