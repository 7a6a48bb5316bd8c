"""What a call does and what a message would have to name for it.

Pure: no I/O, no clock, no log. This file knows tools, arguments and their roles; it does not know
the message. What it does not recognise in a call it says so of: such a call needs a person.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.auto_approver.target_message import NotUnderstood
from ironcurtain_proxy.auto_approver.target_words import (
    CONTAINERS,
    DISTINCT,
    FLAG_WORDS,
    GOALS,
    HARMLESS_OPTIONS,
    PLAIN_TOOL_WORDS,
    SAFE_WHEN_OFF,
    SYNONYMS,
    TOOL_VERBS,
    Operation,
)
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import ArgumentFact, PathValue, TextValue, UrlValue

DemandKind: TypeAlias = Literal["path", "url", "remote", "branch", "repository", "email", "text"]

OBJECT: Final = frozenset({""})
_FROM: Final = frozenset({"from"})
_NAMED: Final = frozenset({"", "called", "named", "titled", "saying", "with"})
_SEEN: Final = frozenset({"", "in", "from", "inside", "under", "at", "of"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One thing that the message has to name."""

    kind: DemandKind
    argument: str
    text: str
    path: RealPath | None = None
    places: frozenset[str]
    """After which prepositions it may stand; `""`: as the object of the verb."""
    below: bool = False
    """Whether naming a directory above it is enough."""
    removes: bool = False
    """Whether "the files in DIRECTORY" leaves the directory itself alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a call does."""

    operation: Operation
    on_containers: bool | None
    """Whether it is done to a directory, or to a file; None: the tool's name does not say."""
    kinds: frozenset[str]
    """Words such as `branch` that say what it is done to."""
    demands: tuple[Demand, ...]
    flags: frozenset[str]
    """Switches that are on and change what the call does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a message takes for granted. Real paths."""

    home: RealPath
    workspace: RealPath | None = None


def action_of(escalation: Escalation, around: Surroundings) -> Action | NotUnderstood:
    """Read a call."""
    named = _tool(escalation.tool)
    if isinstance(named, NotUnderstood):
        return named
    operation, words = named
    reader = _Reader(operation, escalation, around)
    facts = {fact.name: fact for fact in escalation.request.arguments}
    found: list[Demand | NotUnderstood | str] = []
    for name, value in escalation.arguments.items():
        found += reader.argument(name, value, facts.get(name))
    for name, fact in facts.items():
        # A default that the call leaves unsaid, such as the remote of a bare `git push`.
        if name not in escalation.arguments:
            found += reader.resources(fact)
    found += reader.repository()
    strange = next((item for item in found if isinstance(item, NotUnderstood)), None)
    if strange is not None:
        return strange
    demands = tuple([item for item in found if isinstance(item, Demand)])
    if not demands:
        return NotUnderstood("the call names nothing that the message could name")
    flags = frozenset([item for item in found if isinstance(item, str)])
    is_file, is_directory = bool(words & {"file", "files"}), bool(words & CONTAINERS)
    return Action(
        operation=operation,
        on_containers=is_directory if is_file != is_directory else None,
        kinds=words & DISTINCT,
        demands=demands,
        flags=flags,
    )


def targets_of(escalation: Escalation) -> tuple[str, ...]:
    """Everything that the call names, in the spelling that was judged."""
    return tuple(
        [
            f"{fact.name}={value.text}"
            for fact in escalation.request.arguments
            for value in fact.values
            if any(ROLE_TRAITS[role].is_resource for role in fact.roles)
        ]
    )


def _tool(name: str) -> tuple[Operation, frozenset[str]] | NotUnderstood:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    text = " ".join(words)
    text = re.sub(r"\bpull request(s)?\b", "pr", text)
    words = [SYNONYMS.get(word, word) for word in text.split()]
    verbs = [word for word in words if word in TOOL_VERBS]
    others = [word for word in words if word not in TOOL_VERBS]
    if words[-2:] == ["issue", "comment"] or words[-2:] == ["pr", "comment"]:
        return "comment", frozenset()
    if len(verbs) != 1:
        return NotUnderstood("the tool's name does not say what it does")
    strange = [word for word in others if word not in PLAIN_TOOL_WORDS | DISTINCT]
    if strange:
        return NotUnderstood(f"the tool's name has a word that is not understood: {strange[0]}")
    return TOOL_VERBS[verbs[0]], frozenset(others)


