"""Tables of the operations that the engine knows, and of the tools that do them.

A tool's name comes from its server, never from the agent. The name of an unknown server's tool can
only raise the risk: `delete` in a name counts, `test` does not.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.annotation import ArgumentRole

OperationKind: TypeAlias = Literal[
    "deploy", "git-force-push", "shell-dd-mount", "delete", "shell-rm", "unknown", "git-push",
    "database", "network", "install", "git-commit", "edit", "shell-safe", "test", "git-pull",
    "git-fetch", "read", "list",
]  # fmt: skip
"""The operations of calls, the most dangerous first. `unknown`: not known to the engine."""

COMMAND_OPERATIONS: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        "safe": "shell-safe",
        "rm": "shell-rm",
        "dd": "shell-dd-mount",
        "mount": "shell-dd-mount",
        "install": "install",
        "test": "test",
        "deploy": "deploy",
        "git-pull": "git-pull",
        "git-fetch": "git-fetch",
        "git-commit": "git-commit",
        "git-push": "git-push",
        "git-force-push": "git-force-push",
        "database": "database",
    }
)
"""Any other word is `unknown`."""

_FILESYSTEM: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("read_file", "read_text_file", "read_media_file", "read_multiple_files"), "read"
        ),
        **dict.fromkeys(("write_file", "edit_file", "create_directory"), "edit"),
        **dict.fromkeys(
            ("list_directory", "list_directory_with_sizes", "directory_tree", "search_files"),
            "list",
        ),
        **dict.fromkeys(("get_file_info", "list_allowed_directories"), "list"),
        # It removes the source.
        "move_file": "delete",
    }
)
_GIT: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("git_status", "git_diff", "git_diff_unstaged", "git_diff_staged", "git_log"), "read"
        ),
        **dict.fromkeys(("git_show", "git_branch", "git_blame"), "read"),
        "git_add": "edit",
        "git_commit": "git-commit",
        "git_pull": "git-pull",
        "git_fetch": "git-fetch",
        "git_push": "git-push",
    }
)
_MEMORY: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        **dict.fromkeys(("read_graph", "search_nodes", "open_nodes"), "read"),
        **dict.fromkeys(("create_entities", "create_relations", "add_observations"), "edit"),
        **dict.fromkeys(("delete_entities", "delete_observations", "delete_relations"), "delete"),
    }
)
_GITHUB: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        **dict.fromkeys(("push_files", "create_or_update_file", "merge_pull_request"), "git-push"),
        "delete_file": "delete",
        **dict.fromkeys(("get_file_contents", "get_issue", "get_pull_request"), "network"),
        **dict.fromkeys(("list_issues", "list_commits", "list_branches"), "network"),
        **dict.fromkeys(("list_pull_requests", "search_repositories", "search_code"), "network"),
        **dict.fromkeys(("search_issues", "create_issue", "update_issue"), "network"),
        **dict.fromkeys(("add_issue_comment", "create_pull_request"), "network"),
    }
)

KNOWN_TOOLS: Final[Mapping[str, Mapping[str, OperationKind]]] = MappingProxyType(
    {
        "filesystem": _FILESYSTEM,
        "git": _GIT,
        "memory": _MEMORY,
        "github": _GITHUB,
        "fetch": MappingProxyType({"fetch": "network"}),
    }
)
"""The operations of known tools, by the server's name in the annotations and the tool's name."""

OWN_DATA: Final = frozenset(
    {
        ("filesystem", "list_allowed_directories"),
        ("memory", "read_graph"),
        ("memory", "search_nodes"),
        ("memory", "open_nodes"),
    }
)
"""Tools that read what the agent itself was told or wrote, and name no path."""

ROLE_OPERATIONS: Final[Mapping[ArgumentRole, OperationKind | None]] = MappingProxyType(
    {
        "read-path": "read",
        "write-path": "edit",
        "delete-path": "delete",
        "write-history": "unknown",
        "delete-history": "delete",
        "fetch-url": "network",
        "git-remote-url": "network",
        "github-owner": "network",
        "github-repo": "network",
        "proxy-domain": "network",
        "resource-uri": "unknown",
        "branch-name": None,
        "commit-message": None,
        # These reach other people.
        "email-address": "unknown",
        "email-body": "unknown",
        "share-permission": "unknown",
        "message": "unknown",
        "sql": "unknown",
        "command": "unknown",
        "unclear": "unknown",
        "identifier": None,
        "none": None,
    }
)
"""The operation that an argument role adds, unless the call's operation covers the role."""

_PULLED: Final[frozenset[ArgumentRole]] = frozenset(
    {"read-path", "write-path", "write-history", "git-remote-url"}
)
COVERED: Final[Mapping[OperationKind, frozenset[ArgumentRole]]] = MappingProxyType(
    {
        "git-pull": _PULLED,
        "git-fetch": _PULLED,
        "git-commit": frozenset({"read-path", "write-history"}),
        "git-push": frozenset(
            {"read-path", "write-history", "git-remote-url", "github-owner", "github-repo"}
        ),
        "edit": frozenset({"write-history"}),
        "list": frozenset({"read-path"}),
    }
)
"""Roles that belong to an operation: a push has a remote, and is not a network call besides."""

READING_WORDS: Final = frozenset(
    {"read", "get", "view", "show", "cat", "stat", "search", "find", "grep", "list", "tree"}
)
WRITING_WORDS: Final = frozenset(
    {"write", "edit", "create", "append", "update", "save", "make", "mkdir", "copy", "patch"}
)
"""Words in the name of a tool that let its roles say what it is; without them, a tool of another
server is `unknown`."""

RAISING_WORDS: Final[Mapping[str, OperationKind]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("delete", "remove", "rm", "unlink", "erase", "wipe", "purge", "destroy", "shred"),
            "delete",
        ),
        **dict.fromkeys(("deploy", "deployment", "publish", "release", "rollout"), "deploy"),
        **dict.fromkeys(("sql", "query", "database", "db", "drop", "truncate"), "database"),
        "push": "git-push",
        **dict.fromkeys(("exec", "execute", "run", "shell", "command", "bash", "eval"), "unknown"),
        **dict.fromkeys(("merge", "reset", "rebase", "send", "kill", "move", "rename"), "unknown"),
    }
)
"""Words of a tool's name, of any server, that say what it does besides."""

DESTRUCTIVE_WORDS: Final = frozenset(
    {"delete", "remove", "rm", "unlink", "erase", "wipe", "purge", "destroy", "shred", "drop"}
    | {"truncate", "overwrite", "reset", "force", "forced", "hard", "prune", "mirror", "kill"}
    | {"recursive", "clean", "format", "mkfs", "dd", "amend", "uninstall"}
)
PRODUCTION_WORDS: Final = frozenset({"prod", "production", "live"})

REWRITING_SWITCHES: Final = frozenset(
    {"force", "forcewithlease", "forceifincludes", "mirror", "delete", "prune", "hard", "amend"}
)
"""Arguments of a git tool that make it lose something, in lower case without `_` and `-`."""

TELLING_ARGUMENTS: Final = frozenset(
    {"action", "args", "arguments", "cluster", "cmd", "command", "context", "database", "db"}
    | {"env", "environment", "extraargs", "flags", "host", "hostname", "method", "mode"}
    | {"namespace", "op", "operation", "options", "profile", "query", "script", "server", "sql"}
    | {"stage", "statement", "strategy", "subcommand", "target", "url"}
)
"""Arguments whose text says what is done or where. Not the contents of files: to write about
production is not to touch it."""
