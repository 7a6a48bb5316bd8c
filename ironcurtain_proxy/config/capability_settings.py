"""Capability profiles and tool declarations, section `capabilities`, and the names of tools."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.approval.capabilities import (
    AUTONOMOUS,
    SUPERVISED,
    DefaultLevel,
    Level,
    Profile,
    refined,
)
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.layers import Layers
from ironcurtain_proxy.config.reading.problems import nearest, shown
from ironcurtain_proxy.model.argument_capability import ArgumentCapabilities
from ironcurtain_proxy.model.capability import (
    CAPABILITIES,
    Capability,
    Isolation,
    SafetyLevel,
    ToolDeclaration,
)


class ToolNames(Struct, frozen=True):
    """Reads tool names. A name that no tool can have is reported, since it would never match."""

    servers: tuple[str, ...]
    """All configured servers, including those that do not run."""

    def item(self, spot: Spot) -> str:
        """Return one name in a list."""
        name = spot.name()
        self.check(spot, name)
        return name

    def listed(self, spot: Spot) -> tuple[str, ...]:
        """Return a list of names without duplicates."""
        return tuple(dict.fromkeys(spot.each(self.item)))

    def keys(self, spot: Spot) -> Mapping[str, Spot]:
        """Return an object whose keys are names of tools."""
        found = {key: inner for key, inner in spot.members().items() if not key.startswith("_")}
        for name, inner in found.items():
            self.check(inner, name)
        return found

    def check(self, spot: Spot, name: str) -> None:
        """Report a name that no tool can have."""
        server, slash, tool = name.partition("/")
        if name != name.strip() or not name.isprintable() or (slash and not (server and tool)):
            spot.error("must be SERVER/TOOL, or the name of a tool")
        elif slash and self.servers and server not in self.servers:
            guess = nearest(server, self.servers)
            spot.warning(f"there is no server {shown(server)}", guess and f"{guess}/{tool}")
        elif not slash:
            self._check_bare(spot, name)

    def _check_bare(self, spot: Spot, name: str) -> None:
        server, _, tool = name.partition("__")
        if tool and server in self.servers:
            spot.warning("the agent's name of a tool: settings use SERVER/TOOL", f"{server}/{tool}")


NO_PROFILE: Final = "none"
_BUILT_IN: Final = {profile.name: profile for profile in (AUTONOMOUS, SUPERVISED)}
_LEVELS: Final[tuple[Level, ...]] = ("approve", "allow", "deny")
_DEFAULTS: Final[tuple[DefaultLevel, ...]] = ("approve", "deny")
_SAFETY: Final = ("dangerous", "moderate", "safe")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

_Named = tuple[Spot, Capability]


class CapabilitySettings(Struct, frozen=True, kw_only=True):
    """The operator's profiles and declarations of tools."""

    profile: Profile | None = None
    """The chosen profile; None: capabilities are not checked."""
    isolation_flag: Isolation | None = None
    """The value of the command line or of `IRONCURTAIN_ISOLATION`."""
    isolation_manifest: Isolation | None = None
    """The value of the configuration file."""
    declarations: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    """The declarations by the tool's name as the operator wrote it."""
    by_argument: Mapping[str, tuple[ArgumentCapabilities, ...]] = field(default_factory=dict)
    """Declarations by argument; a tool without any is left out."""


def read_capabilities(layers: Layers, names: ToolNames) -> CapabilitySettings:
    """Return the section `capabilities`."""
    reader = _CapabilityReader(names)
    own = layers.read("capabilities.profiles", reader.profiles, {})
    tools = layers.read("capabilities.tools", names.keys, {})
    read = {name: reader.tool(name, spot) for name, spot in tools.items()}
    _warn_of_names_on_one_side(reader.ruled, reader.declared)
    _warn_of_names_on_one_side(reader.declared, reader.ruled)
    return CapabilitySettings(
        profile=layers.read("capabilities.profile", lambda spot: _chosen(spot, own), None),
        isolation_flag=layers.read("capabilities.isolationFlag", _isolation, None),
        isolation_manifest=layers.read("capabilities.isolation", _isolation, None),
        declarations={name: declaration for name, (declaration, _) in read.items()},
        by_argument={name: rules for name, (_, rules) in read.items() if rules},
    )


