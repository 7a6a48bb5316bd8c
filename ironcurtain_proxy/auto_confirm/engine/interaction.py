"""The engine's input: a call, its session's place, and the patterns that were promoted.

INVARIANT: only the call comes from the agent. The session's type and health, the queue and the time
come from the proxy and the operator.

A promoted pattern approves an operation on certain paths. Every condition must hold for everything
that the call names. Conditions are not weighed: a pattern
that matches by two of four would approve any path.

Tables of the operations that the engine knows, and of the tools that do them.

The words stand in `engine_tables.toml`. A tool's name comes from its server, never from the agent.
The name of an unknown server's tool can only raise the risk: `delete` in a name counts, `test` does
not.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, convert, field
from pydantic_core import SchemaError, SchemaValidator, core_schema

from ironcurtain_proxy.auto_confirm.engine_tables import TABLES
from ironcurtain_proxy.credentials import is_credential
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import Origin
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import Arguments, RealPath, WithSecrets

# --- operations


OperationKind: TypeAlias = Literal[
    "deploy", "git-force-push", "shell-dd-mount", "delete", "shell-rm", "unknown", "git-push",
    "database", "network", "install", "git-commit", "edit", "shell-safe", "test", "git-pull",
    "git-fetch", "read", "list",
]  # fmt: skip
"""The operations of calls, the most dangerous first. `unknown`: not known to the engine."""


class _Words(Struct, frozen=True, forbid_unknown_fields=True):
    reading: str
    writing: str
    destructive: str
    production: str
    rewriting_switches: str
    telling_arguments: str


class _Tables(Struct, frozen=True):
    commands: dict[str, OperationKind]
    tools: dict[str, dict[OperationKind, str]]
    own_data: dict[str, str]
    roles: dict[OperationKind | Literal["none"], str]
    covered: dict[OperationKind, str]
    raising: dict[OperationKind, str]
    words: _Words


_TABLES: Final = convert(TABLES, _Tables)


def _by_word(table: Mapping[OperationKind, str]) -> dict[str, OperationKind]:
    return {word: operation for operation, text in table.items() for word in text.split()}


def _roles(text: str) -> frozenset[ArgumentRole]:
    return convert(text.split(), frozenset[ArgumentRole])


COMMAND_OPERATIONS: Final[Mapping[str, OperationKind]] = _TABLES.commands
"""Any other word is `unknown`."""
KNOWN_TOOLS: Final[Mapping[str, Mapping[str, OperationKind]]] = {
    server: _by_word(tools) for server, tools in _TABLES.tools.items()
}
"""The operations of known tools, by the server's name in the annotations and the tool's name."""
OWN_DATA: Final = frozenset(
    (server, tool) for server, tools in _TABLES.own_data.items() for tool in tools.split()
)
"""Tools that read what the agent itself was told or wrote, and name no path."""
ROLE_OPERATIONS: Final[Mapping[ArgumentRole, OperationKind | None]] = {
    role: None if operation == "none" else operation
    for operation, text in _TABLES.roles.items()
    for role in _roles(text)
}
"""The operation that an argument role adds, unless the call's operation covers the role."""
COVERED: Final[Mapping[OperationKind, frozenset[ArgumentRole]]] = {
    operation: _roles(text) for operation, text in _TABLES.covered.items()
}
"""Roles that belong to an operation."""
RAISING_WORDS: Final[Mapping[str, OperationKind]] = _by_word(_TABLES.raising)
"""Words in a tool's name, of any server, that say what else it does."""

READING_WORDS: Final = frozenset(_TABLES.words.reading.split())
WRITING_WORDS: Final = frozenset(_TABLES.words.writing.split())
DESTRUCTIVE_WORDS: Final = frozenset(_TABLES.words.destructive.split())
PRODUCTION_WORDS: Final = frozenset(_TABLES.words.production.split())
REWRITING_SWITCHES: Final = frozenset(_TABLES.words.rewriting_switches.split())
TELLING_ARGUMENTS: Final = frozenset(_TABLES.words.telling_arguments.split())


# --- sessions -------------------------------------------------------------------------------------
# Sessions as parties: who asks, and who reviews.