_PREPOSITIONS_OF: Final = {
    "base": GOALS,
    "into": GOALS,
    "target": GOALS,
    "base_branch": _FROM,
    "head": _FROM,
    "source_branch": _FROM,
    "from_branch": _FROM,
    "channel": frozenset({"", "in", "to", "on"}),
    **dict.fromkeys(("issue_number", "pull_number", "number"), frozenset({"", "on", "to"})),
    **dict.fromkeys(
        ("subject", "title", "name"), frozenset({"", "titled", "called", "named", "with"})
    ),
    **dict.fromkeys(
        ("body", "text", "content", "message", "description"), frozenset({"", "saying"})
    ),
}
"""Where a message names the value of an argument, for arguments whose name says it."""

_CONTEXT_BRANCH: Final = "Current branch"
_CONTEXT_DIRECTORY: Final = "Working directory"
_REMOTE_PLACES: Final = {
    "push": frozenset({"to", "onto", "on"}),
    "pull": _FROM,
    "fetch": frozenset({"", "from", "at"}),
    "clone": frozenset({"", "from"}),
}
_RECIPIENTS: Final = frozenset({"to", "recipient", "recipients", "email"})
_IN_A_REPOSITORY: Final = frozenset(
    {"push", "pull", "fetch", "commit", "stage", "checkout", "merge", "reset", "make", "delete"}
)
_REPOSITORY_ARGUMENTS: Final = frozenset({"path", "repo_path", "repository", "cwd", "directory"})
_SEES_BELOW: Final = frozenset({"read", "list", "search", "delete", "stage"})


_ANYWHERE: Final = frozenset({"", "to", "into", "in", "at", "as", "under", "inside"})
_STARTED: Final = frozenset({"", "in", "at"})
_WRITTEN_TO: Final[Mapping[Operation, frozenset[str]]] = MappingProxyType(
    {
        "move": GOALS | {"in"},
        "copy": GOALS | {"in"},
        "clone": GOALS | {"in"},
        "write": _ANYWHERE,
        "make": _ANYWHERE,
        "run": _STARTED,
        "install": _STARTED,
    }
)
"""Where a message names a path that the call writes to."""

_READ_FROM: Final[Mapping[Operation, frozenset[str]]] = MappingProxyType(
    {
        "move": frozenset({"", "from", "in"}),
        "copy": frozenset({"", "from", "in"}),
        "run": _STARTED,
        "install": _STARTED,
    }
)
"""And one that it reads or takes away."""


