"""Names of files that steer an agent's client or the proxy, in any directory.

Programs that they name run outside every sandbox, with all rights of the user. In lower case, as
they are compared.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

STEERING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        ".amazonq": ("mcp.json",),
        ".claude": ("settings", "hooks"),
        ".codex": ("config", "hooks"),
        ".cursor": ("mcp.json", "hooks"),
        ".gemini": ("settings", "extensions"),
        ".ironcurtain": ("policy", "compiled-policy", "dynamic-lists"),
        ".junie": ("mcp",),
        ".kiro": ("settings", "hooks"),
        ".opencode": ("opencode.json", "plugin"),
        ".qwen": ("settings",),
        ".roo": ("mcp.json",),
        ".vscode": ("mcp.json",),
        ".zed": ("settings",),
    }
)
"""The beginnings of names of files and directories, by the directory that holds them."""
STEERING_FILES: Final = (".mcp.json", "opencode.json", "opencode.jsonc")
"""Files that name programs for an agent's client to start."""
