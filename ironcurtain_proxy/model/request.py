"""The policy's input: an operation turned into facts.

All access to disk, git and parsers happens before one of these values exists.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct, structs

from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.operation import TOOL_CALL, Method
from ironcurtain_proxy.model.origin import Target
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.place import NOWHERE, Place
from ironcurtain_proxy.model.sql import SQL_EFFECTS, SqlEffect


@dataclass(frozen=True, slots=True)
class PathValue:
    """A string that names a file or directory."""

    text: str
    """The path with all links followed, as text."""
    path: RealPath
    link: RealPath | None = field(default=None, compare=False)
    """The location of the path itself, if its last name is a link."""


class UrlValue(Struct, frozen=True):
    """A string that names a URL or a git remote."""

    text: str
    """The URL in its canonical spelling; of a git remote its name as it came."""
    domains: tuple[str, ...]
    """Every `host` or `host/path` that it leads to, never empty. A git remote may have several
    URLs, and all of them must match. A text that is no URL stands here unchanged and matches only
    itself."""
    ordinary: bool = True
    """Whether every URL uses a transport (http, https, ssh, git) that `*` may stand for. For any
    other one, git runs whatever helper is installed under its name."""


class TextValue(Struct, frozen=True):
    """A string without a resource on disk or network: an identifier, an address, a text."""

    text: str
    """Names that ignore case in lower case, everything else as it came."""


@dataclass(frozen=True, slots=True)
class SqlValue:
    """A text of SQL statements, read by a parser."""

    text: str
    effect: SqlEffect
    """The gravest effect of its statements."""
    reason: str = field(default="", compare=False)
    """The reason why the statement does more than read; empty: it only reads."""


Value: TypeAlias = PathValue | UrlValue | SqlValue | TextValue
"""One string of an argument, interpreted by the argument's first resource role."""


_PLACE: Final = re.compile(
    r"[/~$]|\.{1,2}(?:[/\\]|\Z)|\\\\|[A-Za-z]:[/\\]|%[A-Za-z_]+%|(?:file|https?|ftp|data|jar):\S"
    r"|.*(?:://|[/\\]\.\.(?:[/\\]|\Z)|%2[Ff]|%5[Cc]|\x00)",
    re.IGNORECASE | re.DOTALL,
)
"""Text that a server may open: a path of any system, its own way of naming one, or a URL."""


def may_be_a_place(value: Value) -> bool:
    """Whether a text that a server takes for a name looks like a path or a URL."""
    if not isinstance(value, TextValue):
        return True
    return _PLACE.match(value.text.strip()) is not None


class ArgumentFact(Struct, frozen=True):
    """One annotated argument, whether or not the call has it."""

    name: str
    roles: tuple[ArgumentRole, ...]
    values: tuple[Value, ...]
    """The argument's strings, in order; empty if the call lacks it or it holds no string."""


QuestionKind: TypeAlias = Literal["form", "url", "sampling"]
"""The kind of a server's question: a form, a page to open, a text of the agent's model."""


class ServerQuestion(Struct, frozen=True, kw_only=True):
    """A question of a server's own, as far as the policy looks at it."""

    kind: QuestionKind
    asks_for: str = ""
    """The credential that a field asks for, as the field is named; empty: none does."""
    host: str = ""
    """The host of the page that the user is to open, in canonical spelling; empty: no plain https
    URL."""
    tokens: int = 0
    """The most tokens that the model is to answer with."""
    with_tools: bool = False
    """Whether the model is handed tools."""


class AccessRequest(Struct, frozen=True, kw_only=True):
    """The request to the policy: one operation, and the resources that its arguments name."""

    passing: ClassVar[frozenset[str]] = frozenset({"targets"})
    """The fields that change by themselves, such as a day of the week; see `lasting`."""

    server: str
    """The server's name in policy and annotations."""
    tool: str
    annotated: bool
    has_arguments: bool
    """Whether the call has any argument."""
    undescribed: tuple[str, ...] = ()
    """The arguments of the call that the annotation of its tool lacks. `annotated` is then false.
    """
    arguments: tuple[ArgumentFact, ...]
    """In annotation order, which decides the order of roles and so which of two equal answers wins.
    """
    repository: RealPath | None = None
    """The root of the git repository that the call works in; None: the server is no git server."""
    effect: ToolEffect | None = None
    """The operator's word on what the tool does; None: no word."""
    method: Method = TOOL_CALL
    question: ServerQuestion | None = None
    """The server's question to the user, if the operation is one."""
    targets: tuple[Target, ...] = ()
    """The values with their origins, where the policy asks for them. A result that comes while the
    call waits may name more."""


def sql_of(request: AccessRequest) -> SqlValue | None:
    """The gravest SQL text of a call; None: it has none."""
    found = [v for fact in request.arguments for v in fact.values if isinstance(v, SqlValue)]
    return max(found, key=lambda value: SQL_EFFECTS.index(value.effect), default=None)


def effect_word(request: AccessRequest) -> str:
    """The effect of a call for reviewers: of its SQL, or of its tool; empty: not known."""
    sql = sql_of(request)
    if sql is not None:
        return "destroys" if sql.effect == "runs" else sql.effect
    return request.effect or ""


class FoundSecret(Struct, frozen=True):
    """A secret in what would be sent to a server. The secret itself stands nowhere."""

    argument: str
    """The name of the argument, made visible."""
    kind: str
    """In a few words: `private key`, `key of a provider`."""


class Facts(Struct, frozen=True, kw_only=True):
    """All facts about a call before it is judged."""

    passing: ClassVar[frozenset[str]] = frozenset({"hints"})
    """As in `AccessRequest`. An approval is bound to the tool's definition, which has the hints."""

    request: AccessRequest
    arguments: Arguments
    """The arguments as they would be sent: paths normalised and absolute, all others as they came.
    """
    repository: RealPath | None = None
    """The directory that all worktrees of the git repository share, for calls of a git server."""
    branch: str | None = None
    """The checked-out branch of that repository; None: not known."""
    pushes: bool = False
    """Whether the call sends to a git remote. The repository must not change meanwhile."""
    context: tuple[tuple[str, str], ...] = ()
    """Additional facts for a reviewer, such as `("Working directory", "/srv/repo")`."""
    hints: Mapping[str, Json] | None = None
    """The server's own `annotations` of the tool: untrusted."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, where the operator declared one."""
    place: Place = NOWHERE
    """The place where that command runs."""
    secrets: tuple[FoundSecret, ...] = ()
    """The secrets in the arguments, where the operator wants to be asked about them."""
    client_asks: bool = False
    """Whether the agent's client is about to ask its user about the call, so that somebody of ours
    has to approve it in place of that user."""


class Unresolvable(Struct, frozen=True, kw_only=True):
    """Arguments that cannot be turned into facts. The call is denied on this ground."""

    ground: Ground


Gathered: TypeAlias = Facts | Unresolvable
"""The result of gathering facts."""

_Marked = TypeVar("_Marked", AccessRequest, Facts)


def lasting(facts: Facts) -> Facts:
    """Return facts without those that change by themselves while a call waits for its answer.

    A question is made of these, so no reviewer's answer rests on the others. The policy's answer
    may: it is asked again with the facts of the moment, and has to answer the same.

        lasting(Facts(hints={"readOnlyHint": True}, …)) == Facts(hints=None, …)
    """
    return structs.replace(_without_passing(facts), request=_without_passing(facts.request))


def _without_passing(value: _Marked) -> _Marked:
    if not value.passing:
        return value
    defaults = {one.name: one.default for one in structs.fields(value)}
    return structs.replace(value, **{name: defaults[name] for name in value.passing})
