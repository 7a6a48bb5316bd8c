"""Names of files that steer a client, Mercurial or the proxy, in any directory.

Programs that they name run outside every sandbox, with all rights of the user; or they let a client
run programs without a question. In lower case, as they are compared.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

STEERING: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        ".amazonq": ("mcp.json", "default.json", "agents", "cli-agents"),
        ".augment": ("settings",),
        ".claude": ("settings", "hooks"),
        ".clinerules": ("hooks",),
        ".codex": ("config", "hooks", "rules", "agents"),
        ".continue": ("mcpservers", "config"),
        ".cursor": ("mcp.json", "hooks", "cli.json", "sandbox.json", "worktrees.json"),
        ".factory": ("mcp.json", "settings", "hooks"),
        ".gemini": ("settings", "extensions", "policies", "hooks", ".env"),
        ".github": ("hooks",),
        ".hg": ("hgrc", "sharedpath"),
        ".idea": ("startup", "watchertasks"),
        ".ironcurtain": ("policy", "compiled-policy", "dynamic-lists"),
        ".junie": ("mcp",),
        ".kiro": ("settings", "hooks", "agents"),
        ".opencode": ("opencode.json", "plugin", "tool", "package.json"),
        ".qwen": ("settings", "extensions", "hooks", ".env"),
        ".roo": ("mcp.json",),
        ".trae": ("mcp.json",),
        ".vscode": ("mcp.json", "settings", "tasks"),
        ".windsurf": ("hooks", "mcp"),
        ".zed": ("settings",),
    }
)
"""The beginnings of names of files and directories, by the directory that holds them."""
STEERING_FILES: Final = (
    ".aider.conf.yml",
    ".crush.json",
    ".mcp.json",
    "crush.json",
    "opencode.json",
    "opencode.jsonc",
)
"""Files that name programs for an agent's client to start."""