SessionType: TypeAlias = Literal["worker", "manager", "architect", "high-level", "codex", "unknown"]
"""The type of session that the operator registered. Never read from a call."""


class Party(Struct, frozen=True, kw_only=True):
    """A session that asks or reviews."""

    session: str
    session_type: SessionType


# --- places ---------------------------------------------------------------------------------------
# Places of the safety rules, and the paths in them.
#
# Every path here is real, and paths are compared by components.


TEMPORARY: Final = (RealPath(("tmp",)), RealPath(("private", "tmp")))

_HOMES: Final = RealPath(("home",))

_PROJECT_ROOT: Final = "project_root"
_TELLING: Final = re.compile(r".*(?:credential|secret|passw|token).*|id_[a-z0-9]+", re.IGNORECASE)
"""Further names that may be those of secrets: an approval needs to be sure."""
_PRIVATE: Final = re.compile(
    r".*(?:key(?:chain|ring)|mnemonic|seed.?phrase|wallet).*|authorized_keys"
    r"|(?:.*[._ -])?(?:pw|pin|dump|backup)s?\W.*|.*\.(?:mbox|sqlite|db|sql)",
    re.IGNORECASE,
)
"""Names of files in the user's home, outside the workspace, that may hold what is private."""


class FilesFound(Struct, frozen=True):
    """What the paths of a call are on the disk."""

    files: frozenset[RealPath] = frozenset()
    """Plain files with one name, neither directories nor sockets nor links."""
    own: frozenset[RealPath] = frozenset()
    """Entries of `/tmp` that this session made, or that do not exist yet."""


NOTHING_FOUND: Final = FilesFound()


class SessionPlaces(Struct, frozen=True, kw_only=True):
    """The workspace and home of a session, and what a call's paths are. Real paths."""

    workspace: RealPath | None = None
    """The workspace, or None if every path lies outside."""
    home: RealPath | None = None
    found: FilesFound = NOTHING_FOUND

    def in_workspace(self, path: RealPath) -> bool:
        """Return whether a path is the workspace or lies in it."""
        return self.workspace is not None and path.is_within(self.workspace)

    def is_secret(self, path: RealPath) -> bool:
        """Return True if the file holds credentials by the table of all readers."""
        home = None if self.home is None else str(self.home)
        workspace = None if self.workspace is None else str(self.workspace)
        return is_credential(str(path), home, workspace)

    def is_public(self, path: RealPath) -> bool:
        """Return whether anyone may read a path in the workspace, the user's home or /tmp.

        A name that looks like a secret is never public. Outside the workspace, only a plain file is
        public that is not hidden, in the home, or in /tmp if this session made it: a directory
        shows what is hidden in it, and other files in /tmp are of other programs.
        """
        if self.is_secret(path) or any(map(_TELLING.fullmatch, path.parts)):
            return False
        if self.in_workspace(path):
            return True
        if path not in self.found.files or any(map(_PRIVATE.fullmatch, path.parts)):
            return False
        at_home = self.home is not None and path.is_within(self.home)
        return self.in_own_temporary(path) or (at_home and not _is_hidden(path, self.home))

    def is_of_others(self, path: RealPath) -> bool:
        """Return True for what other programs keep below /tmp, and for homes of other users."""
        if self.in_workspace(path) or (self.home is not None and path.is_within(self.home)):
            return False
        if path.is_within(_HOMES) or path in TEMPORARY:
            return True
        return in_temporary(path) and not self.in_own_temporary(path)

    def in_own_temporary(self, path: RealPath) -> bool:
        """Return whether this session made the path below /tmp, and it is not hidden there."""
        return (
            in_temporary(path)
            and any(path.is_within(one) for one in self.found.own)
            and not any(_is_hidden(path, base) for base in TEMPORARY if path.is_within(base))
        )


def _is_hidden(path: RealPath, base: RealPath | None) -> bool:
    below = path.parts[0 if base is None else len(base.parts) :]
    return any(part.startswith(".") for part in below)


def in_temporary(path: RealPath) -> bool:
    """Return whether a path lies below /tmp. The directory itself does not."""
    return any(path != base and path.is_within(base) for base in TEMPORARY)


