"""The action of a call, if it is one of the few that a message can ask for.

The file is a table, not a grammar of tools: a call that is not in it, or has an argument that the
table does not name, goes to a person. It does not know the message.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct, convert

from ironcurtain_proxy.audit.redaction import redact_text
from ironcurtain_proxy.auto_approver.vocabulary import TABLE, these
from ironcurtain_proxy.model.annotation import RESOURCE_ROLES, ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation, Unpublished
from ironcurtain_proxy.model.request import ArgumentFact, PathValue, UrlValue
from ironcurtain_proxy.model.values import Arguments, Json, RealPath

GitOperation: TypeAlias = Literal["commit", "push", "pull", "fetch"]
SpelledVerb: TypeAlias = Literal[
    "read", "write", "delete", "get", "mkdir", "list", "move", "copy", "merge", "issue", "comment",
    "post", "mail", "close", "tag", "rebase", "revert", "join", "switch", "branch", "unbranch",
]  # fmt: skip
"""`get`: of an address. `join`: of a branch into the current one. `unbranch`: delete a branch."""


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


class PullRequestCall(Struct, frozen=True, kw_only=True):
    """A pull request of the workspace's current branch."""

    draft: bool
    is_ready_mark: bool
    """Whether the pull request is marked ready for review instead of opened."""
    texts: tuple[str, ...] = ()
    """Title before body, where they are not taken from the commits."""
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

    verb: SpelledVerb
    values: tuple[RealPath | str, ...]
    text: str | None = None
    """What is written: for others to read, or into a file."""
    kind: Literal["file", "directory"] | None = None
    """What the paths are of, for a tool that works on one kind."""
    server: str = ""
    """The operator's name of the server."""


Action: TypeAlias = GitCall | PullRequestCall | InstallCall | SpelledCall


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


_OTHER_REPOSITORY: Final = "the call is not known to work in the workspace's own repository"
_STRANGE_ARGUMENT: Final = "the call has an argument that may change what it does"


def action_of(escalation: Escalation, around: CallSurroundings) -> Action | NotUnderstood:
    """Parse a call into an action."""
    tool = escalation.tool
    if tool in _GIT_TOOLS:
        return _git(_GIT_TOOLS[tool], escalation, around)
    if tool in _TOOLS:
        return _spelled(_TOOLS[tool], escalation, around)
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
    r"|style|svg|video)\b|@\w|(?<![A-Za-z0-9+=])(?=[A-Za-z+=]*+\d)[A-Za-z0-9+=]{20}",
    re.IGNORECASE,
)
"""Links, pictures, people who are told of it, and what may be a key of a form that no table has."""


# --- git -----------------------------------------------------------------------------------------

_GIT_TOOLS: Final[Mapping[str, GitOperation]] = MappingProxyType(
    {"git_commit": "commit", "git_push": "push", "git_pull": "pull", "git_fetch": "fetch"}
)
_REPOSITORY_ARGUMENTS: Final = frozenset({"path", "repo_path", "cwd", "directory"})
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
        return NotUnderstood(_OTHER_REPOSITORY)
    # All other arguments must be off.
    arguments = frozenset({"message"} if operation == "commit" else _NAMES)
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
    is_text = isinstance(value, str) and (name not in _NAMES or _NAMES[name].fullmatch(value))
    return value is None or bool(is_text)


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
    urls = [one for one in fact.values if isinstance(one, UrlValue) and one.ordinary]
    return len(urls) == len(fact.values) and [len(one) for one in {u.domains for u in urls}] in (
        [],
        [1],
    )


# --- values that a message names -----------------------------------------------------------------


class _Tool(Struct, frozen=True, forbid_unknown_fields=True):
    """Tools that do one thing to the values of some arguments."""

    names: tuple[str, ...]
    verb: SpelledVerb
    values: tuple[str, ...]
    text: str = ""
    """The argument whose text has to be quoted, or empty."""
    others: tuple[str, ...] = ()
    """Arguments that say nothing of what is done."""
    kind: Literal["file", "directory"] | None = None


_TOOLS: Final = {
    name: one for one in convert(TABLE["tools"], tuple[_Tool, ...]) for name in one.names
}
_PATHS: Final = frozenset({"path", "paths", "source", "destination"})
ON_FILES: Final = frozenset({"read", "write", "delete"})
"""Of these a message may name more than one call does, and by paths of the workspace."""
_ROLES: Final[Mapping[SpelledVerb, frozenset[ArgumentRole]]] = {
    "read": frozenset({"read-path"}),
    "write": frozenset({"read-path", "write-path"}),
    "delete": frozenset({"delete-path", "write-path", "read-path"}),
    "get": frozenset({"fetch-url"}),
}
"""The most that the operator says of the arguments of such a tool."""


def _spelled(
    tool: _Tool, escalation: Escalation, around: CallSurroundings
) -> SpelledCall | NotUnderstood:
    known = frozenset({*tool.values, *tool.others, tool.text})
    text = escalation.arguments.get(tool.text)
    if _has_strange_argument(escalation, known):
        return NotUnderstood(_STRANGE_ARGUMENT)
    if escalation.request.server == "git" and not _is_own_repository(escalation, around):
        return NotUnderstood(_OTHER_REPOSITORY)
    if tool.text and not (isinstance(text, str) and text.strip()):
        return NotUnderstood("the call has no text")
    values = _values(tool, escalation)
    if not values or not all(values):
        return NotUnderstood("not every value of the call can be read")
    return SpelledCall(
        verb=tool.verb,
        values=values,
        text=text if isinstance(text, str) else None,
        kind=tool.kind,
        server=escalation.server,
    )


def _values(tool: _Tool, escalation: Escalation) -> tuple[RealPath | str, ...]:
    """Return what the arguments of a tool name, or nothing if a value is not plain."""
    values: list[RealPath | str] = []
    facts = {fact.name: fact for fact in escalation.request.arguments}
    for fact in facts.values() if tool.verb in _ROLES else ():
        roles = {role for role in fact.roles if role in RESOURCE_ROLES}
        if roles and not (fact.name in tool.values and roles <= _ROLES[tool.verb]):
            return ()
    for name in tool.values:
        given = escalation.arguments.get(name)
        found = facts[name].values if name in facts else ()
        each = given if isinstance(given, list) else [given] * (given is not None)
        # A link is two paths, and the message names one.
        paths = [v.path for v in found if isinstance(v, PathValue) and v.link is None]
        if name in _PATHS and len(paths) == len(each):
            values += paths
        elif name not in _PATHS and isinstance(given, str | int):
            values.append(str(given))
        else:
            return ()
    is_whole = tool.verb in ON_FILES or len(values) == len(tool.values)
    url = facts.get("url")
    is_one = url is not None and len(url.values) == 1 and _leads_to_one_place(url)
    return tuple(values) if is_whole and (is_one or tool.verb != "get") else ()


def _has_strange_argument(escalation: Escalation, known: frozenset[str]) -> bool:
    """Return whether an argument has a value that nobody accounts for."""
    return any(
        name not in known and not is_off(name, value)
        for name, value in escalation.arguments.items()
    )


_SAFE_WHEN_OFF: Final = these("safe-when-off")
"""Switches that ask for nothing when they are false."""


def is_off(name: str, value: Json) -> bool:
    """Return whether an argument asks for nothing."""
    if value is None or value in ("", [], {}):
        return True
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
    return value is False and snake in _SAFE_WHEN_OFF
