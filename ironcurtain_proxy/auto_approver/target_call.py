"""The action of a call, if it is one of the few that a message can ask for.

The file is a table, not a grammar of tools: a call that is not in it, or has an argument that the
table does not name, goes to a person. It does not know the message.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.model.annotation import RESOURCE_ROLES, ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.history import Unpublished
from ironcurtain_proxy.model.request import ArgumentFact, PathValue, UrlValue
from ironcurtain_proxy.model.values import Arguments, Json, RealPath

GitOperation: TypeAlias = Literal["commit", "push", "pull", "fetch"]
FileOperation: TypeAlias = Literal["read", "write", "delete"]
NamedVerb: TypeAlias = Literal[
    "get", "mkdir", "list", "move", "copy", "merge", "issue", "comment", "post", "mail"
]


class NotUnderstood(Struct, frozen=True):
    """The reason for which a person must decide."""

    reason: str


class GitCall(Struct, frozen=True, kw_only=True):
    """An operation in the workspace's own repository."""

    operation: GitOperation
    remote: str | None = None
    """The name in the call, or None if the call leaves it to git."""
    branch: str | None = None
    current: str | None = None
    """The branch that is checked out. `None` means none, or not known."""
    upstream: tuple[str, str] | None = None
    """Remote and branch that git itself would push to. `None` means not known."""
    text: str | None = None
    """The commit message."""
    staged: tuple[str, ...] = ()
    """The paths that a command stages for its commit; the workspace, if that is all changes."""


class FileCall(Struct, frozen=True, kw_only=True):
    """An operation on paths."""

    operation: FileOperation
    paths: tuple[RealPath, ...]
    """Real ones, at least one."""
    kind: Literal["file", "directory"]
    """The kind of path that the tool works on."""
    content: str | None = None
    """The new content of a file that is overwritten."""


class PullRequestCall(Struct, frozen=True, kw_only=True):
    """A pull request of the workspace's current branch."""

    draft: bool
    is_ready_mark: bool
    """Whether the pull request is marked ready for review instead of opened."""
    texts: tuple[str, ...] = ()
    """Title and body, where they are not taken from the commits."""
    carries: bool = False
    """Whether the command holds what a text need not: a link, an address, what looks like a key."""
    base: str | None = None
    """The branch that it is to, or None for the one that the forge proposes."""
    pushed: GitCall | None = None
    """The push of its branch, or None where one that the message names does not matter."""


class InstallCall(Struct, frozen=True, kw_only=True):
    """Installing packages for the workspace."""

    manager: str
    """The program, such as `npm`: one name is another package in another registry."""
    packages: tuple[str, ...]
    """Package names as written. Empty means: install from the lock file."""


class SpelledCall(Struct, frozen=True, kw_only=True):
    """A call of which each value has to stand in the message, in this order."""

    verb: NamedVerb
    values: tuple[RealPath | str, ...]
    text: str | None = None
    """What is written for others to read."""
    server: str = ""
    """The operator's name of the server."""


Action: TypeAlias = GitCall | FileCall | PullRequestCall | InstallCall | SpelledCall


class CallSurroundings(Struct, frozen=True, kw_only=True):
    """The directories that a message assumes. Real paths."""

    home: RealPath
    workspace: RealPath | None = None
    unpublished: Unpublished | None = None
    """What a commit or a push there would publish besides. `None` means that it is not known."""


_UNCLEAR: Final = re.compile(r"(^|/)\.\.?(/|$)|//|[*?\[\]{}$\\|<>&;()]")


def asked_path(text: str, around: CallSurroundings) -> RealPath | None:
    """Return the path that a text names, or None if it cannot be told without looking."""
    root: RealPath | None
    if text.startswith("/"):
        root, tail = RealPath(()), text
    elif text.startswith("~/"):
        root, tail = around.home, text[1:]
    else:
        root, tail = around.workspace, text.removeprefix("./")
    if root is None or tail.startswith("~") or _UNCLEAR.search(tail):
        return None
    parts = RealPath.from_text(tail).parts
    return RealPath((*root.parts, *parts)) if parts else None


_STRANGE_ARGUMENT: Final = "the call has an argument that may change what it does"