class SafePath(Struct, frozen=True, kw_only=True):
    """A row of `safe_paths`: a directory in which an operation is nothing special."""

    path: str
    """`project_root/` is the workspace; a relative path lies in the workspace."""
    operation: str | None = None
    """The kind of operation. `None` means every operation."""

    def contains(self, path: RealPath, operation: str, places: SessionPlaces) -> bool:
        """Return whether the safe path covers a real path for an operation, by whole components."""
        directory = self._directory(places)
        if directory is None or self.operation not in (None, operation):
            return False
        return path.is_within(directory)

    def _directory(self, places: SessionPlaces) -> RealPath | None:
        parts = tuple([part for part in self.path.split("/") if part])
        # A row with `..`, or an empty one, would make every path safe.
        if not parts or not {".", ".."}.isdisjoint(parts):
            return None
        if self.path.startswith("/"):
            return RealPath(parts)
        if places.workspace is None:
            return None
        below = parts[1:] if parts[0] == _PROJECT_ROOT else parts
        return RealPath(places.workspace.parts + below)


# --- patterns of paths ----------------------------------------------------------------------------
# A small language of regular expressions for paths, matched in linear time.
#
# An operator's pattern is matched against an agent's path, so no path may make the match take
# for ever. Python's own engine backtracks; the engine of `pydantic_core` (Rust's) does not.
#
# The language is what both engines read alike: literals, `.`, classes (`[^/]`), `* + ? {n,m}`
# after one of these, and groups with alternatives (`(src|tests)`), never repeated. The rest is
# refused.


MAX_SUBJECT: Final = 1024
"""Characters of a path or an address; a longer one matches nothing."""
_MAX_PATTERN: Final = 512
_MAX_COUNT: Final = 64

_ESCAPED: Final = r"\\(?:[dwsDWS]|[^A-Za-z0-9])"
_CLASS: Final = rf"\[\^?+\]?+(?:{_ESCAPED}|[^\\\[\]])*+\]"
_COUNT: Final = r"\{([0-9]{1,3})(?:,([0-9]{0,3}))?\}"
_ATOM: Final = rf"(?:{_ESCAPED}|{_CLASS}|[^\\\[\]{{}}()*+?|^$])"
_PATTERN: Final = re.compile(
    rf"\^?((?:{_ATOM}(?:[*+?]|{_COUNT})?|\((?:\?:)?|[)|])*+)\$?", re.DOTALL
)
_TOKEN: Final = re.compile(rf"({_ESCAPED})|({_CLASS})|{_COUNT}", re.DOTALL)
_AMBIGUOUS_IN_CLASS: Final = ("--", "&&", "||", "~~")
_SETS: Final = {"d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[ \t\n\r\f\v]"}
"""ASCII, as in the rules for paths."""


class PathRegex(Struct, frozen=True):
    """A compiled pattern."""

    text: str
    _validator: SchemaValidator

    def fullmatch(self, subject: str) -> bool:
        """Return whether the pattern matches a whole path, False if longer than `MAX_SUBJECT`."""
        return len(subject) <= MAX_SUBJECT and self._validator.isinstance_python(subject)


def compile_path_regex(text: str) -> PathRegex:
    """Read a pattern.

    Raises:
        ConfigurationError: it is too long, or has something in it that is not understood.
    """
    if not text or len(text) > _MAX_PATTERN:
        raise ConfigurationError(f"a path pattern has 1 to {_MAX_PATTERN} characters")
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ConfigurationError("path pattern: something in it is not understood")
    inner = _TOKEN.sub(_translated, found[1])
    try:
        # The pattern is compiled alone first: unbalanced brackets could join with those added here.
        re.compile(found[1])
        pattern = rf"\A(?:{inner})\z"
        return PathRegex(text, SchemaValidator(core_schema.str_schema(pattern=pattern)))
    except (SchemaError, re.error):
        raise ConfigurationError("path pattern: something in it is not understood") from None


