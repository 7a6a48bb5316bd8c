"""The built-in tools of agents' clients, as calls of equivalent servers.

The one table for calls that arrive at a client's hook and for recorded calls. Names of tools are
those of Claude Code; the names of other clients are translated to them first.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct, ValidationError, convert

from ironcurtain_proxy.model.server import SHELL, ServerSpec
from ironcurtain_proxy.model.values import Arguments, Json, list_of, word_list

FILES: Final = "filesystem"
FETCH: Final = "fetch"
TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    FILES: word_list("read_text_file search_files list_directory write_file edit_file move_file"),
    FETCH: ("fetch",),
    SHELL: ("run_command",),
}
"""The equivalent servers, each with its tools."""
SHELL_TOOL: Final[Mapping[str, Json]] = {
    "name": "run_command",
    "description": "Run a command in a shell and return its output.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line to run."},
            "cwd": {"type": "string", "description": "Directory to run it in."},
        },
        "required": ["command"],
    },
}


def client_servers(workspace: str | None) -> tuple[ServerSpec, ...]:
    """Return the equivalent servers of a client's own tools, which nobody starts."""
    return tuple([
        ServerSpec(name=name, annotations=name, command="true", cwd=workspace, sandbox=False)
        for name in TOOLS
    ])  # fmt: skip


_URL: Final = re.compile(r"https?://[\w.-]+(?::\d+)?(?:[/?#][^\s\\\ufeff]*)?", re.IGNORECASE)
"""A whole address. In one that has more, such as `https://a)@b`, clients find another host, and
some begin another one behind a byte order mark."""
_WILD: Final = re.compile(r"[*?\[{]")
_NAMING: Final = re.compile(
    r"[\s\ufeff]*\*\*\*[\s\ufeff]*((add|update|delete)\s*file|move\s*to)\b", re.IGNORECASE
)
"""The lines of a patch that some client may take for one with the name of a file: each ignores
other characters before it, behind the colon, and at the end."""
_PATCHED: Final = re.compile(
    r"[ \t]*\*\*\* (?:(Add|Update|Delete) File|(Move) to): "
    r"([^\s\ufeff:](?:[^:]*[^\s\ufeff:])?)[ \t\r]*"
)
"""Those that all clients read alike."""
_PATCH_TOOLS: Final = {"Add": "Write", "Update": "Edit", "Delete": "Delete", "Move": "Write"}


class ServerCall(Struct, frozen=True):
    """A call for a server."""

    server: str
    tool: str
    arguments: Arguments


EquivalentCall: TypeAlias = ServerCall | Literal["none", "broken"]
"""`none`: no server has such a tool. `broken`: the arguments are not those of the tool."""


class _Edit(Struct, frozen=True):
    old_string: str = "a"
    """Transcripts of some clients hold the path alone."""
    new_string: str = "b"
    new_source: str = ""

    def shown(self) -> Json:
        return {"oldText": self.old_string, "newText": self.new_source or self.new_string}


class _Given(_Edit, frozen=True):
    """The arguments of all tools of the table. One of another type is not understood."""

    command: str | None = None
    cwd: str | None = None
    url: str | None = None
    path: str | None = None
    pattern: str | None = None
    file_path: str | None = None
    notebook_path: str | None = None
    content: str = ""
    edits: list[_Edit] = []


def as_server_call(tool: str, given: Arguments, here: str) -> EquivalentCall:
    """Return the equivalent call of a server.

    Args:
        tool: the client's name of its tool.
        given: the arguments as the client has them.
        here: the directory of the call, absolute.
    """
    try:
        return _judged(tool, convert(given, _Given), here)
    except ValidationError:
        return "none" if _judged(tool, _Given(), here) == "none" else "broken"


def _judged(tool: str, asked: _Given, here: str) -> EquivalentCall:
    match tool:
        case "Bash" if asked.command is not None:
            cwd = _absolute(asked.cwd or here, here)
            return ServerCall(SHELL, "run_command", {"command": asked.command, "cwd": cwd})
        case "WebFetch" if found := _URL.fullmatch((asked.url or "").strip()):
            return ServerCall(FETCH, "fetch", {"url": found[0]})
        case "Bash" | "WebFetch":
            return "broken"
        case "Grep" | "Glob" | "LS":
            sought = (asked.pattern or "") if tool == "Glob" else ""
            place = _searched(sought, _absolute(asked.path or here, here))
            name = "list_directory" if tool == "LS" else "search_files"
            pattern: dict[str, Json] = {} if tool == "LS" else {"pattern": "*"}
            return ServerCall(FILES, name, {"path": place, **pattern})
        case "Read" | "Write" | "Edit" | "MultiEdit" | "NotebookEdit" | "NotebookRead" | "Delete":
            return _file(tool, asked, here)
        case _:
            return "none"