def action_of(escalation: Escalation, around: CallSurroundings) -> Action | NotUnderstood:
    """Parse a call into an action."""
    tool = escalation.tool
    if tool in _GIT_TOOLS:
        return _git(_GIT_TOOLS[tool], escalation, around)
    if tool in _FILE_TOOLS:
        return _file(tool, escalation)
    if tool in _URL_TOOLS:
        return _url(escalation)
    if tool in _NAMED_TOOLS:
        return _named(*_NAMED_TOOLS[tool], escalation)
    return NotUnderstood("a message cannot ask for this tool")


def targets_of(escalation: Escalation) -> tuple[str, ...]:
    """Return all resources that the call names, in the spelling that was judged."""
    listed = [
        f"{fact.name}={value.text}"
        for fact in escalation.request.arguments
        for value in fact.values
        if any(role in RESOURCE_ROLES for role in fact.roles)
    ]
    return tuple(listed)


def may_carry(arguments: Arguments) -> bool:
    """Return whether a text may hand on more than words, besides the line that clients add."""
    texts = [_ADDED.sub("", text) for text in arguments.values() if isinstance(text, str)]
    return any(_MORE_THAN_WORDS.search(one) or redact_text(one) != one for one in texts)


_ADDED: Final = re.compile(
    r"\[[\w .-]{1,40}\]\(https://(?:claude\.com/claude-code|claude\.ai/code|opencode\.ai)\)"
    r"|^Co-Authored-By: [\w .-]{1,60} <noreply@(?:anthropic|openai)\.com>$",
    re.IGNORECASE | re.MULTILINE,
)
_MORE_THAN_WORDS: Final = re.compile(
    r"://|\bwww\.|!\[|\]\(|<(?:a|audio|base|embed|form|iframe|img|link|meta|object|picture|script|source"
    r"|style|svg|video)\b|@\w|(?=[A-Za-z+=]*\d)[A-Za-z0-9+=]{20,}",
    re.IGNORECASE,
)
"""Links, pictures, people who are told of it, and what may be a key of a form that no table has."""


# --- git -----------------------------------------------------------------------------------------

_GIT_TOOLS: Final[Mapping[str, GitOperation]] = MappingProxyType(
    {"git_commit": "commit", "git_push": "push", "git_pull": "pull", "git_fetch": "fetch"}
)
_REPOSITORY_ARGUMENTS: Final = frozenset({"path", "repo_path", "cwd", "directory"})
_GIT_ARGUMENTS: Final[Mapping[GitOperation, frozenset[str]]] = MappingProxyType(
    {
        "commit": frozenset({"message"}),
        "push": frozenset({"remote", "branch"}),
        "pull": frozenset({"remote", "branch"}),
        "fetch": frozenset({"remote", "branch"}),
    }
)
"""The arguments other than the repository that may have a value. All others must be off."""

_CURRENT_BRANCH: Final = "Current branch"
_WORKING_DIRECTORY: Final = "Working directory"
_NAMES: Final = MappingProxyType(
    {
        "remote": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII),
        "branch": re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*", re.ASCII),
    }
)


def _git(
    operation: GitOperation, escalation: Escalation, around: CallSurroundings
) -> GitCall | NotUnderstood:
    if escalation.request.server != "git":
        return NotUnderstood("the tool is not one of a git server")
    if not _is_own_repository(escalation, around):
        return NotUnderstood("the call is not known to work in the workspace's own repository")
    arguments = _GIT_ARGUMENTS[operation]
    if _has_strange_argument(escalation, arguments | _REPOSITORY_ARGUMENTS):
        return NotUnderstood(_STRANGE_ARGUMENT)
    facts = escalation.request.arguments
    if any(not _leads_to_one_place(fact) for fact in facts if "git-remote-url" in fact.roles):
        return NotUnderstood("the remote leads to more than one place, or through a helper")
    values = {name: escalation.arguments.get(name) or None for name in arguments}
    if not all(_is_plain(name, value) for name, value in values.items()):
        return NotUnderstood("the call has a value that is no plain text")
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    return GitCall(
        operation=operation,
        remote=texts.get("remote"),
        branch=texts.get("branch"),
        current=escalation.branch or dict(escalation.context).get(_CURRENT_BRANCH),
        text=texts.get("message"),
    )