def _translated(token: re.Match[str]) -> str:
    escape, group, least, most = token.groups()
    if escape is not None:
        return _unescaped(escape)
    if group is not None:
        if any(sign in group for sign in _AMBIGUOUS_IN_CLASS):
            raise ConfigurationError("path pattern: a class must not have --, &&, || or ~~ in it")
        return re.sub(_ESCAPED, lambda inner: _unescaped(inner[0]), group, flags=re.DOTALL)
    if max(int(least), int(most or 0)) > _MAX_COUNT:
        raise ConfigurationError(f"path pattern: a count is from 0 to {_MAX_COUNT}")
    return token[0]


def _unescaped(escape: str) -> str:
    """Return an escape in a form that every engine reads alike."""
    sign = escape[1]
    known = _SETS.get(sign.lower())
    if known is None:
        return rf"\x{{{ord(sign):x}}}"
    return known if sign.islower() else known.replace("[", "[^", 1)


RiskBand: TypeAlias = Literal["SAFE", "LOW", "MEDIUM", "HIGH", "CRITICAL"]
"""SAFE [0, 0.2), LOW [0.2, 0.4], MEDIUM (0.4, 0.7], HIGH (0.7, 0.9], CRITICAL (0.9, 1]."""

SAFE_BANDS: Final[tuple[RiskBand, ...]] = ("SAFE", "LOW")
"""The bands of operations that the engine is meant to approve."""
HIGH_BANDS: Final[tuple[RiskBand, ...]] = ("HIGH", "CRITICAL")
"""The bands that always go to a reviewer; no pattern approves them."""


class ApprovalPattern(Struct, frozen=True, kw_only=True):
    """A row of `approval_patterns`, its expression compiled."""

    name: str
    operation: OperationKind
    scope: PathRegex | None = None
    """The scope as a path pattern. `None` means any scope, which is never an exact match."""
    session_type: SessionType | None = None
    """The type of session. `None` means every known type."""
    risk_level: RiskBand | None = None
    """The operator's estimate; the computed risk of the call counts as well."""
    auto_approve: bool = False

    def knows(
        self, operation: OperationKind, scopes: tuple[str, ...], session_type: SessionType
    ) -> bool:
        """Return whether the pattern covers such calls, approved or not."""
        if operation == "unknown" or operation != self.operation:
            return False
        if self.session_type is not None and self.session_type != session_type:
            return False
        if self.scope is None:
            return not scopes
        return bool(scopes) and all(self.scope.fullmatch(scope) for scope in scopes)

    def approves(
        self, operation: OperationKind, scopes: tuple[str, ...], session_type: SessionType
    ) -> bool:
        """Return whether the pattern matches exactly and is enabled."""
        return (
            self.auto_approve
            and self.scope is not None
            and self.risk_level not in HIGH_BANDS
            and self.knows(operation, scopes, session_type)
        )


# --- the score of a session's place ---------------------------------------------------------------
# The score of a session's place: its directory, branch and variables against the required ones.
#
# The score is the share that the session earns of the points that the requirements are worth.
# Without requirements it earns none.


_DIRECTORY: Final = 100
_PARENT: Final = 50
_CHILD: Final = 25
_VARIABLE: Final = 20
_BRANCH: Final = 30


class WorkContext(WithSecrets, frozen=True, kw_only=True):
    """A place of work: as the operator requires it, or as the proxy found it."""

    hidden: ClassVar[frozenset[str]] = frozenset({"environment"})

    directory: RealPath | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    branch: str | None = None


class ContextScore(Struct, frozen=True):
    """Points earned, of points possible."""

    earned: int = 0
    possible: int = 0

    def exceeds(self, hundredths: int) -> bool:
        """Return whether the score is above so many hundredths, False without requirements."""
        return self.possible > 0 and self.earned * 100 > hundredths * self.possible

    @property
    def hundredths(self) -> int:
        """The score from 0 to 100, rounded down."""
        return self.earned * 100 // self.possible if self.possible > 0 else 0


NO_CONTEXT: Final = ContextScore()
"""The score where nothing is required."""


def context_score(*, required: WorkContext, actual: WorkContext) -> ContextScore:
    """Score the place: directory 100 if exact, 50 above, 25 below, each variable 20, branch 30."""
    earned = possible = 0
    if required.directory is not None:
        possible += _DIRECTORY
        earned += _directory_points(required.directory, actual.directory)
    for name, value in required.environment.items():
        possible += _VARIABLE
        earned += _VARIABLE if actual.environment.get(name) == value else 0
    if required.branch is not None:
        possible += _BRANCH
        earned += _BRANCH if actual.branch == required.branch else 0
    return ContextScore(earned, possible)


