"""The workspace in what a server says: the same server says another path in each workspace.

Nothing else is made equal: what names the word itself is compared as it is.
"""

import json  # noqa: TID251  integers beyond 64 bits and lone surrogates, which orjson refuses
import re
from typing import Final

from ironcurtain_proxy.model.json import Json

WORD: Final = "@workspace"
_FEWEST: Final = 2
"""Components of a path that stands for something: `/` and `/home` are everywhere."""


def without_workspace(value: Json, workspace: str | None) -> Json:
    """A value with `@workspace` in the place of the path.

    Args:
        value: what a server said.
        workspace: its path; None: there is none.
    """
    if workspace is None or len(workspace.strip("/").split("/")) < _FEWEST:
        return value
    try:
        text = json.dumps(value)
        spelled = json.dumps(workspace)[1:-1]
        if spelled not in text or WORD in text:
            return value
        found: Json = json.loads(
            re.sub(rf"(?<![\w.-]){re.escape(spelled)}(?![\w-]|\.\w)", WORD, text)
        )
    except (RecursionError, ValueError):
        return value
    return found