def _isolation(spot: Spot) -> Isolation:
    return spot.word(("unisolated", "isolated"))


def _chosen(spot: Spot, own: Mapping[str, Profile]) -> Profile | None:
    name = spot.word((NO_PROFILE, *_BUILT_IN, *own))
    return own.get(name) or _BUILT_IN.get(name)


class _CapabilityReader:
    """Reads profiles and declarations, and collects the capability names in them."""

    __slots__ = ("_names", "declared", "ruled")

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self.ruled: list[_Named] = []
        self.declared: list[_Named] = []

    def profiles(self, spot: Spot) -> Mapping[str, Profile]:
        """Return the operator's own profiles."""
        entries = {k: inner for k, inner in spot.members().items() if not k.startswith("_")}
        for name, entry in entries.items():
            if name in {NO_PROFILE, *_BUILT_IN}:
                entry.error(f"{shown(name)} is built in: take another name")
            elif _NAME.fullmatch(name) is None:
                entry.error("a name has 1 to 64 letters, digits, `_` or `-`")
        return {name: self._profile(name, entry) for name, entry in entries.items()}

    def _profile(self, name: str, spot: Spot) -> Profile:
        members = spot.object(
            (
                *("rules", "default", "blockedTools", "blockedPrograms", "preApprovedTools"),
                "needsIsolation",
            )
        )
        listed = self._names.listed
        return Profile(
            name=name,
            rules=members.read("rules", self._rules, {}),
            default=members.read("default", lambda inner: inner.word(_DEFAULTS), "approve"),
            blocked_tools=frozenset(members.read("blockedTools", listed, ())),
            blocked_programs=frozenset(members.read("blockedPrograms", Spot.texts, ())),
            pre_approved_tools=frozenset(members.read("preApprovedTools", listed, ())),
            needs_isolation=members.read("needsIsolation", Spot.switch, default=False),
        )

    def _rules(self, spot: Spot) -> Mapping[Capability, Level]:
        found = {name: inner for name, inner in spot.members().items() if not name.startswith("_")}
        for name, inner in found.items():
            _check_plain(inner, name)
            self.ruled.append((inner, name))
        return {name: inner.word(_LEVELS) for name, inner in found.items()}

    def tool(
        self, name: str, spot: Spot
    ) -> tuple[ToolDeclaration, tuple[ArgumentCapabilities, ...]]:
        """Return the operator's declaration of one tool and of its arguments."""
        members = spot.object(("capabilities", "safetyLevel", "commandArgument", "byArgument"))
        declaration = ToolDeclaration(
            tool_id=name,
            capabilities=members.read("capabilities", self._capabilities, ()),
            safety_level=members.read("safetyLevel", _safety_level, None),
            command_argument=members.read("commandArgument", Spot.name, None),
        )
        return declaration, members.read("byArgument", self._by_argument, ())

    def _by_argument(self, spot: Spot) -> tuple[ArgumentCapabilities, ...]:
        # Comments are not possible here: keys are the tool's words, and an argument may begin with
        # `_`.
        return tuple(
            [
                ArgumentCapabilities(
                    argument,
                    {word: self._capabilities(inner) for word, inner in values.members().items()},
                )
                for argument, values in spot.members().items()
            ]
        )

    def _capabilities(self, spot: Spot) -> tuple[Capability, ...]:
        for item in spot.items():
            name = item.name()
            _check_plain(item, name)
            self.declared.append((item, name))
        return tuple(dict.fromkeys(spot.texts()))


def _safety_level(spot: Spot) -> SafetyLevel:
    return SafetyLevel[spot.word(_SAFETY).upper()]


def _check_plain(spot: Spot, name: Capability) -> None:
    """Refuse a scope or a parameter, which would be read as the whole capability."""
    if ":" in name:
        spot.error(
            "scopes and parameters of capabilities are not supported: write the part before `:`"
        )


def _warn_of_names_on_one_side(names: Iterable[_Named], others: Iterable[_Named]) -> None:
    """Warn of unknown capability names that occur only in profiles or only in declarations."""
    there = {name for _, name in others}
    for spot, name in names:
        if refined(name) is None and name not in there and ":" not in name:
            spot.warning(f"{shown(name)} is no known capability", nearest(name, CAPABILITIES))
