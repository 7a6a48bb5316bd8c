"""What no server may read or change, and installations that are full of it."""

from collections.abc import Mapping
from typing import Final

import orjson
import pytest

from tests.e2e.confined_installation import escalations
from tests.e2e.installation import Installation, rule
from tests.tables import table

CANARY: Final = "the canary sings"
HIDDEN: Final[Mapping[str, str]] = table("e2e/hidden_files.hidden", dict[str, str])
"""What no server may read or change, by its place in the installation."""

LONE: Final = ("config.json", "audit.jsonl.1")
"""Those that are hidden without the directory they lie in, which may be anybody's."""

hidden = pytest.mark.parametrize("place", HIDDEN.values(), ids=[*HIDDEN])


def furnish(installation: Installation) -> None:
    """Put something into every place that is to stay hidden."""
    for place in HIDDEN.values():
        file = installation.root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CANARY)
    config = installation.root / "settings/config.json"
    config.write_text(f'{{"auditFsync": "group", "_comment": "{CANARY}"}}')
    escalations(installation)
    installation.rules.append(rule(CANARY, server=["nobody"]))
    installation.variables |= {
        "IRONCURTAIN_CONFIG": str(config),
        "PROTECTED_PATHS": orjson.dumps([str(installation.root / "vault")]).decode(),
        "SANDBOX_POLICY": "enforce",
    }
