"""What is asked about besides the policy's own escalations, and what is remembered of answers.

Sections `security.interceptor`, `capabilities`, `grants` and `composites`.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.approval.modes import InterceptorConfig
from ironcurtain_proxy.config.capability_settings import (
    CapabilitySettings,
    read_capabilities,
)
from ironcurtain_proxy.config.composite_settings import read_composites
from ironcurtain_proxy.config.interceptor_settings import read_interceptor
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.servers.tool_names import ToolNames
from ironcurtain_proxy.model.composite import CompositeSpec

GrantScope: TypeAlias = Literal["session", "project", "user"]
"""How far a grant that is kept reaches."""

_SCOPES: Final[tuple[GrantScope, ...]] = ("session", "project", "user")
_YEAR_SECONDS: Final = 366 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """How long an approval that was to be remembered holds."""

    ttl_seconds: int = 0
    """0: as long as its session."""
    persist: bool = False
    """Keep grants when the session ends."""
    scope: GrantScope = "session"
    expires_days: int = 30
    """Of grants that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlaySettings:
    """What asks besides the policy."""

    interceptor: InterceptorConfig = field(default_factory=InterceptorConfig)
    capabilities: CapabilitySettings = field(default_factory=CapabilitySettings)
    grants: GrantSettings = field(default_factory=GrantSettings)
    composites: tuple[CompositeSpec, ...] = ()


def read_overlay(layers: Layers, servers: tuple[str, ...]) -> OverlaySettings:
    """All four sections.

    Args:
        layers: what was said.
        servers: the names of all configured servers.
    """
    names = ToolNames(servers)
    return OverlaySettings(
        interceptor=read_interceptor(layers, names),
        capabilities=read_capabilities(layers, names),
        grants=_grants(layers),
        composites=read_composites(layers),
    )


def _grants(layers: Layers) -> GrantSettings:
    standard = GrantSettings()
    return GrantSettings(
        ttl_seconds=layers.read(
            "grants.ttlSeconds", lambda spot: spot.whole(0, _YEAR_SECONDS), standard.ttl_seconds
        ),
        persist=layers.read("grants.persist.enabled", Spot.switch, standard.persist),
        scope=layers.read("grants.persist.scope", lambda spot: spot.word(_SCOPES), standard.scope),
        expires_days=layers.read(
            "grants.persist.expiresDays", lambda spot: spot.whole(1, 3650), standard.expires_days
        ),
    )
