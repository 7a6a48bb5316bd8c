"""The capabilities that a call needs, and the profile's answer to them.

Tool declarations only describe and never decide on approval; a profile decides and says nothing
about what a tool does. Unknown capability names are asked about and never allowed.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import (
    CAPABILITIES,
    Capability,
    Isolation,
    spoken_of,
)
from ironcurtain_proxy.model.values import lazy

Level: TypeAlias = Literal["allow", "approve", "deny"]
"""A profile's answer for one capability. `approve`: a reviewer is asked."""

DefaultLevel: TypeAlias = Literal["approve", "deny"]
"""The answer for a capability that a profile does not name. `allow` is not possible."""

HINT_CAPABILITIES: Final[Mapping[str, Capability]] = MappingProxyType(
    {"destructiveHint": "fs.write", "openWorldHint": "net.egress"}
)
"""The capability that a server's hint adds if it is explicitly true. Hints remove none."""


class Profile(Struct, frozen=True, kw_only=True):
    """The capabilities that the operator allows without asking."""

    name: str
    rules: Mapping[Capability, Level] = field(default_factory=dict)
    default: DefaultLevel = "approve"
    blocked_tools: frozenset[str] = frozenset()
    """Never forwarded; `server/tool`, or a bare name if one server has it."""
    blocked_programs: frozenset[str] = frozenset()
    """Programs whose name anywhere in a command denies the call."""
    pre_approved_tools: frozenset[str] = frozenset()
    """Tools that are not asked about, whatever they need, unless a capability they need is denied.
    """
    needs_isolation: bool = False
    """Whether `supervised` replaces this profile where the servers are not isolated."""


AUTONOMOUS: Final = Profile(
    name="autonomous",
    rules=MappingProxyType(
        {"fs.read": "allow", "fs.write": "allow", "proc.exec": "allow", "net.egress": "deny"}
    ),
    needs_isolation=True,
)
"""The profile for disposable environments, which nothing can leave."""

SUPERVISED: Final = Profile(
    name="supervised",
    rules=MappingProxyType(
        {
            "fs.read": "allow",
            "fs.write": "approve",
            "fs.delete": "approve",
            "net.egress": "approve",
        }
    ),
)
"""The profile for work beside a person, who is asked before anything changes or leaves."""

_NAME: Final = lazy(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
"""A plain name. Scopes and parameters (`fs.write:/srv/**`) are not supported, so they do not match.
"""


def level_of(capability: Capability, profile: Profile) -> Level:
    """Return a profile's answer for one capability.

    A refinement has its own rule, or else that of the capability it refines. An unknown name
    needs a rule of exactly that name. A name that is not plain is never allowed.
    """
    plain = _NAME.fullmatch(capability) is not None
    for name in _lineage(capability) if plain else (capability,):
        level = profile.rules.get(name)
        if level is not None:
            return level if plain or level == "deny" else "approve"
    return "deny" if profile.default == "deny" else "approve"


def refined(capability: Capability) -> Capability | None:
    """Return the known capability that a plain name equals or refines, or None if there is none."""
    if _NAME.fullmatch(capability) is None:
        return None
    family = ".".join(capability.split(".")[:2])
    return family if family in CAPABILITIES else None


def _lineage(capability: Capability) -> Iterable[Capability]:
    """Yield the name and those that it refines, up to a known capability."""
    yield capability
    family = refined(capability)
    while family is not None and capability != family:
        capability = capability.rpartition(".")[0]
        yield capability


def described(capability: Capability) -> str:
    """Return a capability with its description: `create or change files (fs.write)`."""
    family = refined(capability)
    words = "something unknown" if family is None else CAPABILITIES[family]
    return f"{words} ({capability})"


class ProfileAnswer(Struct, frozen=True, kw_only=True):
    """A profile's answer to a call."""

    level: Level
    capabilities: tuple[Capability, ...] = ()
    """The denied or asked-about capabilities, sorted by name. It is empty if none is the reason."""


def verdict(
    names: frozenset[str], needed: frozenset[Capability], profile: Profile
) -> ProfileAnswer:
    """Return a profile's answer to a tool that needs these capabilities; the strictest wins.

    A blocked tool is denied, and so is a denied capability, even for a pre-approved tool.

    Args: names: the names under which lists may mention the tool. needed: what the call needs.
    profile: the effective profile, isolation considered.
    """
    levels = {capability: level_of(capability, profile) for capability in sorted(needed)}
    denied = tuple([name for name, level in levels.items() if level == "deny"])
    asked = tuple([name for name, level in levels.items() if level == "approve"])
    blocked = spoken_of(names) & profile.blocked_tools
    if denied or blocked:
        return ProfileAnswer(level="deny", capabilities=() if blocked else denied)
    if asked and not names & profile.pre_approved_tools:
        return ProfileAnswer(level="approve", capabilities=asked)
    return ProfileAnswer(level="allow")


def effective_profile(profile: Profile, isolation: Isolation) -> tuple[Profile, str | None]:
    """Return the effective profile, and a sentence of explanation if it is not the configured one.

    What an operator denies stays denied.
    """
    if not profile.needs_isolation or isolation == "isolated":
        return profile, None
    built_in = AUTONOMOUS.rules
    denied: dict[Capability, Level] = {
        name: level
        for name, level in profile.rules.items()
        if level == "deny" and (profile is not AUTONOMOUS or built_in.get(name) != "deny")
    }
    instead = replace(
        SUPERVISED,
        rules={**SUPERVISED.rules, **denied},
        default=profile.default,
        blocked_tools=profile.blocked_tools,
        blocked_programs=profile.blocked_programs,
    )
    known = "is not" if isolation == "unisolated" else "is not known to be"
    return instead, (
        f"The profile {profile.name} needs isolation, and this session {known} isolated: "
        f"{instead.name} holds instead"
    )


def detect_isolation(
    flag: Isolation | None, manifest: Isolation | None, *, every_server_confined: bool | None
) -> Isolation:
    """Find out whether servers are isolated: by command line, else manifest, else run time.

    Args:
        flag: what the command line says.
        manifest: what the configuration file says.
        every_server_confined: whether each server really runs in a sandbox; None: nobody looked.
    """
    if flag is not None:
        return flag
    if manifest is not None:
        return manifest
    return "isolated" if every_server_confined is True else "unknown"
