"""The policy's input: a call turned into facts.

All access to disk, git and parsers happens before one of these values exists.
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
    """The path with all links followed, as text."""
    path: RealPath
    link: RealPath | None = field(default=None, compare=False)
    """The location of the path itself, if its last name is a link."""


@dataclass(frozen=True, slots=True)
class UrlValue:
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


@dataclass(frozen=True, slots=True)
class TextValue:
    """A string without a resource on disk or network: an identifier, an address, a text."""

    text: str
    """Identifiers in lower case, everything else as it came."""


Value: TypeAlias = PathValue | UrlValue | TextValue
"""One string of an argument, interpreted by the argument's first resource role."""


@dataclass(frozen=True, slots=True)
class ArgumentFact:
    """One annotated argument, whether or not the call has it."""

    name: str
    roles: tuple[ArgumentRole, ...]
    values: tuple[Value, ...]
    """The argument's strings, in order; empty if the call lacks it or it holds no string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """The request to the policy: one tool, and the resources that its arguments name."""

    server: str
    """The server's name in policy and annotations."""
    tool: str
    annotated: bool
    has_arguments: bool
    """Whether the call has any argument."""
    arguments: tuple[ArgumentFact, ...]
    """In annotation order, which decides the order of roles and so which of two equal answers wins.
    """
    repository: RealPath | None = None
    """The root of the git repository that the call works in; None: the server is no git server."""
    effect: ToolEffect | None = None
    """The operator's word on what the tool does; None: no word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that is known about a call before it is judged."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolvable:
    """Arguments that cannot be turned into facts. The call is denied on this ground."""

    ground: Ground


Gathered: TypeAlias = Facts | Unresolvable
"""The result of gathering facts."""
