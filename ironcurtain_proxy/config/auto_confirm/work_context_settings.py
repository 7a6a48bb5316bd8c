"""The expected environment of a session: `auto_confirm.context`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers

PROVIDER_VARIABLE: Final = "IRONCURTAIN_PROVIDER"
"""Set by the program that starts the proxy: the provider of the session's model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredContext:
    """The environment that the operator expects. An absent setting requires nothing."""

    directory: Path | None = None
    """The expected workspace."""
    branch: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The expected variables of the proxy's environment."""
    provider: str | None = None
    """The expected value of `IRONCURTAIN_PROVIDER`."""


def read_context(layers: Layers, spot: Spot) -> RequiredContext:
    """Read the section; paths are relative to the file that holds them."""
    members = spot.object(("directory", "branch", "environment", "provider"))
    return RequiredContext(
        directory=members.read("directory", layers.as_path, None),
        branch=members.read("branch", Spot.name, None),
        environment=members.read("environment", Spot.texts_by_name, {}),
        provider=members.read("provider", Spot.name, None),
    )