def _is_plain(name: str, value: Json) -> bool:
    if value is None:
        return True
    return isinstance(value, str) and (name not in _NAMES or bool(_NAMES[name].fullmatch(value)))


def _is_own_repository(escalation: Escalation, around: CallSurroundings) -> bool:
    """Return whether the call names a repository, and names only the workspace itself.

    A repository below it is another one: its `origin` leads where whoever put it there wants.
    """
    signs: list[RealPath] = []
    for fact in escalation.request.arguments:
        for value in fact.values:
            if isinstance(value, PathValue):
                if fact.name not in _REPOSITORY_ARGUMENTS or value.link is not None:
                    return False
                signs.append(value.path)
        named = escalation.arguments.get(fact.name)
        if named and fact.name in _REPOSITORY_ARGUMENTS and len(fact.values) != 1:
            return False
    if escalation.request.repository is not None:
        signs.append(escalation.request.repository)
    directory = dict(escalation.context).get(_WORKING_DIRECTORY)
    if directory is not None:
        signs.append(RealPath.from_text(directory))
    return bool(signs) and all(sign == around.workspace for sign in signs)


def _leads_to_one_place(fact: ArgumentFact) -> bool:
    return (
        all(
            isinstance(value, UrlValue) and value.ordinary and len(value.domains) == 1
            for value in fact.values
        )
        and len({value.domains for value in fact.values if isinstance(value, UrlValue)}) <= 1
    )


# --- files ---------------------------------------------------------------------------------------


class _FileTool(Struct, frozen=True):
    operation: FileOperation
    kind: Literal["file", "directory"]
    arguments: frozenset[str]
    """The arguments other than paths that may have a value."""


_READING: Final = frozenset({"head", "tail"})
_FILE_TOOLS: Final[Mapping[str, _FileTool]] = MappingProxyType(
    {
        "read_file": _FileTool("read", "file", _READING),
        "read_text_file": _FileTool("read", "file", _READING),
        "read_media_file": _FileTool("read", "file", frozenset()),
        "read_multiple_files": _FileTool("read", "file", frozenset()),
        "write_file": _FileTool("write", "file", frozenset({"content"})),
        "delete_file": _FileTool("delete", "file", frozenset()),
        "remove_file": _FileTool("delete", "file", frozenset()),
        "delete_directory": _FileTool("delete", "directory", frozenset()),
        "remove_directory": _FileTool("delete", "directory", frozenset()),
    }
)
_PATH_ARGUMENTS: Final = frozenset({"path", "paths"})
_ROLES: Final[Mapping[FileOperation, frozenset[ArgumentRole]]] = MappingProxyType(
    {
        "read": frozenset({"read-path"}),
        "write": frozenset({"read-path", "write-path"}),
        "delete": frozenset({"delete-path", "write-path", "read-path"}),
    }
)
"""The most that the operator says of a path of such a tool."""


def _file(name: str, escalation: Escalation) -> FileCall | NotUnderstood:
    tool = _FILE_TOOLS[name]
    if _has_strange_argument(escalation, tool.arguments | _PATH_ARGUMENTS):
        return NotUnderstood(_STRANGE_ARGUMENT)
    paths = _paths(tool.operation, escalation)
    if not paths:
        return NotUnderstood("not every path of the call can be read")
    content = escalation.arguments.get("content")
    if tool.operation == "write" and not (isinstance(content, str) and content.strip()):
        return NotUnderstood("the call would leave the file empty")
    return FileCall(
        operation=tool.operation,
        paths=paths,
        kind=tool.kind,
        content=content if isinstance(content, str) else None,
    )


def _paths(operation: FileOperation, escalation: Escalation) -> tuple[RealPath, ...]:
    """Return all paths that the call names, none if a value is no plain path."""
    paths: list[RealPath] = []
    for fact in escalation.request.arguments:
        resources = {role for role in fact.roles if role in RESOURCE_ROLES}
        if not resources:
            continue
        if fact.name not in _PATH_ARGUMENTS or not resources <= _ROLES[operation]:
            return ()
        # A link is two paths, and the message names one.
        paths += [v.path for v in fact.values if isinstance(v, PathValue) and v.link is None]
    given = [escalation.arguments.get(argument) for argument in _PATH_ARGUMENTS]
    texts = sum(len(one) if isinstance(one, list) else one is not None for one in given)
    return tuple(paths) if len(paths) == texts else ()


