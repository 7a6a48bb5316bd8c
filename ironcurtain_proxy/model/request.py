"""What the policy is asked about: a call turned into facts.

Everything that needs the disk, git or a parser has happened before one of these exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.command import ParsedCommand
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.json import Arguments, Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.place import NOWHERE, Place


@dataclass(frozen=True, slots=True)
class PathValue:
    """A string that names a file or directory."""

    text: str
    """The real path as text."""
    path: RealPath
    link: RealPath | None = field(default=None, compare=False)
    """Where the path itself lies, if its last name is a link."""


@dataclass(frozen=True, slots=True)
class UrlValue:
    """A string that names a URL or a git remote."""

    text: str
    """The URL in its canonical spelling, or the name of a remote as it came."""
    domains: tuple[str, ...]
    """Every `host` or `host/path` it leads to, never empty: a git remote may have several URLs, and
    all of them must match. What could not be read as a URL stands here as it is, matching nothing
    but itself.
    """
    ordinary: bool = True
    """Whether every URL is of a transport (http, https, ssh, git) for which `*` may stand. With
    another one, git runs whatever helper is installed under its name.
    """


@dataclass(frozen=True, slots=True)
class TextValue:
    """A string that names nothing on the disk or the network: an identifier, an address, a text."""

    text: str
    """Identifiers in lower case, everything else as it came."""


Value: TypeAlias = PathValue | UrlValue | TextValue
"""One string of an argument, read by the argument's first resource role."""


@dataclass(frozen=True, slots=True)
class ArgumentFact:
    """One annotated argument, whether the call has it or not."""

    name: str
    roles: tuple[ArgumentRole, ...]
    values: tuple[Value, ...]
    """Its strings, in order; empty if the call does not have it or it holds no string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """May this session use this tool on these resources?"""

    server: str
    """The name policy and annotations know the server by."""
    tool: str
    annotated: bool
    has_arguments: bool
    """Whether the call carried any argument at all."""
    arguments: tuple[ArgumentFact, ...]
    """In annotation order: it decides the order of roles, and so who wins a tie."""
    repository: RealPath | None = None
    """The root of the git repository that the call works in, if it is one of a git server."""
    effect: ToolEffect | None = None
    """What the operator says that the tool does; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that gathering found out about a call."""

    request: AccessRequest
    arguments: Arguments
    """What would be sent: paths in their normalised absolute spelling, the rest as it came."""
    repository: RealPath | None = None
    """What all worktrees share of the git repository, if the call is one of a git server."""
    branch: str | None = None
    """The branch that repository is on, if that is known."""
    pushes: bool = False
    """Whether the call sends to a git remote: nothing may change the repository meanwhile."""
    context: tuple[tuple[str, str], ...] = ()
    """What a reviewer should know besides, such as `("Working directory", "/srv/repo")`."""
    hints: Mapping[str, Json] | None = None
    """The server's own `annotations` of the tool: untrusted."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, where the operator says that there is one."""
    place: Place = NOWHERE
    """Where that command runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolvable:
    """The arguments cannot be turned into facts: denied, on this ground."""

    ground: Ground


Gathered: TypeAlias = Facts | Unresolvable
"""What the information room answers."""
