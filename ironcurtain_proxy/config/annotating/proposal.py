"""The proposal for a tool: the roles of its arguments, and its effect."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ironcurtain_proxy.model.annotation import Roles, ToolEffect
from ironcurtain_proxy.model.json import Json

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
        """The entry in `tool-annotations.json`."""
        inside: dict[str, Json] = {name: one.as_json() for name, one in self.inside.items()}
        if all(one == [*self.roles] == ["none"] for one in inside.values()):
            return [*self.roles]
        return {"default": [*self.roles], "inside": inside}

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

    def uncertain(self) -> tuple[str, ...]:
        """The names of arguments and members that are not certain."""
        found = [pair for name, one in self.arguments.items() for pair in one.each(name)]
        return tuple([name for name, one in found if not one.certain])
