"""The settings of all that asks besides the policy, and of remembered approvals.

Sections `security.interceptor`, `capabilities`, `grants` and `composites`, and names of tools. What
`approvalRequired` means, the switch that stood in the place of `approvalPolicy`, is read from the
file before defaults are applied; a default would hide it.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import (
    AUTONOMOUS,
    SUPERVISED,
    DefaultLevel,
    Level,
    Profile,
    refined,
)
from ironcurtain_proxy.approval.overlay import (
    APPROVAL_POLICY_ALL,
    APPROVAL_POLICY_CONFIGURED,
    APPROVAL_POLICY_DANGEROUS,
    APPROVAL_POLICY_NONE,
    InterceptorConfig,
)
from ironcurtain_proxy.config.reading.document import DocumentNode, nearest, shown
from ironcurtain_proxy.config.reading.forms import (
    declared,
    says,
    setting,
)
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME, STATE_DIRECTORY, Layers
from ironcurtain_proxy.model.annotation import (
    CAPABILITIES,
    ArgumentCapabilities,
    Capability,
    Isolation,
    SafetyLevel,
    ToolDeclaration,
)
from ironcurtain_proxy.model.operation import MAX_STEPS, CompositeSpec, CompositeStep
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json, lazy

# --- capability settings


OF_HOOKS: Final = ("filesystem", "fetch", "shell")
"""The servers that the hooks of clients name for the clients' own tools. No file has them."""


class ToolNames(Struct, frozen=True):
    """Reads tool names. A name that no tool can have is reported, since it would never match."""

    servers: tuple[str, ...]
    """All configured servers, including those that do not run."""

    def item(self, node: DocumentNode) -> str:
        """Return one name in a list."""
        name = node.name()
        self.check(node, name)
        return name

    def listed(self, node: DocumentNode) -> tuple[str, ...]:
        """Return a list of names without duplicates."""
        return tuple(dict.fromkeys(node.each(self.item)))

    def keys(self, node: DocumentNode) -> Mapping[str, DocumentNode]:
        """Return an object whose keys are names of tools."""
        found = {key: inner for key, inner in node.members().items() if not key.startswith("_")}
        for name, inner in found.items():
            self.check(inner, name)
        return found

    def check(self, node: DocumentNode, name: str) -> None:
        """Report a name that no tool can have."""
        server, slash, tool = name.partition("/")
        if name != name.strip() or not name.isprintable() or (slash and not (server and tool)):
            node.error("must be SERVER/TOOL, or the name of a tool")
        elif slash and self.servers and server not in {*self.servers, *OF_HOOKS}:
            guess = nearest(server, self.servers)
            node.warning(f"there is no server {shown(server)}", guess and f"{guess}/{tool}")
        elif not slash:
            self._check_bare(node, name)

    def _check_bare(self, node: DocumentNode, name: str) -> None:
        server, _, tool = name.partition("__")
        if tool and server in self.servers:
            node.warning("the agent's name of a tool: settings use SERVER/TOOL", f"{server}/{tool}")


