"""The proposal for a tool, and the words that indicate it.

The proposal for a tool: the roles of its arguments, its effect, and its kind.

Words in names and descriptions that indicate a tool's arguments and effects.

The argument of a tool that holds a shell command, recognised by schema and description.

Only a command for the local shell counts. A text for another interpreter or another machine
would be judged by its meaning here, so a tool that runs such a text is `unknown`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ironcurtain_proxy.model.annotation import Roles, ToolEffect
from ironcurtain_proxy.model.values import Json, words

# --- proposal


LOCAL_PATHS: Final = frozenset(
    {"read-path", "write-path", "delete-path", "write-history", "delete-history"}
)
LOCAL_ROLES: Final = LOCAL_PATHS | {"command"}
"""Roles that name something of this machine, and nothing of a server on another one."""

LikelyMeaning: TypeAlias = Literal["", "path", "option"]
"""The probable meaning of a text; empty: none is more probable than others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The roles of one argument, or of one member of an object in it."""

    roles: Roles
    certain: bool = True
    """Whether the roles are certain; False: several are possible, and these are the most careful.
    """
    why: str = ""
    """The evidence, in a few words."""
    likely: LikelyMeaning = ""
    """The probable meaning of an unclear text. `init` relies on it; the roles do not."""
    inside: Mapping[str, "Proposed"] = field(default_factory=dict)
    """The members of an object, or of objects in a list. `roles` are for all other members."""

    def as_json(self) -> Json:
        """Return the entry in `tool-annotations.json`."""
        inside: dict[str, Json] = {name: one.as_json() for name, one in self.inside.items()}
        if all(one == [*self.roles] == ["none"] for one in inside.values()):
            return [*self.roles]
        return {"default": [*self.roles], "inside": inside}

    def elsewhere(self) -> "Proposed":
        """The proposal for a server on another machine: no role names a path or a command."""
        inside = {name: one.elsewhere() for name, one in self.inside.items()}
        if LOCAL_ROLES.isdisjoint(self.roles):
            return replace(self, inside=inside)
        why = "the server runs on another machine"
        return Proposed(roles=("unclear",), certain=False, why=why, inside=inside)

    def each(self, name: str) -> Iterator[tuple[str, "Proposed"]]:
        """The proposals for an argument and all its members, by name: `files`, `files.path`."""
        yield name, self
        for member, one in self.inside.items():
            yield from one.each(f"{name}.{member}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedTool:
    """A tool with the roles of its arguments and its effect."""

    name: str
    arguments: Mapping[str, Proposed]
    effect: ToolEffect | None
    """The effect, or None if it is not known, so containment never settles a call."""
    why: str = ""
    """The evidence."""
    paths: Roles = ()
    """The roles that a path of the tool has."""

    def elsewhere(self) -> "ProposedTool":
        """Return the proposal for a server on another machine."""
        arguments = {name: one.elsewhere() for name, one in self.arguments.items()}
        return replace(self, arguments=arguments)

    def uncertain(self) -> tuple[str, ...]:
        """Return the names of arguments and members that are not certain."""
        found = [pair for name, one in self.arguments.items() for pair in one.each(name)]
        return tuple([name for name, one in found if not one.certain])


ToolKind: TypeAlias = Literal["files", "fetches", "shell", "looks", "keeps", "unknown"]
"""The kind of a tool for presets.

`files`: it touches only the paths it is given. `fetches`: only the URLs. `shell`: it runs a shell
command. `looks`, `keeps`: it reads, or changes, the server's own data; only for shipped servers.
`unknown`: none of these is certain.
"""


class ReadTool(Struct, frozen=True, kw_only=True):
    """A tool with its arguments and its kind."""

    name: str
    kind: ToolKind
    arguments: Mapping[str, Json]
    """Roles by argument, as `tool-annotations.json` writes them."""
    schema: Mapping[str, Json] = msgspec.field(default_factory=dict)
    command: str | None = None
    """The argument that holds a shell command."""
    changes: bool = True
    """Whether the tool may do more than read."""
    why: str = ""
    """The reason for which the tool is `unknown` or denied, for people."""
    effect: str | None = None
    """The effect by its pack or its name, or None if neither says it, or the kind says it."""
    is_packed: bool = False
    """Whether a pack describes it."""
    is_denied: bool = False
    """Whether the tool is left out and so denied: any annotation would allow something unexamined.
    """


class ReadServer(Struct, frozen=True, kw_only=True):
    """A server's tools, and its name in policy and annotations."""

    name: str
    """The operator's name."""
    annotations: str
    tools: tuple[ReadTool, ...] = ()
    hosts: tuple[str, ...] = ()
    """The hosts that its sandbox kept it from, of a server that did not answer."""
    error: str = ""
    """The reason why the tools are not known; empty: they are known."""
    left_out: int = 0
    """Tools that cannot be written into the files; they are denied."""


# --- words


WORDS: Final[Mapping[str, frozenset[str]]] = {
    key: words(text)
    for key, text in tomllib.loads(
        Path(__file__).with_name("words.toml").read_text("utf-8")
    ).items()
}
"""The words of `words.toml`, by key."""

READS: Final = WORDS["reads"]
WRITES: Final = WORDS["writes"]
DESTROYS: Final = WORDS["destroys"]
FETCHES: Final = WORDS["fetches"]
PATH_FORMATS: Final = WORDS["path_formats"]
URL_FORMATS: Final = WORDS["url_formats"]

_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def words_of(name: str) -> tuple[str, ...]:
    """The words of an identifier, in lower case: `readTextFile`, `read_text_file`, `read-file`."""
    return tuple(word.lower() for word in _CAMEL.findall(name))


