"""The words that the target check understands. Pure: no I/O, no clock, no log.

Tables only. A word that is not here is not understood, and a message with one in it approves
nothing: that is how "never", "if", "yesterday" and what nobody thought of are kept out. So no word
here may negate, take back, ask, put off or limit a request.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

Operation: TypeAlias = Literal[
    "read", "list", "write", "make", "delete", "move", "copy", "push", "pull", "fetch", "clone",
    "commit", "stage", "checkout", "merge", "reset", "send", "post", "comment", "close", "run",
    "install", "search",
]  # fmt: skip
"""What a call does, or what a message asks for."""

TOOL_VERBS: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        "read": "read", "view": "read", "list": "list", "tree": "list", "write": "write",
        "save": "write", "create": "make", "make": "make", "delete": "delete", "remove": "delete",
        "move": "move", "rename": "move", "copy": "copy", "push": "push", "pull": "pull",
        "fetch": "fetch", "clone": "clone", "commit": "commit", "add": "stage", "stage": "stage",
        "checkout": "checkout", "switch": "checkout", "merge": "merge", "reset": "reset",
        "send": "send", "post": "post", "close": "close", "run": "run", "execute": "run",
        "exec": "run", "install": "install", "search": "search",
    }
)  # fmt: skip
"""The words of a tool's name that say what it does. A tool has exactly one."""

VERBS: Final[Mapping[str, frozenset[Operation]]] = MappingProxyType(
    {
        "read": frozenset({"read"}),
        "open": frozenset({"read", "fetch", "make"}),
        "show": frozenset({"read", "list"}),
        "display": frozenset({"read", "list"}),
        "view": frozenset({"read", "list"}),
        "print": frozenset({"read"}),
        "cat": frozenset({"read"}),
        "list": frozenset({"list"}),
        "ls": frozenset({"list"}),
        "search": frozenset({"search"}),
        "write": frozenset({"write"}),
        "save": frozenset({"write"}),
        "create": frozenset({"make", "write"}),
        "make": frozenset({"make"}),
        "mkdir": frozenset({"make"}),
        "delete": frozenset({"delete"}),
        "remove": frozenset({"delete"}),
        "erase": frozenset({"delete"}),
        "move": frozenset({"move"}),
        "mv": frozenset({"move"}),
        "rename": frozenset({"move"}),
        "copy": frozenset({"copy"}),
        "cp": frozenset({"copy"}),
        "push": frozenset({"push"}),
        "force-push": frozenset({"push"}),
        "pull": frozenset({"pull"}),
        "fetch": frozenset({"fetch"}),
        "download": frozenset({"fetch"}),
        "visit": frozenset({"fetch"}),
        "clone": frozenset({"clone"}),
        "commit": frozenset({"commit"}),
        "stage": frozenset({"stage"}),
        "add": frozenset({"stage"}),
        "checkout": frozenset({"checkout"}),
        "switch": frozenset({"checkout"}),
        "merge": frozenset({"merge"}),
        "reset": frozenset({"reset"}),
        "send": frozenset({"send"}),
        "email": frozenset({"send"}),
        "post": frozenset({"post", "send"}),
        "comment": frozenset({"comment"}),
        "close": frozenset({"close"}),
        "run": frozenset({"run"}),
        "execute": frozenset({"run"}),
        "install": frozenset({"install"}),
        # Asked of the agent itself, beside a call: no tool does these.
        "summarize": frozenset(),
        "summarise": frozenset(),
        "explain": frozenset(),
        "describe": frozenset(),
    }
)  # fmt: skip
"""What an imperative may mean. Base forms only: "pushed" and "pushing" request nothing."""

LEADING: Final = frozenset(
    {"please", "kindly", "plz", "pls", "ok", "okay", "yes", "now", "then", "also", "just", "and"}
)
"""May stand before an imperative."""

TRAILING: Final = frozenset({"please", "plz", "pls", "thanks", "now", "too", "entirely"})
"""May stand within or after a request and changes nothing."""

LEADING_PHRASES: Final = (
    ("i", "want", "you", "to"),
    ("i", "need", "you", "to"),
    ("go", "ahead", "and"),
)
COURTESIES: Final = frozenset({("thanks",), ("thank", "you"), ("please",), ("yes",), ("ok",)})
"""Sentences that say nothing."""

DETERMINERS: Final = frozenset({"the", "a", "an", "my", "our", "me", "us"})
"""Not `this`: what follows it may be pasted text."""

PLACES: Final = frozenset({"in", "from", "inside", "under", "at", "on", "of", "out"})
GOALS: Final = frozenset({"to", "into", "onto", "as", "against"})
NAMING: Final = frozenset({"called", "named", "titled", "saying"})
PREPOSITIONS: Final = PLACES | GOALS | NAMING | frozenset({"for", "with"})

_FILES: Final = frozenset(
    {"file", "files", "folder", "folders", "directory", "directories", "content", "contents"}
)
_DOCUMENTS: Final = frozenset({"document", "documents", "page", "text", "script"})
FILE_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "temp": r"(^|[._-])te?mp([._-]|$)|~$",
        "tmp": r"(^|[._-])te?mp([._-]|$)|~$",
        "temporary": r"(^|[._-])te?mp([._-]|$)|~$",
        "log": r"\.log(\.\d+)?$",
        "logs": r"\.log(\.\d+)?$",
        "csv": r"\.csv$",
        "json": r"\.json$",
        "yaml": r"\.ya?ml$",
        "pdf": r"\.pdf$",
        "backup": r"\.(bak|old|orig)$",
        "markdown": r"\.md$",
        "text": r"\.(txt|md|rst)$",
    }
)
"""Words that say which files of a directory are meant, and how their names look."""