class _Reader:
    """Reads the arguments of one call."""

    def __init__(self, operation: Operation, escalation: Escalation, around: Surroundings) -> None:
        self._operation: Operation = operation
        self._context = dict(escalation.context)
        self._of_git = escalation.request.server == "git" or escalation.tool.startswith("git_")
        self._around = around
        self._repository: dict[str, str] = {}
        roles = {role for fact in escalation.request.arguments for role in fact.roles}
        resources = {role for role in roles if ROLE_TRAITS[role].is_resource}
        self._only_reads = operation in {"read", "list", "search"} and resources == {"read-path"}

    def argument(
        self, name: str, value: Json, fact: ArgumentFact | None
    ) -> Iterator[Demand | NotUnderstood | str]:
        """What one argument asks of the message; a string is a switch that is on."""
        if value is None or value in ("", [], {}):
            return
        if fact is not None and any(ROLE_TRAITS[role].is_resource for role in fact.roles):
            if fact.values:
                yield from self.resources(fact)
            else:
                yield NotUnderstood(f"{name} cannot be read")
            return
        plain = _snake(name)
        if self._only_reads and plain in HARMLESS_OPTIONS:
            return
        items = value if isinstance(value, list) else [value]
        for item in items:
            yield from self._scalar(name, plain, item, fact.roles if fact is not None else ())

    def _scalar(
        self, name: str, plain: str, value: Json, roles: tuple[ArgumentRole, ...]
    ) -> Iterator[Demand | NotUnderstood | str]:
        match value:
            case bool():
                if value and plain in FLAG_WORDS:
                    yield plain
                elif value or plain not in SAFE_WHEN_OFF:
                    yield NotUnderstood(f"{name} may change what the call does")
            case int():
                yield self._text(name, plain, str(value))
            case str() if value.strip():
                yield from self._string(name, plain, value, roles)
            case _:
                yield NotUnderstood(f"{name} cannot be compared with a message")

    def _string(
        self, name: str, plain: str, value: str, roles: tuple[ArgumentRole, ...]
    ) -> Iterator[Demand | NotUnderstood]:
        if "branch-name" in roles:
            if value != self._context.get(_CONTEXT_BRANCH):
                places = self._places_of(plain)
                yield Demand(kind="branch", argument=name, text=value, places=places)
        elif "email-address" not in roles:
            yield self._text(name, plain, value)
        elif plain in _RECIPIENTS:
            yield Demand(kind="email", argument=name, text=value, places=frozenset({"", "to"}))
        else:
            yield NotUnderstood(f"{name} is a recipient that a message cannot name")

    def _text(self, name: str, plain: str, value: str) -> Demand:
        return Demand(kind="text", argument=name, text=value, places=self._places_of(plain))

    def _places_of(self, plain: str) -> frozenset[str]:
        places = _PREPOSITIONS_OF.get(plain, _NAMED)
        if self._operation == "checkout":
            return places | {"to"}
        return places

    def resources(self, fact: ArgumentFact) -> Iterator[Demand | NotUnderstood]:
        """What the values of one argument with a resource role ask of the message."""
        for value in fact.values:
            match value:
                case PathValue():
                    yield from self._path(fact, value)
                case UrlValue():
                    yield self._url(fact, value)
                case TextValue(text=text):
                    if fact.roles[0] in {"github-owner", "github-repo"}:
                        self._repository[fact.roles[0]] = text
                    else:
                        yield NotUnderstood(f"{fact.name} is not compared with messages")

    def _path(self, fact: ArgumentFact, value: PathValue) -> Iterator[Demand | NotUnderstood]:
        operation = self._operation
        if self._of_git and operation in _IN_A_REPOSITORY and fact.name in _REPOSITORY_ARGUMENTS:
            if not self._is_here(value.path):
                yield self._place(fact.name, value, frozenset({"in", "from", "at"}))
            return
        writes = "write-path" in fact.roles or "write-history" in fact.roles
        places = _WRITTEN_TO.get(operation) if writes else _READ_FROM.get(operation)
        if operation in _SEES_BELOW:
            places = _SEEN
        if places is None:
            yield NotUnderstood(f"{fact.name} is a path that a message cannot name here")
            return
        below = operation in _SEES_BELOW or (operation in {"move", "copy"} and not writes)
        yield self._place(fact.name, value, places, below=below)

    def _place(
        self, argument: str, value: PathValue, places: frozenset[str], *, below: bool = False
    ) -> Demand:
        return Demand(
            kind="path",
            argument=argument,
            text=value.text,
            path=value.path,
            places=places,
            below=below,
            removes=self._operation in {"delete", "move", "copy"},
        )

    def _is_here(self, path: RealPath) -> bool:
        """Whether a repository is the one that everybody speaks of."""
        directory = self._context.get(_CONTEXT_DIRECTORY)
        if directory is not None:
            return path == RealPath.from_text(directory)
        workspace = self._around.workspace
        return workspace is not None and path.is_within(workspace)

    def _url(self, fact: ArgumentFact, value: UrlValue) -> Demand | NotUnderstood:
        places = _REMOTE_PLACES.get(self._operation)
        if not value.ordinary or len(value.domains) != 1 or places is None:
            return NotUnderstood(f"{fact.name} leads to a place that a message cannot name")
        kind: DemandKind = "remote" if "git-remote-url" in fact.roles else "url"
        return Demand(kind=kind, argument=fact.name, text=value.text, places=places)

    def repository(self) -> list[Demand | NotUnderstood]:
        """The repository on a forge: owner and name together, or neither is named."""
        if not self._repository:
            return []
        owner = self._repository.get("github-owner", "")
        name = self._repository.get("github-repo", "")
        full = f"{owner}/{name}" if owner else name
        if full.count("/") != 1 or full.startswith("/") or full.endswith("/"):
            return [NotUnderstood("the call names a repository without its owner")]
        places = frozenset({"", "in", "on", "of", "from", "at", "to"})
        return [Demand(kind="repository", argument="repository", text=full, places=places)]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")