# --- values that a message names -----------------------------------------------------------------

_NAMED_TOOLS: Final[Mapping[str, tuple[NamedVerb, tuple[str, ...]]]] = MappingProxyType(
    {
        "create_directory": ("mkdir", ("path",)),
        "list_directory": ("list", ("path",)),
        "move_file": ("move", ("source", "destination")),
        "copy_file": ("copy", ("source", "destination")),
        "merge_pull_request": ("merge", ("pull_number", "owner", "repo")),
        "create_issue": ("issue", ("owner", "repo")),
        "add_issue_comment": ("comment", ("issue_number", "owner", "repo")),
        "post_message": ("post", ("channel",)),
        "send_email": ("mail", ("to",)),
    }
)
_TEXTS: Final[Mapping[NamedVerb, str]] = MappingProxyType(
    {"issue": "title", "comment": "body", "post": "text", "mail": "body"}
)


def _named(
    verb: NamedVerb, arguments: tuple[str, ...], escalation: Escalation
) -> SpelledCall | NotUnderstood:
    text = escalation.arguments.get(_TEXTS.get(verb, ""))
    if _has_strange_argument(escalation, frozenset({*arguments, _TEXTS.get(verb, "")})):
        return NotUnderstood(_STRANGE_ARGUMENT)
    if verb in _TEXTS and not isinstance(text, str):
        return NotUnderstood("the call has no text")
    facts = {fact.name: fact for fact in escalation.request.arguments}
    values: list[RealPath | str] = []
    for name in arguments:
        given = escalation.arguments.get(name)
        found = facts[name].values if name in facts else ()
        if isinstance(given, str) and len(found) == 1 and isinstance(found[0], PathValue):
            values += [] if found[0].link is not None else [found[0].path]
        elif isinstance(given, str | int) and name not in {"path", "source", "destination"}:
            values.append(str(given))
    if len(values) != len(arguments) or not all(values):
        return NotUnderstood("not every value of the call can be read")
    return SpelledCall(
        verb=verb,
        values=tuple(values),
        text=text if isinstance(text, str) else None,
        server=escalation.server,
    )


# --- URLs ----------------------------------------------------------------------------------------

_URL_TOOLS: Final = frozenset({"fetch", "fetch_url", "http_fetch", "web_fetch"})
_URL_ARGUMENTS: Final = frozenset({"url", "max_length", "start_index", "raw"})


def _url(escalation: Escalation) -> SpelledCall | NotUnderstood:
    if _has_strange_argument(escalation, _URL_ARGUMENTS):
        return NotUnderstood(_STRANGE_ARGUMENT)
    facts = [
        fact
        for fact in escalation.request.arguments
        if any(role in RESOURCE_ROLES for role in fact.roles)
    ]
    if [(fact.name, fact.roles) for fact in facts] != [("url", ("fetch-url",))]:
        return NotUnderstood("the call does not just fetch one address")
    url = escalation.arguments.get("url")
    if not isinstance(url, str) or len(facts[0].values) != 1 or not _leads_to_one_place(facts[0]):
        return NotUnderstood("url cannot be read")
    return SpelledCall(verb="get", values=(url,))


def _has_strange_argument(escalation: Escalation, known: frozenset[str]) -> bool:
    """Return whether an argument has a value that nobody accounts for."""
    return any(
        name not in known and not is_off(name, value)
        for name, value in escalation.arguments.items()
    )


_SAFE_WHEN_OFF: Final = frozenset(
    {"force", "force_with_lease", "delete", "all", "mirror", "prune", "tags", "amend", "dry_run",
     "set_upstream", "no_verify", "recursive", "rebase", "allow_empty"}
)  # fmt: skip
"""Switches that ask for nothing when they are false."""


def is_off(name: str, value: Json) -> bool:
    """Return whether an argument asks for nothing."""
    if value is None or value in ("", [], {}):
        return True
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    return value is False and snake in _SAFE_WHEN_OFF
