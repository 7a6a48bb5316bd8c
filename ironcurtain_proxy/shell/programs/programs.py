"""All rules by program. Pure: no I/O, no clock, no log."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.shell.programs.apple import APPLE
from ironcurtain_proxy.shell.programs.basics import BASICS
from ironcurtain_proxy.shell.programs.cloud import CLOUD
from ironcurtain_proxy.shell.programs.containers import CONTAINERS
from ironcurtain_proxy.shell.programs.effects import EFFECTS
from ironcurtain_proxy.shell.programs.git import GIT_TABLE
from ironcurtain_proxy.shell.programs.network import NETWORK_PROGRAMS
from ironcurtain_proxy.shell.programs.packages import PACKAGES
from ironcurtain_proxy.shell.programs.services import SERVICES
from ironcurtain_proxy.shell.programs.wrappers import WRAPPERS
from ironcurtain_proxy.shell.rules import Rule

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
