"""The arguments of a call, each read by its role in the tool's annotation.

The proxy and the server must read the same path. So a text that two readers could take for two
different paths is refused, and the judged spelling is sent: `~`, the container's name for the
workspace, `file:` URLs, blanks and look-alikes are handled as text here, links elsewhere. URLs and
git remotes get one spelling, too, by the WHATWG standard; names of remotes stay unchanged.

The tools of a git server take `path` as optional once a directory was set; the policy must see
which one it will be, so the working directory of earlier calls is written into the call before it
is judged.
"""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from msgspec import Struct, field

from ironcurtain_proxy.model.annotation import (
    IGNORES_CASE,
    ROLE_TRAITS,
    ArgumentRole,
    RoleCategory,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.request import ArgumentFact
from ironcurtain_proxy.model.values import Arguments, Json, lazy

if TYPE_CHECKING:
    import can_ada

# --- spelling


# Characters that a normalising reader turns into "/", "." or ".." (NFKC), and three that only look
# like a slash. A test holds the first group to the Unicode tables.
LOOK_ALIKES: Final = frozenset(
    "\u2024\u2025\ufe30\ufe52\uff0e\u2100\u2101\u2105\u2106\uff0f\u2044\u2215\u29f8"
)

_FILE_URL: Final = lazy(r"file:", re.IGNORECASE)
_BAD_ESCAPE: Final = lazy(r"%(?![0-9A-Fa-f]{2})|%2f|%5c|%00", re.IGNORECASE)


class Refusal(Struct, frozen=True):
    """The reason why a value is refused: one clause, without the value itself."""

    reason: str


_INVISIBLE: Final = frozenset({"Zs", "Zl", "Zp", "Cf"})
"""Unicode categories of blanks, line ends and marks without a shape."""
_BLANK_EDGE: Final = Refusal("begins or ends with a blank or an invisible character")


class Speller(Struct, frozen=True, kw_only=True):
    """The meaning of relative, aliased and abbreviated paths."""

    home: str
    """The meaning of `~`, or empty if there is none."""
    workspace: str | None
    """Absolute; the base of relative paths."""
    cwd: str | None
    """The directory that relative paths without a workspace, and `~name`, start from; None: they
    are refused, because the server behind the proxy has a working directory of its own."""
    alias: str | None = None
    """Another name for the workspace, such as `/workspace`."""

    def spell(self, text: str) -> str | Refusal:
        """Give the absolute spelling: no `.`, `..`, `//` or trailing slash, links untouched."""
        refusal = _unclear(text)
        if refusal is not None:
            return refusal
        if _FILE_URL.match(text):
            decoded = _path_of_file_url(text)
            if isinstance(decoded, Refusal):
                return decoded
            text = decoded
        absolute = self._absolute(text)
        if isinstance(absolute, Refusal):
            return absolute
        spelled = posixpath.normpath(absolute)
        # POSIX lets exactly two leading slashes mean something else; Linux does not.
        return spelled[1:] if spelled.startswith("//") else spelled

    def _absolute(self, text: str) -> str | Refusal:
        if text.startswith("/"):
            return self._without_alias(text)
        if text == "~" or text.startswith("~/"):
            base, text = self.home or None, text[2:]
        elif text.startswith("~"):
            base = self.cwd
        else:
            base = self.cwd if self.workspace is None else self.workspace
        if base is None:
            return Refusal("stands for no certain directory; write the absolute path")
        return f"{base}/{text}"

    def _without_alias(self, text: str) -> str:
        alias = self.alias
        if alias is None or self.workspace is None or not text.startswith(alias):
            return text
        rest = text[len(alias) :]
        return self.workspace + rest if not rest or rest.startswith("/") else text


def is_file_url(value: Json) -> bool:
    """Return whether a value is a URL of a file, in any spelling of its scheme."""
    return isinstance(value, str) and _FILE_URL.match(value) is not None


def _unclear(text: str) -> Refusal | None:
    if text.isascii() and text.isprintable():
        return _BLANK_EDGE if text[:1] == " " or text[-1:] == " " else None
    categories = {unicodedata.category(character) for character in text}
    edges = {unicodedata.category(text[0]), unicodedata.category(text[-1])}
    found: Refusal | None = None
    if not LOOK_ALIKES.isdisjoint(text):
        found = Refusal('holds a character that can be taken for "/" or "."')
    if not edges.isdisjoint(_INVISIBLE):
        found = _BLANK_EDGE
    if "Cs" in categories:
        found = Refusal("is not valid Unicode text")
    if "Cc" in categories:
        found = Refusal("holds a control character")
    return found


def _path_of_file_url(url: str) -> str | Refusal:
    """Decode a `file:` URL. WHATWG and RFC 8089 must agree on it, or it is refused."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in {"", "localhost"}:
            return Refusal("is a file: URL on another host")
        rest = slash + path
    if not rest.startswith("/") or "?" in rest or "#" in rest or "\\" in rest:
        return Refusal("is a file: URL that is not plainly an absolute path")
    if _BAD_ESCAPE.search(rest):
        return Refusal("is a file: URL with an escape that can be read in two ways")
    try:
        path = unquote_to_bytes(rest).decode()
    except UnicodeDecodeError:
        return Refusal("is a file: URL whose escapes are not UTF-8")
    return _unclear(path) or path


# --- arguments


ArgumentReading: TypeAlias = Literal[
    "path", "url", "git-remote", "uri", "identifier", "sql", "text", "anything", "deep"
]
"""The reading of an argument's strings. `text`: unchanged. `anything`: unchanged, and other values
beside them are ignored. `deep`: each by its place in the argument, or by its form; see
`facts.deep`."""

WORKING_DIRECTORY_ARGUMENTS: Final = (
    *("cwd", "workdir", "workDir", "working_dir", "workingDir"),
    *("working_directory", "workingDirectory", "directory"),
)
"""Arguments that name the directory of a command."""

NOT_A_STRING: Final = Refusal("must be a string or a list of strings, all the way down")


class PlannedArgument(Struct, frozen=True):
    """One annotated argument, with the reading that its roles ask for."""

    name: str
    roles: tuple[ArgumentRole, ...]
    reading: ArgumentReading
    absent: tuple[ArgumentFact, ...]
    """The facts of a call without the argument, made once."""
    spec: RoleSpec
    """The specification of the roles."""
    is_plain: bool
    """Whether a text is its own value, and is sent unchanged."""


class ToolPlan(Struct, frozen=True):
    """The reading of one tool's arguments."""

    annotation: ToolAnnotation
    is_git: bool
    """Whether the tool's server works on a git repository."""
    fixed: tuple[PlannedArgument, ...] | None
    """The arguments in annotation order; None: a role depends on another argument."""
    specs: tuple[tuple[str, RoleSpec], ...]
    command: str | None
    """The argument that holds a shell command by the annotation; the first of several. Beside
    another text a command is not read: see `facts.commands`."""
    looked_up: tuple[PlannedArgument, ...] | None
    """The arguments of `fixed` that need the disk, git or a parser."""
    names_directory: bool
    """Whether an argument is the directory of a command."""

    def by_values(self, arguments: Arguments) -> tuple[PlannedArgument, ...]:
        """Return what stands for `fixed` where a role depends on another argument.

        Conditions look at the arguments as the agent sent them.
        """
        return tuple([_planned(name, spec, spec.roles(arguments)) for name, spec in self.specs])

    def looked_up_by_values(self, arguments: Arguments) -> tuple[PlannedArgument, ...]:
        """Return what stands for `looked_up` there."""
        return _looked_up(self.by_values(arguments))


_GIT_SERVER: Final = "git"
"""The server, as the policy names it, whose calls work on a git repository."""


def plan_for(annotation: ToolAnnotation) -> ToolPlan:
    """Compute the plan that all calls of the tool share."""
    specs = tuple(annotation.arguments.items())
    conditional = any(spec.cases for _, spec in specs)
    fixed = None
    if not conditional:
        fixed = tuple([_planned(name, spec, spec.default) for name, spec in specs])
    return ToolPlan(
        annotation=annotation,
        is_git=annotation.server == _GIT_SERVER,
        fixed=fixed,
        specs=specs,
        command=next((name for name, spec in specs if "command" in spec.every_role()), None),
        looked_up=None if fixed is None else _looked_up(fixed),
        names_directory=any(name in WORKING_DIRECTORY_ARGUMENTS for name, _ in specs),
    )


def _looked_up(arguments: tuple[PlannedArgument, ...]) -> tuple[PlannedArgument, ...]:
    return tuple([one for one in arguments if one.reading in _LOOKED_UP])


_LOOKED_UP: Final[frozenset[ArgumentReading]] = frozenset(
    {"path", "url", "git-remote", "sql", "deep"}
)
_PLAIN_READINGS: Final[frozenset[ArgumentReading]] = frozenset(
    {"uri", "identifier", "text", "anything"}
)


_READINGS: Final[Mapping[RoleCategory, ArgumentReading]] = {
    "path": "path",
    "url": "url",
    "uri": "uri",
    "identifier": "identifier",
    "sql": "sql",
    "command": "text",
}


def reading_of(roles: tuple[ArgumentRole, ...]) -> ArgumentReading:
    """Return the reading of an argument: its first role that names a resource decides."""
    if "unclear" in roles:
        return "deep"
    for role in roles:
        if role == "git-remote-url":
            return "git-remote"
        reading = _READINGS.get(ROLE_TRAITS[role].category)
        if reading is not None:
            return reading
    return "anything" if all(role == "none" for role in roles) else "text"


def strings_of(value: Json, reading: ArgumentReading) -> tuple[str, ...] | Refusal:
    """Return the strings of an argument, in order: itself, or the items of a list.

    An item that is no string could name anything and would be sent all the same. A top-level
    value that is no string names nothing to the rules; `is_no_text` finds those that are refused.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        return ()
    strings = tuple([item for item in value if isinstance(item, str)])
    if len(strings) == len(value) or reading == "anything":
        return strings
    # A list of objects in an opaque role names nothing that a rule could have allowed; but next to
    # strings that a rule allowed, it would ride along.
    if reading == "text" and not strings:
        return ()
    return NOT_A_STRING


def is_no_text(value: Json, reading: ArgumentReading) -> bool:
    """Return whether a value is given in the place of a text, and is no text.

    Servers convert it: an object in the place of a path or a name could hold any, and a number in
    the place of a path is a file. A schema need not refuse it. A switch is neither.
    """
    if isinstance(value, dict):
        return reading not in {"text", "anything", "deep"}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and reading in {"path", "url", "uri", "sql"}


def _planned(name: str, spec: RoleSpec, roles: tuple[ArgumentRole, ...]) -> PlannedArgument:
    reading = "deep" if spec.inside else reading_of(roles)
    # Omitted members count, because the server may fill them in.
    every = dict.fromkeys([roles, *_roles_inside(spec)])
    absent = tuple([ArgumentFact(name, one, ()) for one in every])
    folded = reading == "identifier" and not IGNORES_CASE.isdisjoint(roles)
    return PlannedArgument(
        name, roles, reading, absent, spec, is_plain=reading in _PLAIN_READINGS and not folded
    )


def _roles_inside(spec: RoleSpec) -> list[tuple[ArgumentRole, ...]]:
    return [
        roles for inner in spec.inside.values() for roles in (inner.default, *_roles_inside(inner))
    ]


# --- prompts and resources


ViewFinder: TypeAlias = Callable[[str, str], bool]
"""Whether a listed tool of a server declares this `ui://` resource as its view."""


def no_view(_server: str, _uri: str) -> bool:
    """Return an empty set, where no tool declares a view."""
    return False


class OperationSource(Struct, frozen=True, kw_only=True):
    """The knowledge about prompts and servers."""

    prompts: Mapping[tuple[str, str], ToolAnnotation] = field(default_factory=dict)
    """The prompts by the server's name in the policy and the prompt's name."""
    policy_server: Callable[[str], str | None] = lambda server: server
    """The name of a server in policy and annotations, or None if there is no such server."""


# --- context


NO_WORKING_DIRECTORY: Final = (
    "Git server has no working directory set. Call git_set_working_dir first."
)

SETS_DIRECTORY: Final[Mapping[str, str]] = {
    "git_set_working_dir": "path",
    "git_clone": "localPath",
}
"""Tools after which their server works in another directory, by the argument that names it."""

_SHOWN_AS: Final = "Working directory"


class ServerContexts:
    """The working directory of each server of one session."""

    def __init__(self) -> None:
        """Begin without directories."""
        self.directories: dict[str, str] = {}

    def note(self, server: str, tool: str, arguments: Arguments) -> None:
        """Note a call that was carried out, with the sent arguments."""
        argument = SETS_DIRECTORY.get(tool)
        directory = arguments.get(argument) if argument is not None else None
        if isinstance(directory, str) and directory.startswith("/"):
            self.directories[server] = directory

    def of(self, server: str) -> tuple[tuple[str, str], ...]:
        """Return the server's context for a reviewer."""
        directory = self.directories.get(server)
        return () if directory is None else ((_SHOWN_AS, directory),)

    def completed(self, server: str, arguments: Arguments) -> Arguments | None:
        """Return the arguments with the working directory as their `path`.

        It is None if none is known.
        """
        directory = self.directories.get(server)
        return None if directory is None else {**arguments, "path": directory}


def lacks_path(annotation: ToolAnnotation, arguments: Arguments) -> bool:
    """Return whether the tool takes a `path` and the call has no usable one."""
    if "path" not in annotation.arguments:
        return False
    path = arguments.get("path")
    return not isinstance(path, str) or not path.strip()


# --- urls


_SCP_REMOTE: Final = lazy(r"(?:[\w.+-]+@)?([^:]+):", re.ASCII)
_ORDINARY: Final = ("https://", "http://", "ssh://", "git://")
_EXPLICIT_SCP: Final = lazy(r"[\w.+-]+@[^:]+:", re.ASCII)

# URLs that every parser reads alike: "//", one "@" at most, no escapes in the host. A word without
# a scheme is no URL.
_PLAIN_URL: Final = lazy(
    r"[A-Za-z0-9._~/-]*|"
    r"[A-Za-z][A-Za-z0-9+.-]*://"
    r"(?:[A-Za-z0-9._~!$&'()*+,;=:%-]*@)?"
    r"(?:([\w.-]*)|\[[0-9A-Fa-f:.]+\])"
    r"(?::[0-9]*)?"
    r"(?:[/?#][^\x00-\x1f\x7f]*)?"
)


def canonical_url(text: str) -> tuple[str, str]:
    """Return the canonical spelling of a URL and its host.

    A path of `/` and one trailing slash are dropped. Any other text is returned twice, unchanged.
    """
    try:
        url = _parse(text)
    except ValueError:
        return text, text
    href = url.href
    if "/" in (href[-1:], href[-2:-1]) or "/?" in href or "/#" in href:
        if url.pathname == "/":
            url.pathname = ""
            href = url.href
        href = href.removesuffix("/")
    return href, url.hostname


def canonical_git_url(text: str) -> str:
    """Spell a git remote canonically: `user@host:path` and names stay as they are."""
    return text if "://" not in text and _SCP_REMOTE.match(text) else canonical_url(text)[0]


def git_domain(text: str) -> str:
    """`host/path` of a git remote in canonical spelling, or the host if it has no path.

    `git@github.com:acme/x.git` is `github.com/acme/x`. What is neither URL nor `host:path` is given
    back as it is.
    """
    if "://" not in text:
        scp = _SCP_REMOTE.match(text)
        if scp is not None:
            return _join(scp[1], text[scp.end() :])
    try:
        url = _parse(text)
    except ValueError:
        return text
    return _join(url.hostname, url.pathname)


def is_ordinary(spelled: str) -> bool:
    """Return whether a canonical URL is of a transport that has just one meaning everywhere."""
    return spelled.startswith(_ORDINARY)


def is_ordinary_remote(spelled: str) -> bool:
    """Return whether a git remote is ordinary: `user@host:path` is, `helper::address` is not."""
    if "://" in spelled or "::" in spelled:
        return is_ordinary(spelled)
    return _SCP_REMOTE.match(spelled) is not None


def is_explicit_remote(text: str) -> bool:
    """Return whether it is a URL or `user@host:path`, so that it is no remote's name."""
    return "://" in text or _EXPLICIT_SCP.match(text) is not None


def is_unambiguous(text: str) -> bool:
    r"""Return whether every parser of URLs finds the same host.

    A URL is sent unchanged, and the server's parser may not follow WHATWG:
    `https://good.example\@evil.example/` has two hosts, depending on who reads it. So has a host in
    other letters, where the older and the newer rules for them differ (`faß.example`).
    """
    match = _PLAIN_URL.fullmatch(text)
    if match is None:
        return False
    host = match[1]
    if not host or host.isascii():
        return True
    try:
        return host.encode("idna").decode() == _parse(text).hostname
    except ValueError:
        return False


def _parse(text: str) -> "can_ada.URL":
    """Read a URL.

    Raises:
        ValueError: it is none, or holds a lone surrogate.
    """
    text.encode()  # the parser takes a lone surrogate for a value of the wrong type
    import can_ada  # noqa: PLC0415  a start reads no URL

    return can_ada.parse(text)


def _join(host: str, path: str) -> str:
    path = path.removeprefix("/").removesuffix("/").removesuffix(".git")
    return f"{host}/{path}" if path else host
