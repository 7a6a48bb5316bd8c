"""Where a session's task should be done: `auto_confirm.context`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers

PROVIDER_VARIABLE: Final = "IRONCURTAIN_PROVIDER"
"""Set by whoever spawns the proxy: which provider's model the session runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredContext:
    """What the operator says that the session should find. Nothing said: nothing is required."""

    directory: Path | None = None
    """The workspace."""
    branch: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the proxy's environment."""
    provider: str | None = None
    """What `IRONCURTAIN_PROVIDER` should say."""


def read_context(layers: Layers, spot: Spot) -> RequiredContext:
    """Read the section; a path is against the file that holds it."""
    members = spot.object(("directory", "branch", "environment", "provider"))
    return RequiredContext(
        directory=members.read("directory", layers.as_path, None),
        branch=members.read("branch", Spot.name, None),
        environment=members.read("environment", Spot.texts_by_name, {}),
        provider=members.read("provider", Spot.name, None),
    )
