"""The meaning of `approvalRequired`, the switch that stood in the place of `approvalPolicy`.

It is read from the file before defaults are applied; a default would hide it.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.values import Json

COMMAND: Final = "ironcurtain-proxy config migrate"
"""The command with which the operator writes a file anew."""

MigratedMode: TypeAlias = Literal["configured", "dangerous"]


def migrated_mode(interceptor: Mapping[str, Json]) -> MigratedMode | None:
    """The approval policy that a legacy section stands for; None: the section has no legacy switch.

    A section that names a policy keeps it. `approvalRequired: false` never turned off all
    questions, so it becomes the default policy, not "none".
    """
    if "approvalPolicy" in interceptor or interceptor.get("approvalRequired") is not True:
        return None
    return "configured" if interceptor.get("sensitiveTools") else "dangerous"
