"""The proposal for a tool: the roles of its arguments, its effect, and its kind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from ironcurtain_proxy.model.annotation import Roles, ToolEffect
from ironcurtain_proxy.model.json import Json

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
    """The effect; None: it is not known, so containment never settles a call."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTool:
    """A tool with its arguments and its kind."""

    name: str
    kind: ToolKind
    arguments: Mapping[str, Json]
    """Roles by argument, as `tool-annotations.json` writes them."""
    schema: Mapping[str, Json] = field(default_factory=dict)
    command: str | None = None
    """The argument that holds a shell command."""
    changes: bool = True
    """Whether the tool may do more than read."""
    why: str = ""
    """The reason for which the tool is `unknown` or denied, for people."""
    effect: str | None = None
    """The effect by its pack or its name; None: neither says it, or the kind says it."""
    is_packed: bool = False
    """Whether a pack describes it."""
    is_denied: bool = False
    """Whether the tool is left out and so denied: any annotation would allow something unexamined.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadServer:
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
