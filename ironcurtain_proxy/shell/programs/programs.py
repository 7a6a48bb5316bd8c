"""All rules by program. Pure: no I/O, no clock, no log."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.approval.shell.apple import APPLE
from ironcurtain_proxy.approval.shell.basics import BASICS
from ironcurtain_proxy.approval.shell.cloud import CLOUD
from ironcurtain_proxy.approval.shell.containers import CONTAINERS
from ironcurtain_proxy.approval.shell.effects import EFFECTS
from ironcurtain_proxy.approval.shell.git import GIT_TABLE
from ironcurtain_proxy.approval.shell.network import NETWORK_PROGRAMS
from ironcurtain_proxy.approval.shell.packages import PACKAGES
from ironcurtain_proxy.approval.shell.rules import Rule
from ironcurtain_proxy.approval.shell.services import SERVICES
from ironcurtain_proxy.approval.shell.wrappers import WRAPPERS

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        **EFFECTS,
        **BASICS,
        **APPLE,
        **CLOUD,
        **CONTAINERS,
        **SERVICES,
        **PACKAGES,
        **NETWORK_PROGRAMS,
        **GIT_TABLE,
        **WRAPPERS,
    }
)
"""What is not here is not known, and asks."""
