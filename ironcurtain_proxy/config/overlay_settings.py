"""Settings of the overlay and of remembered approvals.

Sections `security.interceptor`, `capabilities`, `grants` and `composites`.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.approval.modes import InterceptorConfig
from ironcurtain_proxy.config.capability_settings import CapabilitySettings, read_capabilities
from ironcurtain_proxy.config.interceptor_settings import INTERCEPTOR_KEYS, read_interceptor
from ironcurtain_proxy.config.reading.declared import declared, keys_of, one_of, setting, whole
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.servers.tool_names import ToolNames
from ironcurtain_proxy.model.composite import MAX_STEPS, CompositeSpec, CompositeStep
from ironcurtain_proxy.model.json import Json

_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)


GrantScope: TypeAlias = Literal["session", "project", "user"]
"""The sessions in which a kept grant holds."""

_SCOPES: Final[tuple[GrantScope, ...]] = ("session", "project", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """How long remembered approvals hold."""

    ttl_seconds: int = setting("ttlSeconds", whole(0, 366 * 24 * 3600), 0)
    """0: as long as the session."""
    persist: bool = setting("persist.enabled", Spot.switch, default=False)
    """Keep grants when the session ends."""
    scope: GrantScope = setting("persist.scope", one_of(_SCOPES), "session")
    expires_days: int = setting("persist.expiresDays", whole(1, 3650), 30)
    """Days for which kept grants hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlaySettings:
    """The settings of all that asks for an approval besides the policy."""

    interceptor: InterceptorConfig = field(default_factory=InterceptorConfig)
    capabilities: CapabilitySettings = field(default_factory=CapabilitySettings)
    grants: GrantSettings = field(default_factory=GrantSettings)
    composites: tuple[CompositeSpec, ...] = ()


OVERLAY_KEYS: Final = (
    *(f"capabilities.{key}" for key in ("profile", "isolation", "profiles", "tools")),
    *keys_of(GrantSettings, "grants."),
    *INTERCEPTOR_KEYS,
    "composites",
)


def read_overlay(layers: Layers, servers: tuple[str, ...]) -> OverlaySettings:
    """Read all four sections.

    Args:
        layers: all sources of settings.
        servers: the names of all configured servers.
    """
    names = ToolNames(servers)
    return OverlaySettings(
        interceptor=read_interceptor(layers, names),
        capabilities=read_capabilities(layers, names),
        grants=GrantSettings(**declared(GrantSettings, layers.read, "grants.")),
        composites=read_composites(layers),
    )


def read_composites(layers: Layers) -> tuple[CompositeSpec, ...]:
    """The section, in the order in which it was written."""
    return layers.read("composites", _composites, ())


def _composites(spot: Spot) -> tuple[CompositeSpec, ...]:
    entries = {name: entry for name, entry in spot.members().items() if not name.startswith("_")}
    return tuple([_composite(name, entry) for name, entry in entries.items()])


def _composite(name: str, spot: Spot) -> CompositeSpec:
    if _NAME.fullmatch(name) is None:
        spot.error("a name has 1 to 64 lower-case letters, digits, `_` or `-`")
    members = spot.object(("description", "steps"))
    steps = members.required("steps")
    if isinstance(steps.value, list) and not 1 <= len(steps.value) <= MAX_STEPS:
        steps.error(f"must be 1 to {MAX_STEPS} steps")
    return CompositeSpec(
        name=name,
        description=members.read("description", Spot.text, ""),
        steps=steps.each(_step),
    )


def _step(spot: Spot) -> CompositeStep:
    members = spot.object(("tool", "arguments"))
    return CompositeStep(members.required("tool").name(), members.read("arguments", _arguments, {}))


def _arguments(spot: Spot) -> dict[str, Json]:
    return {name: inner.value for name, inner in spot.members().items()}