_CHANGES: Final = re.compile(
    r"\b(?:delet|remov|eras|overwrit|truncat|modif|updat|creat|mov(?:e|es|ing)\b|renam|writ(?:e|es|ing)\b"
    r"|upload|send|publish|deploy|execut|runs?\b|running\b|install|post(?:s|ing)?\b|e-?mail)",
    re.IGNORECASE,
)


def speaks_of_change(description: str) -> bool:
    """Return whether a description says that a tool does more than read, or may."""
    return _CHANGES.search(description) is not None


_DESTROYS: Final = re.compile(
    r"\b(?:delet|remov|eras|mov(?:e|es|ing)\b|renam|truncat|purg)", re.IGNORECASE
)
_LEAVES: Final = re.compile(
    r"\b(?:upload|send|publish|deploy|execut|runs?\b|running\b|install|post(?:s|ing)?\b|e-?mail"
    r"|UR[LI]s?\b|https?:|remote|server|cloud|download)",
    re.IGNORECASE,
)


def speaks_of_destroying(description: str) -> bool:
    """Return whether a description says that a tool deletes or moves something away."""
    return _DESTROYS.search(description) is not None


def speaks_of_leaving(description: str) -> bool:
    """Return whether a description says that a tool reaches or runs something other than files."""
    return _LEAVES.search(description) is not None


# --- shell tools


NO_TEXT: Final = frozenset({"boolean", "number", "integer", "null"})
"""The types of values that name nothing."""
_TYPES: Final = NO_TEXT | {"string", "array", "object"}
_MOST_DEPTH: Final = 8


def types_of(schema: Mapping[str, Json], depth: int = _MOST_DEPTH) -> frozenset[str]:
    """The JSON types that a value may have; none if the schema names none or nests too deeply."""
    if depth == 0:
        return frozenset()
    said = schema.get("type", [])
    names = said if isinstance(said, list) else [said]
    found = {one.lower() for one in names if isinstance(one, str)}
    if any(not isinstance(one, str) for one in names) or not found <= _TYPES:
        # The check of calls leaves such a type out, so that any value fits.
        return frozenset()
    for word in ("anyOf", "oneOf"):
        inner = schema.get(word)
        for one in inner if isinstance(inner, list) else ():
            types = types_of(one, depth - 1) if isinstance(one, Mapping) else frozenset()
            if not types:
                return frozenset()
            found |= types
    return frozenset(found)


def is_closed_choice(schema: Mapping[str, Json]) -> bool:
    """Return whether a value is one of a list of the schema."""
    choice = schema.get("enum")
    return "const" in schema or (isinstance(choice, list) and bool(choice))


COMMAND_ARGUMENTS: Final = WORDS["shell_commands"]
"""Names of arguments that hold a shell command, without their capitals and underscores."""
_RUNS: Final = re.compile(
    r"\b(?:run|runs|running|exec|execs|execute|executes|executing|execution|invoke|invokes|launch"
    r"|spawn|spawns|start|starts)\b",
    re.IGNORECASE,
)
_COMMAND: Final = re.compile(
    r"\b(?:commands?|command[ -]?lines?|shell|bash|zsh|sh|terminal|process(?:es)?|programs?"
    r"|scripts?)\b",
    re.IGNORECASE,
)
_SHELL: Final = re.compile(r"\b(?:shell|bash|zsh|sh|terminal|command[ -]?line)\b", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(
    r"\b(?:remote(?:ly)?|ssh)\b"
    r"|\b(?:in|inside|into|on|within|against|via|through|using) (?:[\w-]+ ){0,3}"
    r"(?:adb|browser|clusters?|containers?|databases?|devices?|docker|emulator|kubectl|kubernetes"
    r"|pods?|virtual machine|vms?)\b",
    re.IGNORECASE,
)
"""Words for machines other than the local one. A program named only as an example does not count.
"""
_OTHERS: Final = WORDS["interpreters"]


class RunArgument(Struct, frozen=True):
    """The argument whose text a tool runs."""

    argument: str
    is_shell: bool
    """Whether the text is a command of the local shell."""


def runs(tool: Mapping[str, Json], properties: Mapping[str, Json]) -> RunArgument | None:
    """Return the argument whose text a tool runs, or None if no argument seems to hold one.

    Args:
        tool: its object of `tools/list`.
        properties: of its input schema.
    """
    name = str(tool.get("name", ""))
    about = " ".join(
        [*words_of(name), str(tool.get("title", "")), str(tool.get("description", ""))]
    )
    for argument, schema in properties.items():
        plain = "".join(words_of(argument))
        if plain not in COMMAND_ARGUMENTS | WORDS["run_texts"] or not isinstance(schema, Mapping):
            continue
        types = types_of(schema)
        if not types or not types <= {"string", "array", "null"}:
            continue
        text = f"{about} {schema.get('description', '')}"
        says_so = bool(_RUNS.search(text) and (_COMMAND.search(text) or plain in COMMAND_ARGUMENTS))
        if not says_so and not (plain in COMMAND_ARGUMENTS and _SHELL.search(text)):
            continue
        return RunArgument(argument, _is_shell(name, text, certain=plain in COMMAND_ARGUMENTS))
    return None


def _is_shell(name: str, text: str, *, certain: bool) -> bool:
    if _ELSEWHERE.search(text) or not _OTHERS.isdisjoint(words_of(name)):
        return False
    if _SHELL.search(text):
        return True
    return certain and _OTHERS.isdisjoint(re.findall(r"[a-z0-9]+", text.lower()))