def _directory_points(required: RealPath, actual: RealPath | None) -> int:
    if actual is None:
        return 0
    if actual == required:
        return _DIRECTORY
    if required.is_within(actual):
        return _PARENT
    return _CHILD if actual.is_within(required) else 0


SessionHealth: TypeAlias = Literal["well", "normal", "stuck", "failing", "unknown"]
"""The health of a session. `unknown`: the proxy has no record of it."""

Hundredths: TypeAlias = int
"""A score from 0 to 100. Scores are integers, so that sums meet borders such as 0.7 exactly."""


class Interaction(Struct, frozen=True, kw_only=True):
    """One call that the policy or the overlay escalated."""

    id: str
    request: AccessRequest
    arguments: Arguments
    """The arguments to send. Untrusted: their words can only raise the risk."""
    command_operation: str | None = None
    """The operation of a shell command, as parsed, or None if the tool takes no command."""
    command_branches: tuple[str, ...] | None = None
    """The refspecs that this command commits and pushes to, `HEAD` for the current branch; None:
    not known."""
    session: str
    session_type: SessionType
    origins: tuple[Origin, ...]
    """The origins of the escalation. Never empty: the engine decides on escalated calls only."""
    sandboxed: bool = False
    """Whether the server's process is confined."""
    acts_by_itself: bool = False
    """Whether programs act by themselves on a file that the call changes."""
    snapshot: bool = False
    """Whether a point was made, so that the call can be undone."""
    workspace: RealPath | None = None
    home: RealPath | None = None
    found: FilesFound = NOTHING_FOUND
    """What the paths are on the disk. Nothing known: no path outside the workspace is approved."""
    branch: str | None = None
    """The current branch of the repository that the call works in. `None` means not known."""
    context: ContextScore = NO_CONTEXT
    """The score of the session's place against the requirements of its task."""
    provider_mismatch: bool = False
    """The session's model or provider is not the one the operator registered."""
    unusual: bool = False
    """No earlier call did this."""

    @property
    def places(self) -> SessionPlaces:
        """The session's places, for the comparison of paths."""
        return SessionPlaces(workspace=self.workspace, home=self.home, found=self.found)

    @property
    def requester(self) -> Party:
        """The asking session."""
        return Party(session=self.session, session_type=self.session_type)


class ApproveRate(Struct, frozen=True):
    """Decisions of people and reviewers on one operation and scope.

    Decisions of the engine and the auto-approver do not count: the engine would feed itself.
    """

    approved: int
    decided: int

    def exceeds(self, hundredths: Hundredths) -> bool:
        """Return whether there are enough decisions, and the rate is above this."""
        return self.decided > _ENOUGH and self.approved * 100 > hundredths * self.decided


_ENOUGH = 3


class InteractionHistory(Struct, frozen=True, kw_only=True):
    """Recent work in all sessions of this user."""

    operations: Mapping[str, int] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The number of approvals of each operation."""
    directories: frozenset[RealPath] = frozenset()
    """The directories of approved calls."""


class Knowledge(Struct, frozen=True, kw_only=True):
    """The engine's knowledge at the time of a question."""

    moment: datetime
    """Aware, in the operator's own time zone: night is a matter of place."""
    patterns: tuple[ApprovalPattern, ...] = ()
    safe_paths: tuple[SafePath, ...] = ()
    approve_rates: Mapping[tuple[str, str], ApproveRate] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The approve rates by operation and scope, spelled as in `CallSubject`."""
    queue_depth: int = 0
    """Pending reviews of other sessions, which an agent cannot increase for itself."""
    health: SessionHealth = "unknown"
    earlier_failures: int = 0
    """Calls of this session that failed lately."""
    history: InteractionHistory = field(default_factory=InteractionHistory)
    context_similarity: Hundredths = 100
    """The similarity of the call to earlier work."""
    testing: bool = False
    deployment: bool = False
    """The operator said that a testing window, or a deployment, is under way."""
