"""Settings of the overlay and of remembered approvals.

Sections `security.interceptor`, `capabilities`, `grants` and `composites`.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field, structs

from ironcurtain_proxy.approval.overlay import (
    APPROVAL_POLICY_ALL,
    APPROVAL_POLICY_CONFIGURED,
    APPROVAL_POLICY_DANGEROUS,
    APPROVAL_POLICY_NONE,
    InterceptorConfig,
)
from ironcurtain_proxy.config.capability_settings import (
    CapabilitySettings,
    ToolNames,
    read_capabilities,
)
from ironcurtain_proxy.config.migration.legacy_switch import COMMAND, migrated_mode
from ironcurtain_proxy.config.reading.declared import declared, setting
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME, Layers
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.reading.problems import nearest, shown
from ironcurtain_proxy.model.capability import ToolDeclaration
from ironcurtain_proxy.model.composite import MAX_STEPS, CompositeSpec, CompositeStep
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.server import ServerSpec

_SECTION: Final = "security.interceptor"
INTERCEPTOR_KEYS: Final = tuple(
    f"{_SECTION}.{key}"
    for key in (
        *("enabled", "approvalPolicy", "exemptTools", "sensitiveTools"),
        *("approvalContained", "approvalAllowed", "approvalRequired"),
    )
)
_POLICIES: Final = (
    APPROVAL_POLICY_DANGEROUS,
    APPROVAL_POLICY_ALL,
    APPROVAL_POLICY_CONFIGURED,
    APPROVAL_POLICY_NONE,
)


def read_interceptor(layers: Layers, names: ToolNames) -> InterceptorConfig:
    """Read the section, with defaults for absent keys and with the keys of older versions."""
    standard = InterceptorConfig()
    return InterceptorConfig(
        enabled=layers.read(f"{_SECTION}.enabled", _enabled, standard.enabled),
        approval_policy=_policy(layers, standard.approval_policy),
        exempt_tools=layers.read(f"{_SECTION}.exemptTools", names.listed, ()),
        sensitive_tools=layers.read(f"{_SECTION}.sensitiveTools", names.listed, ()),
        approval_contained=layers.read(
            f"{_SECTION}.approvalContained", Spot.switch, standard.approval_contained
        ),
        approval_allowed=layers.read(
            f"{_SECTION}.approvalAllowed", Spot.switch, standard.approval_allowed
        ),
    )


def _policy(layers: Layers, standard: str) -> str:
    # Before any default: with a default in place the legacy switch would never be read.
    said = layers.read(f"{_SECTION}.approvalPolicy", _said_policy, None)
    legacy = layers.spot(f"{_SECTION}.approvalRequired")
    if legacy is None:
        return standard if said is None else said
    required = legacy.switch()
    if said is not None:
        return said
    if not required:
        legacy.warning(
            f'deprecated and without effect: approvalPolicy is "{standard}"; '
            'write "none" to ask about no tool'
        )
        return standard
    section = layers.spot(_SECTION)
    values = section.value if section is not None else None
    mode = (migrated_mode(values) if isinstance(values, dict) else None) or standard
    advice = f"to write that down, run {_command(layers)}"
    legacy.warning(f'deprecated: read as "approvalPolicy": "{mode}"; {advice}')
    return mode


def _command(layers: Layers) -> str:
    file = layers.config_file
    if file is None or file == layers.home / STATE_DIRECTORY / CONFIG_NAME:
        return COMMAND
    return f"{COMMAND} --config {shlex.quote(str(file))}"


def _said_policy(spot: Spot) -> str:
    """Return the policy as written. An unknown word asks about every tool."""
    text = spot.text()
    if text == APPROVAL_POLICY_NONE:
        spot.warning(
            '"none": no tool is asked about, not even those of sensitiveTools; '
            "only the policy and the profile still ask"
        )
    elif not text:
        spot.warning(f'is empty: "{APPROVAL_POLICY_DANGEROUS}" holds')
    elif text not in _POLICIES:
        spot.warning(
            f"{shown(text)} is not one of {', '.join(_POLICIES)}: every tool is asked about",
            nearest(text, _POLICIES),
        )
    return text


def _enabled(spot: Spot) -> bool:
    enabled = spot.switch()
    if spot.value is False:
        spot.warning("no tool is asked about; only the policy and the profile still ask")
    return enabled


_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)


GrantScope: TypeAlias = Literal["session", "project", "user"]
"""The sessions in which a kept grant holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSettings:
    """The lifetimes of remembered approvals."""

    ttl_seconds: Annotated[int, Meta(ge=0, le=366 * 24 * 3600)] = setting("ttlSeconds", 0)
    """Seconds for which a remembered approval holds; 0: as long as the session."""
    persist: bool = setting("persist.enabled", default=False)
    """Keep grants when the session ends."""
    scope: GrantScope = setting("persist.scope", "session")
    expires_days: Annotated[int, Meta(ge=1, le=3650)] = setting("persist.expiresDays", 30)
    """Days for which kept grants hold."""


class OverlaySettings(Struct, frozen=True, kw_only=True):
    """The settings of all that asks for an approval besides the policy."""

    interceptor: InterceptorConfig = field(default_factory=InterceptorConfig)
    capabilities: CapabilitySettings = field(default_factory=CapabilitySettings)
    grants: GrantSettings = field(default_factory=GrantSettings)
    composites: tuple[CompositeSpec, ...] = ()


OVERLAY_KEYS: Final = (
    *(f"capabilities.{key}" for key in ("profile", "isolation", "profiles", "tools")),
    *INTERCEPTOR_KEYS,
    "composites",
)


def with_own_shell(said: OverlaySettings, servers: Iterable[ServerSpec]) -> OverlaySettings:
    """Return the settings in which the command of our own shell is known for one.

    What the operator declares of its tool takes the place of this.
    """
    own = {
        f"{spec.name}/run_command": ToolDeclaration(
            tool_id=f"{spec.name}/run_command", command_argument="command"
        )
        for spec in servers
        if spec.builtin == "shell"
    }
    if not own:
        return said
    declared_now = {**own, **said.capabilities.declarations}
    capabilities = structs.replace(said.capabilities, declarations=declared_now)
    return structs.replace(said, capabilities=capabilities)


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
    """Return the section, in the order in which it was written."""
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