NOUNS: Final[Mapping[Operation, frozenset[str]]] = MappingProxyType(
    {
        "read": _FILES | _DOCUMENTS,
        "list": _FILES | {"everything"},
        "search": _FILES,
        "write": _FILES | _DOCUMENTS | {"summary", "report", "result", "results"},
        "make": _FILES
        | {"branch", "tag", "issue", "pr", "repository", "repo", "release", "label", "new"},
        "delete": _FILES
        | {"branch", "tag", "issue", "comment", "release", "label", "repository", "repo"}
        | {"everything"},
        "move": _FILES,
        "copy": _FILES,
        "push": frozenset(
            {"changes", "change", "commits", "commit", "work", "code", "branch", "edits"}
        ),
        "pull": frozenset({"changes", "updates", "commits", "latest", "branch", "repository"}),
        "fetch": frozenset({"page", "url", "site", "website", "file", "content", "contents"}),
        "clone": frozenset({"repository", "repo", "project"}),
        "commit": frozenset({"changes", "change", "work", "edits", "message", "staged"}),
        "stage": _FILES | {"changes", "change"},
        "checkout": frozenset({"branch", "tag"}),
        "merge": frozenset({"branch", "pr"}),
        "reset": frozenset({"branch"}),
        "send": frozenset({"email", "mail", "message", "subject"}),
        "post": frozenset({"message", "channel"}),
        "comment": frozenset({"issue", "pr", "comment"}),
        "close": frozenset({"issue", "pr"}),
        "run": frozenset({"script", "command", "file"}),
        "install": frozenset({"package", "packages", "library", "dependency"}),
    }
)
"""What each operation may be done to, in the words of a message."""

CONTAINERS: Final = frozenset({"folder", "folders", "directory", "directories"})

DISTINCT: Final = frozenset(
    {"branch", "tag", "issue", "pr", "comment", "release", "label", "repository"}
)
"""Kinds of things that a tool must not be given another of: a message must name the kind."""

SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {"repo": "repository", "mail": "email", "issues": "issue", "comments": "comment"}
)

PLAIN_TOOL_WORDS: Final = frozenset(
    {"git", "file", "files", "text", "media", "multiple", "directory", "folder", "path", "script",
     "command", "package", "packages", "npm", "pip", "email", "message", "url", "shell"}
)  # fmt: skip
"""Words of a tool's name that do not change what it does."""

HARMLESS_OPTIONS: Final = frozenset(
    {"head", "tail", "limit", "offset", "max_length", "start_index", "context_lines", "encoding",
     "sort_by", "exclude_patterns", "raw", "max_count", "per_page", "page"}
)  # fmt: skip
"""Arguments of a reading call that only say how much of a thing is shown."""

SAFE_WHEN_OFF: Final = frozenset(
    {"force", "recursive", "delete", "hard", "all", "overwrite", "mirror", "prune", "tags", "amend",
     "set_upstream", "force_with_lease", "no_verify", "dry_run", "draft"}
)  # fmt: skip
"""Switches that ask for nothing when they are false."""

FLAG_WORDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "force": frozenset({"force", "forcefully", "force-push", "--force", "-f"}),
        "recursive": frozenset({"recursive", "recursively", "--recursive", "-r", "-rf"}),
        "delete": frozenset({"delete", "--delete"}),
        "hard": frozenset({"hard", "--hard"}),
        "all": frozenset({"all", "everything", "--all"}),
        "overwrite": frozenset({"overwrite"}),
        "mirror": frozenset({"mirror", "--mirror"}),
        "prune": frozenset({"prune", "--prune"}),
        "tags": frozenset({"tags", "--tags"}),
        "amend": frozenset({"amend", "--amend"}),
    }
)
"""How a message names a switch that changes what a call does. Other switches cannot be named."""

FAMILIAR_BRANCHES: Final = frozenset({"main", "master"})
FAMILIAR_FOLDERS: Final = frozenset(
    {"documents", "downloads", "desktop", "pictures", "music", "videos"}
)
BESIDE: Final[frozenset[Operation]] = frozenset(
    {"commit", "stage", "pull", "checkout", "merge", "move", "copy", "delete", "read", "list"}
)
"""What may be asked for before the call's own operation in one message. Not what makes a text:
"write a script to commit and push" asks for no push."""
FAMILIAR_ENDINGS: Final = frozenset({"", "md", "txt", "rst"})
FAMILIAR_FILES: Final = frozenset({"README", "LICENSE", "CHANGELOG", "Makefile", "Dockerfile"})

NEVER_NAMES: Final = frozenset(
    {"abort", "actually", "after", "afterwards", "ago", "already", "before", "but", "cancel",
     "cannot", "cant", "careful", "don't", "done", "dont", "earlier", "else", "except", "false",
     "first", "forget", "hold", "hypothetically", "if", "instead", "joking", "just", "kidding",
     "last", "later", "maybe", "mind", "never", "nevermind", "next", "no", "nobody", "none", "nope",
     "not", "nothing", "nowhere", "off", "once", "only", "or", "perhaps", "rather", "scratch",
     "should", "skip", "soon", "stop", "stopped", "than", "that", "today", "tomorrow", "tonight",
     "unless", "until", "wait", "wasn't", "what", "when", "whenever", "where", "whether", "while",
     "who", "why", "without", "won't", "would", "yesterday", "yet"}
)  # fmt: skip
"""Not taken as the name of anything, or an agent that names a branch `nothing` could turn "push
nothing to origin" into an approval."""