NO_PROFILE: Final = "none"
_BUILT_IN: Final = {profile.name: profile for profile in (AUTONOMOUS, SUPERVISED)}
_LEVELS: Final[tuple[Level, ...]] = ("approve", "allow", "deny")
_DEFAULTS: Final[tuple[DefaultLevel, ...]] = ("approve", "deny")
_SAFETY: Final = ("dangerous", "moderate", "safe")
_CAPABILITY_NAME: Final = lazy(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

_Named = tuple[DocumentNode, Capability]


class CapabilitySettings(Struct, frozen=True, kw_only=True):
    """The operator's profiles and declarations of tools."""

    profile: Profile | None = None
    """The chosen profile, or None if capabilities are not checked."""
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
    read = {name: reader.tool(name, node) for name, node in tools.items()}
    _warn_of_names_on_one_side(reader.ruled, reader.declared)
    _warn_of_names_on_one_side(reader.declared, reader.ruled)
    return CapabilitySettings(
        profile=layers.read("capabilities.profile", lambda node: _chosen(node, own), None),
        isolation_flag=layers.read("capabilities.isolationFlag", _isolation, None),
        isolation_manifest=layers.read("capabilities.isolation", _isolation, None),
        declarations={name: declaration for name, (declaration, _) in read.items()},
        by_argument={name: rules for name, (_, rules) in read.items() if rules},
    )


def _isolation(node: DocumentNode) -> Isolation:
    return node.word(("unisolated", "isolated"))


def _chosen(node: DocumentNode, own: Mapping[str, Profile]) -> Profile | None:
    name = node.word((NO_PROFILE, *_BUILT_IN, *own))
    return own.get(name) or _BUILT_IN.get(name)


class _CapabilityReader:
    """Reads profiles and declarations, and collects the capability names in them."""

    __slots__ = ("_names", "declared", "ruled")

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self.ruled: list[_Named] = []
        self.declared: list[_Named] = []

    def profiles(self, node: DocumentNode) -> Mapping[str, Profile]:
        """Return the operator's own profiles."""
        entries = {k: inner for k, inner in node.members().items() if not k.startswith("_")}
        for name, entry in entries.items():
            if name in {NO_PROFILE, *_BUILT_IN}:
                entry.error(f"{shown(name)} is built in: take another name")
            elif _CAPABILITY_NAME.fullmatch(name) is None:
                entry.error("a name has 1 to 64 letters, digits, `_` or `-`")
        return {name: self._profile(name, entry) for name, entry in entries.items()}

    def _profile(self, name: str, node: DocumentNode) -> Profile:
        members = node.object(
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
            blocked_programs=frozenset(members.read("blockedPrograms", DocumentNode.texts, ())),
            pre_approved_tools=frozenset(members.read("preApprovedTools", listed, ())),
            needs_isolation=members.read("needsIsolation", DocumentNode.switch, default=False),
        )

    def _rules(self, node: DocumentNode) -> Mapping[Capability, Level]:
        found = {name: inner for name, inner in node.members().items() if not name.startswith("_")}
        for name, inner in found.items():
            _check_plain(inner, name)
            self.ruled.append((inner, name))
        return {name: inner.word(_LEVELS) for name, inner in found.items()}

    def tool(
        self, name: str, node: DocumentNode
    ) -> tuple[ToolDeclaration, tuple[ArgumentCapabilities, ...]]:
        """Return the operator's declaration of one tool and of its arguments."""
        members = node.object(("capabilities", "safetyLevel", "commandArgument", "byArgument"))
        declaration = ToolDeclaration(
            tool_id=name,
            capabilities=members.read("capabilities", self._capabilities, ()),
            safety_level=members.read("safetyLevel", _safety_level, None),
            command_argument=members.read("commandArgument", DocumentNode.name, None),
        )
        return declaration, members.read("byArgument", self._by_argument, ())

    def _by_argument(self, node: DocumentNode) -> tuple[ArgumentCapabilities, ...]:
        # Comments are not possible here: keys are the tool's words, and an argument may begin with
        # `_`.
        return tuple(
            [
                ArgumentCapabilities(
                    argument,
                    {word: self._capabilities(inner) for word, inner in values.members().items()},
                )
                for argument, values in node.members().items()
            ]
        )

    def _capabilities(self, node: DocumentNode) -> tuple[Capability, ...]:
        for item in node.items():
            name = item.name()
            _check_plain(item, name)
            self.declared.append((item, name))
        return tuple(dict.fromkeys(node.texts()))


def _safety_level(node: DocumentNode) -> SafetyLevel:
    return SafetyLevel[node.word(_SAFETY).upper()]


def _check_plain(node: DocumentNode, name: Capability) -> None:
    """Refuse a scope or a parameter, which would be read as the whole capability."""
    if ":" in name:
        node.error(
            "scopes and parameters of capabilities are not supported: write the part before `:`"
        )


def _warn_of_names_on_one_side(names: Iterable[_Named], others: Iterable[_Named]) -> None:
    """Warn of unknown capability names that occur only in profiles or only in declarations."""
    there = {name for _, name in others}
    for node, name in names:
        if refined(name) is None and name not in there and ":" not in name:
            node.warning(f"{shown(name)} is no known capability", nearest(name, CAPABILITIES))


# --- overlay settings


COMMAND: Final = "ironcurtain-proxy config migrate"
"""The command with which the operator writes a file anew."""

MigratedMode: TypeAlias = Literal["configured", "dangerous"]


def migrated_mode(interceptor: Mapping[str, Json]) -> MigratedMode | None:
    """Return the approval policy that a legacy section stands for.

    It is None if the section has no legacy switch.

    A section that names a policy keeps it. `approvalRequired: false` never turned off all
    questions, so it becomes the default policy, not "none".
    """
    if "approvalPolicy" in interceptor or interceptor.get("approvalRequired") is not True:
        return None
    return "configured" if interceptor.get("sensitiveTools") else "dangerous"


_SECTION: Final = "security.interceptor"
INTERCEPTOR_KEYS: Final = tuple(
    f"{_SECTION}.{key}"
    for key in (
        *("enabled", "approvalPolicy", "exemptTools", "sensitiveTools"),
        *("approvalContained", "approvalAllowed", "approvalRequired"),
    )
)
_POLICIES: Final = (
    APPROVAL_POLICY_DANGEROUS,
    APPROVAL_POLICY_ALL,
    APPROVAL_POLICY_CONFIGURED,
    APPROVAL_POLICY_NONE,
)


def read_interceptor(layers: Layers, names: ToolNames) -> InterceptorConfig:
    """Read the section, with defaults for absent keys and with the keys of older versions."""
    standard = InterceptorConfig()
    return InterceptorConfig(
        enabled=layers.read(f"{_SECTION}.enabled", _enabled, standard.enabled),
        approval_policy=_policy(layers, standard.approval_policy),
        exempt_tools=layers.read(f"{_SECTION}.exemptTools", names.listed, ()),
        sensitive_tools=layers.read(f"{_SECTION}.sensitiveTools", names.listed, ()),
        approval_contained=layers.read(
            f"{_SECTION}.approvalContained", DocumentNode.switch, standard.approval_contained
        ),
        approval_allowed=layers.read(
            f"{_SECTION}.approvalAllowed", DocumentNode.switch, standard.approval_allowed
        ),
    )


def _policy(layers: Layers, standard: str) -> str:
    # Before any default: with a default in place the legacy switch would never be read.
    said = layers.read(f"{_SECTION}.approvalPolicy", _said_policy, None)
    legacy = layers.node(f"{_SECTION}.approvalRequired")
    if legacy is None:
        return standard if said is None else said
    required = legacy.switch()
    if said is not None:
        return said
    if not required:
        legacy.warning(
            f'deprecated and without effect: approvalPolicy is "{standard}"; '
            'write "none" to ask about no tool'
        )
        return standard
    section = layers.node(_SECTION)
    values = section.value if section is not None else None
    mode = (migrated_mode(values) if isinstance(values, dict) else None) or standard
    advice = f"to write that down, run {_command(layers)}"
    legacy.warning(f'deprecated: read as "approvalPolicy": "{mode}"; {advice}')
    return mode


def _command(layers: Layers) -> str:
    file = layers.config_file
    if file is None or file == layers.home / STATE_DIRECTORY / CONFIG_NAME:
        return COMMAND
    return f"{COMMAND} --config {shlex.quote(str(file))}"


def _said_policy(node: DocumentNode) -> str:
    """Return the policy as written. An unknown word asks about every tool."""
    text = node.text()
    if text == APPROVAL_POLICY_NONE:
        node.warning(
            '"none": no tool is asked about, not even those of sensitiveTools; '
            "only the policy and the profile still ask"
        )
    elif not text:
        node.warning(f'is empty: "{APPROVAL_POLICY_DANGEROUS}" holds')
    elif text not in _POLICIES:
        node.warning(
            f"{shown(text)} is not one of {', '.join(_POLICIES)}: every tool is asked about",
            nearest(text, _POLICIES),
        )
    return text


def _enabled(node: DocumentNode) -> bool:
    enabled = node.switch()
    if node.value is False:
        node.warning("no tool is asked about; only the policy and the profile still ask")
    return enabled


_NAME: Final = lazy(r"[a-z0-9_-]{1,64}", re.ASCII)


GrantScope: TypeAlias = Literal["session", "project", "user"]
"""The sessions in which a kept grant holds."""


class GrantSettings(Struct, frozen=True, kw_only=True):
    """The lifetimes of remembered approvals."""

    ttl_seconds: Annotated[int, Meta(ge=0, le=366 * 24 * 3600)] = setting("ttlSeconds", 0)
    """Seconds for which a remembered approval holds; 0: as long as the session."""
    persist: bool = setting("persist.enabled", default=False)
    """Keep grants when the session ends."""
    scope: GrantScope = setting("persist.scope", "session")
    expires_days: Annotated[int, Meta(ge=1, le=3650)] = setting("persist.expiresDays", 30)
    """Days for which kept grants hold."""


class OverlaySettings(Struct, frozen=True, kw_only=True):
    """The settings of all that asks for an approval besides the policy."""

    interceptor: InterceptorConfig = field(default_factory=InterceptorConfig)
    capabilities: CapabilitySettings = field(default_factory=CapabilitySettings)
    grants: GrantSettings = field(default_factory=GrantSettings)
    composites: tuple[CompositeSpec, ...] = ()


OVERLAY_KEYS: Final = (
    *(f"capabilities.{key}" for key in ("profile", "isolation", "profiles", "tools")),
    *INTERCEPTOR_KEYS,
    "composites",
)


def with_own_shell(said: OverlaySettings, servers: Iterable[ServerSpec]) -> OverlaySettings:
    """Return the settings in which the command of our own shell is known for one.

    What the operator declares of its tool takes the place of this.
    """
    own = {
        f"{spec.name}/run_command": ToolDeclaration(
            tool_id=f"{spec.name}/run_command", command_argument="command"
        )
        for spec in servers
        if spec.builtin == "shell"
    }
    if not own:
        return said
    declared_now = {**own, **said.capabilities.declarations}
    capabilities = replace(said.capabilities, declarations=declared_now)
    return replace(said, capabilities=capabilities)


def read_overlay(layers: Layers, servers: tuple[str, ...]) -> OverlaySettings:
    """Read all four sections.

    Args:
        layers: all sources of settings.
        servers: the names of all configured servers.
    """
    names = ToolNames(servers)
    return OverlaySettings(
        interceptor=read_interceptor(layers, names),
        capabilities=read_capabilities(layers, names),
        grants=GrantSettings(**declared(GrantSettings, layers.read, "grants.")),
        composites=read_composites(layers),
    )


def read_composites(layers: Layers) -> tuple[CompositeSpec, ...]:
    """Return the section, in the order in which it was written."""
    return layers.read("composites", _composites, ())


def _composites(node: DocumentNode) -> tuple[CompositeSpec, ...]:
    entries = {name: entry for name, entry in node.members().items() if not name.startswith("_")}
    return tuple([_composite(name, entry) for name, entry in entries.items()])


def _composite(name: str, node: DocumentNode) -> CompositeSpec:
    if _NAME.fullmatch(name) is None:
        node.error("a name has 1 to 64 lower-case letters, digits, `_` or `-`")
    members = node.object(("description", "steps"))
    steps = members.required("steps")
    if isinstance(steps.value, list) and not 1 <= len(steps.value) <= MAX_STEPS:
        steps.error(f"must be 1 to {MAX_STEPS} steps")
    return CompositeSpec(
        name=name,
        description=members.read("description", DocumentNode.text, ""),
        steps=steps.each(_step),
    )


def _step(node: DocumentNode) -> CompositeStep:
    members = node.object(("tool", "arguments"))
    return CompositeStep(members.required("tool").name(), members.read("arguments", _arguments, {}))


def _arguments(node: DocumentNode) -> dict[str, Json]:
    return {name: inner.value for name, inner in node.members().items()}


ProviderModel: TypeAlias = Annotated[
    str,
    says(
        r"(anthropic|google|openai):[A-Za-z0-9._/@-]{1,128}",
        "must be PROVIDER:MODEL, the provider anthropic, google or openai",
        1,
    ),
]
"""A model as `PROVIDER:MODEL`."""
