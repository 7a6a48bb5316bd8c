"""The approval mode and its lists of tools: section `security.interceptor`."""

import shlex
from typing import Final

from ironcurtain_proxy.approval.modes import (
    APPROVAL_POLICY_ALL,
    APPROVAL_POLICY_CONFIGURED,
    APPROVAL_POLICY_DANGEROUS,
    APPROVAL_POLICY_NONE,
    InterceptorConfig,
)
from ironcurtain_proxy.config.migration.migration import COMMAND, migrated_mode
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME, Layers
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.reading.problems import nearest, shown
from ironcurtain_proxy.config.servers.tool_names import ToolNames

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
            f'deprecated and without effect: approvalPolicy is "{standard}", '
            'and "none" is the word if no tool shall be asked about'
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
    """The policy as written. An unknown word asks about every tool."""
    text = spot.text()
    if text == APPROVAL_POLICY_NONE:
        spot.warning(
            '"none": no tool is asked about, those in sensitiveTools neither; '
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