def _file(tool: str, asked: _Given, here: str) -> EquivalentCall:
    path, *others = {asked.file_path, asked.notebook_path} - {None} or {None}
    if not path or others:
        return "broken"
    place = _absolute(path, here)
    match tool:
        case "Read" | "NotebookRead":
            return ServerCall(FILES, "read_text_file", {"path": place})
        case "Write":
            return ServerCall(FILES, "write_file", {"path": place, "content": asked.content})
        case "Delete":
            # No server of a preset deletes files: moving one away is the nearest.
            gone = {"source": place, "destination": f"{place}.deleted"}
            return ServerCall(FILES, "move_file", gone)
        case _:
            edits = [one.shown() for one in asked.edits or [asked]]
            return ServerCall(FILES, "edit_file", {"path": place, "edits": edits})


def _searched(pattern: str, place: str) -> str:
    """Return the directory of a search: a pattern may lead out of the one that is named."""
    fixed = _WILD.split(pattern, maxsplit=1)[0]
    if not pattern.startswith(("/", "~")) and ".." not in pattern.split("/"):
        return place
    return posixpath.normpath(_absolute(posixpath.dirname(fixed) or "/", place))


def _absolute(path: str, here: str) -> str:
    return path if path == "~" or path.startswith(("/", "~/")) else posixpath.join(here, path)


ClientCalls: TypeAlias = tuple[tuple[str, Arguments], ...]
"""Calls by the names of the table, each with its arguments."""


def of_patch(text: Json) -> ClientCalls:
    """Return the calls of a patch, one for each file; none if it names none, or not plainly."""
    if not isinstance(text, str):
        return ()
    named = [one for one in text.split("\n") if _NAMING.match(one)]
    found = [_PATCHED.fullmatch(one) for one in named]
    # Some also end a line at other characters.
    if len(named) != sum(_NAMING.match(one) is not None for one in text.splitlines()):
        return ()
    calls = [
        (_PATCH_TOOLS[one[1] or one[2]], {"file_path": one[3]}) for one in found if one is not None
    ]
    return tuple(calls) if len(calls) == len(found) else ()


class ClientTools(Struct, frozen=True, kw_only=True):
    """The tools of one client by their own names, and the names of their arguments."""

    client: str
    names: Mapping[str, str]
    """The names in the common table. `Patch` is a patch with several files."""
    paths: tuple[str, ...]
    """The arguments that name a place. If a call has several, they must be equal: which of two the
    tool would take is not known."""
    directories: tuple[str, ...] = ()
    """Those that say where a command runs."""
    places: str = ""
    """The argument of a search with a list of places."""
    texts: Mapping[str, str] = {}
    """The client's names of arguments, each with that in the common table."""
    patches: tuple[str, ...] = ()
    """The arguments that may hold a patch."""
    addresses: tuple[str, ...] = ()
    """The arguments beside `url` in which each address is fetched that has words around it."""

    def calls(self, name: str, given: Arguments) -> ClientCalls:
        """Return the calls of a tool: one, or one for each file, place or page."""
        tool = self.names.get(name)
        is_clear, path = _one_of(given, self.directories if tool == "Bash" else self.paths)
        named = {common: given[own] for own, common in self.texts.items() if own in given}
        match tool:
            case None:
                # A name of the common table that is no tool of this client is not known here.
                return ((f"{self.client} {name}", given),)
            case "Bash":
                where = {} if path is None else {"cwd": path}
                return ((tool, {"command": given.get("command") if is_clear else None, **where}),)
            case "Patch":
                texts = [given[key] for key in self.patches if key in given]
                return of_patch(texts[0] if len(texts) == 1 else None) or (("Edit", {}),)
            case "WebFetch":
                said = [word for key in self.addresses for word in str(given.get(key, "")).split()]
                urls: list[Json] = [given["url"]] if "url" in given else []
                urls += [word for word in said if "://" in word]
                return tuple([(tool, {"url": one}) for one in urls]) or ((tool, {}),)
            case "Glob" | "Grep" | "LS":
                _, several = _one_of(given, (self.places,))
                more = list_of(several) or [several]
                places: list[Json] = [one for one in (*more, path) if one is not None] or [None]
                return tuple([(tool, {**named, "path": one if is_clear else 0}) for one in places])
            case _:
                return ((tool, {**named, "file_path": path}),)


def _one_of(given: Arguments, names: tuple[str, ...]) -> tuple[bool, Json]:
    """Return whether not more than one place is named, and that place."""
    found = [given[name] for name in names if given.get(name) not in (None, "")]
    is_clear = not found or found.count(found[0]) == len(found)
    return is_clear, found[0] if found and is_clear else None
