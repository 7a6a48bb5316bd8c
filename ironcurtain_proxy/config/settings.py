"""All settings of `serve`: the environment over the configuration file over defaults.

This module has the names and defaults of settings. Precedence, the variables and the allowed keys
of the file are in `config.reading.layers`.
"""

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.config.overlay_settings import (
    OVERLAY_KEYS,
    GrantSettings,
    OverlaySettings,
    ProviderModel,
    read_overlay,
    with_own_shell,
)
from ironcurtain_proxy.config.reading.document import DocumentNode, Problem, Report, strictly
from ironcurtain_proxy.config.reading.forms import (
    SCHEMA_KEY,
    NameText,
    Seconds,
    declared,
    keys_of,
    says,
    setting,
)
from ironcurtain_proxy.config.reading.layers import (
    SESSION_VARIABLE,
    STATE_DIRECTORY,
    Layers,
    read_environment,
    read_layers,
)
from ironcurtain_proxy.config.servers.servers_file import (
    choose_servers,
    container_workspace,
    find_workspace,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.policy import UnknownTools
from ironcurtain_proxy.model.request import NamedBy
from ironcurtain_proxy.model.server import PinMode, ServerSpec
from ironcurtain_proxy.model.values import RealPath, WithSecrets, lazy

if TYPE_CHECKING:
    from ironcurtain_proxy.config.auto_confirm import AutoConfirmConfig, ReviewerForm


# --- review settings


EscalationMode: TypeAlias = Literal["wait", "auto", "held"]
"""`wait`: the call waits for its answer. `held`: the call is returned after a while and may be
repeated. `auto`: `wait` if the operator named an escalation directory, else `held`."""

ChannelName: TypeAlias = Literal["mailbox", "elicitation", "terminal"]
"""A channel to a reviewer."""

DEFAULT_MODEL: Final = "anthropic:claude-haiku-4-5"

PROVIDER_KEYS: Final[Mapping[str, str]] = {
    "anthropic": "anthropicApiKey",
    "google": "googleApiKey",
    "openai": "openaiApiKey",
}
"""The key of the configuration file that holds each provider's API key."""

_ToolPattern: TypeAlias = Annotated[
    str, says(r"[^/\s\x00]+/[^/\s\x00]+", "must be SERVER/TOOL; * stands for any characters", 1)
]

_PORT: Final = (
    r":0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
_Address: TypeAlias = Annotated[
    str,
    says(
        r"[Hh][Tt][Tt][Pp][Ss]?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]+)"
        rf"({_PORT})?([/?#][!-?A-~]*)?",
        # The address may be a secret: it is not repeated.
        "must be an http or https address, without a user name",
        1,
    ),
]


class NoticeSettings(WithSecrets, frozen=True, kw_only=True):
    """The targets of a notice that a call waits for a person."""

    hidden: ClassVar[frozenset[str]] = frozenset({"webhook", "ntfy", "ntfy_token"})

    desktop: bool = setting("noticeDesktop", default=False)
    webhook: _Address = setting("noticeWebhook", "")
    """An address; whoever knows it may often post there."""
    ntfy: _Address = setting("noticeNtfy", "")
    """The address of a topic; whoever knows it may read and post there."""
    ntfy_token: NameText = setting("noticeNtfyToken", "")


class EscalationSettings(Struct, frozen=True, kw_only=True):
    """The settings of questions to reviewers."""

    mode: EscalationMode = setting("mode", "auto")
    hold_after_seconds: Seconds = setting("holdAfterSeconds", 45.0)
    """Seconds that a call waits before it is held."""
    channels: tuple[ChannelName, ...] = setting("channels", ("mailbox",))
    """The channels, in the order in which they are asked."""
    require_digest: bool = setting("requireDigest", default=False)
    """Accept only answers with the digest of the request that was shown."""
    wait_until_answered: bool = setting("waitUntilAnswered", default=False)
    """Whether a question has no deadline."""
    notices: NoticeSettings = field(default_factory=NoticeSettings)


_OwnRecord: TypeAlias = Annotated[
    str,
    says(
        r"[^/\s\x00]+/[^/\s\x00:]+(:[^\s\x00:]+)?",
        "must be SERVER/TOOL, or SERVER/TOOL:MEMBER of its results",
        1,
    ),
]


class TargetSettings(Struct, frozen=True, kw_only=True):
    """The settings of who named what a call reaches."""

    ask_when_named_by: tuple[NamedBy, ...] = setting("askWhenNamedBy", ())
    """Ask a person about calls that reach a target which was named so, whatever the policy, a grant
    or a model says."""
    own: tuple[_OwnRecord, ...] = setting("own", ())
    """Tools whose results are the user's own records, such as an address book: `SERVER/TOOL`, or
    `SERVER/TOOL:MEMBER` for one member of them."""


class ModelAccess(WithSecrets, frozen=True):
    """The access data handed to a model's library."""

    hidden: ClassVar[frozenset[str]] = frozenset({"api_key"})

    api_key: str
    """The API key, or empty if there is none."""
    api_base: str | None
    """The endpoint; None: the provider's default."""


def provider_of(model_id: str) -> str:
    """Return the provider in `PROVIDER:MODEL`."""
    return model_id.partition(":")[0]


class AutoApproveSettings(WithSecrets, frozen=True, kw_only=True):
    """The settings of the LLM approver, which is off by default."""

    hidden: ClassVar[frozenset[str]] = frozenset({"api_key"})

    enabled: bool = setting("enabled", default=False)
    model_id: ProviderModel = setting("modelId", DEFAULT_MODEL)
    api_key: str = ""
    api_base: NameText | None = setting("apiBase", None)
    """Another endpoint of the provider's protocol, such as a local model."""
    target_check: bool = setting("targetCheck", default=True)
    deadline_seconds: Annotated[float, Meta(gt=0.1, le=60)] = setting("deadlineSeconds", 8.0)
    """Seconds over all attempts."""
    max_per_minute: Annotated[int, Meta(ge=0, le=1000)] = setting("maxPerMinute", 20)
    max_outages: Annotated[int, Meta(ge=1, le=100)] = setting("maxOutages", 3)
    llm_log: Path | None = None
    """The log of the model; None: `auto-approve-llm.jsonl` in the session's directory."""
    only: tuple[_ToolPattern, ...] = setting("only", ())
    """The tools that the LLM approver may approve, as `SERVER/TOOL` with `*`, or empty if all tools
    count."""
    never: tuple[_ToolPattern, ...] = setting("never", ())
    """The tools that the LLM approver may not approve. This list precedes `only`."""
    confidence: Annotated[float, Meta(gt=0, le=1)] | None = setting("confidence", None)
    """The lowest confidence of the model, from 0 to 1, that counts; None: confidence is not asked
    for."""
    messages: Annotated[int, Meta(ge=1, le=5)] = setting("messages", 1)
    """The number of the user's last messages that the model sees."""
    shadow: bool = setting("shadow", default=False)
    """Whether the model is asked and its answer recorded while a person decides; it approves
    nothing."""


def read_escalation(layers: Layers) -> EscalationSettings:
    """Return the section `escalation`."""
    values = declared(EscalationSettings, layers.read, "escalation.")
    # Each channel is asked once.
    values["channels"] = tuple(dict.fromkeys(values["channels"]))
    return EscalationSettings(
        **values,
        notices=NoticeSettings(**declared(NoticeSettings, layers.read, "escalation.")),
    )


def read_auto_approve(
    layers: Layers, secrets: Mapping[str, str], session_dir: Path
) -> AutoApproveSettings:
    """Return the section `autoApprove`, with its key from the environment or else the file."""
    values = declared(AutoApproveSettings, layers.read, "autoApprove.")
    key_name = PROVIDER_KEYS.get(values["model_id"].partition(":")[0], "")
    return AutoApproveSettings(
        **values,
        api_key=secrets.get("AUTO_APPROVE_API_KEY") or layers.read(key_name, DocumentNode.name, ""),
        llm_log=layers.path("autoApprove.llmLogPath") or session_dir / "auto-approve-llm.jsonl",
    )


def read_provider_keys(layers: Layers) -> Mapping[str, str]:
    """Return the API keys that the file has, by provider."""
    keys = {name: layers.read(key, DocumentNode.name, "") for name, key in PROVIDER_KEYS.items()}
    return {name: key for name, key in keys.items() if key}


# --- settings


_MEBIBYTE: Final = 1 << 20
_CACHES: Final = (
    *("node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".nox"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".gradle", ".next", ".nuxt", ".turbo"),
    ".parcel-cache",
)


_DirectoryName: TypeAlias = Annotated[
    str,
    says(
        r"(?!\.{1,2}$|\.git$)[^/\x00]+",
        "must be the name of a directory, not a path, and not `.git`",
    ),
]


class TimelineSettings(Struct, frozen=True, kw_only=True):
    """The limits of the timeline."""

    max_bytes: Annotated[int, Meta(ge=_MEBIBYTE, le=1 << 50)] = setting(
        "max_bytes", 2048 * _MEBIBYTE
    )
    """Bytes of file copies. One file may take a quarter of it."""
    max_files: Annotated[int, Meta(ge=1, le=5_000_000)] = setting("max_files", 200_000)
    """Files, directories and links that a workspace may have."""
    keep_days: Annotated[int, Meta(ge=1, le=3650)] = setting("keep_days", 14)
    caches: frozenset[_DirectoryName] = setting("caches", frozenset(_CACHES))
    """Names of cache directories, whose content can be regenerated and is not recorded."""


SandboxPolicy: TypeAlias = Literal["warn", "enforce"]
"""The consequence where no sandbox is available: run the server unconfined and say so, or refuse.
"""

FsyncMode: TypeAlias = Literal["group", "always"]
"""The moment of the sync to the disk: within 100 ms in groups, or for each record before its write
returns."""

MEBIBYTE: Final = 1024 * 1024
_SESSION: Final = lazy(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_CONTAINMENT: Final = "containment."

SESSIONS: Final = "sessions"
"""The directory below `~/.ironcurtain` with one for each session."""


_Collector: TypeAlias = Annotated[
    str,
    says(r"https?://[^\x00]*", "must be a URL that begins with http:// or https://", 1),
]


class AuditSettings(Struct, frozen=True, kw_only=True):
    """Settings of the audit log."""

    path: Path
    redact: bool = setting("auditRedaction.enabled", default=True)
    fsync: FsyncMode = setting("auditFsync", "group")
    write_deadline_seconds: Seconds = setting("auditWriteDeadlineSeconds", 5.0)
    max_bytes: Annotated[int, Meta(ge=MEBIBYTE, le=1 << 50)] | None = setting("auditMaxBytes", None)
    """The size at which the log is rotated, or None if it never does."""


class BreakerSettings(Struct, frozen=True, kw_only=True):
    """The number of identical calls that pass within a window."""

    threshold: Annotated[int, Meta(ge=1, le=1_000_000)] = setting("threshold", 20)
    window_seconds: Seconds = setting("windowSeconds", 60.0)


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """Settings of spans and metrics."""

    enabled: bool = setting("enabled", default=False)
    endpoint: _Collector | None = setting("endpoint", None)
    """The URL of a collector; None: the one in the environment, else this machine's."""


class ContainmentSettings(Struct, frozen=True, kw_only=True):
    """Settings of containment."""

    undo: bool = setting("undo", default=False)
    """Make a point of the workspace before each call that may change it, so that it can be undone.
    """


class Settings(WithSecrets, frozen=True, kw_only=True):
    """All settings of the proxy, validated."""

    hidden: ClassVar[frozenset[str]] = frozenset({"provider_keys", "secrets", "inherited"})

    home: Path
    state_dir: Path
    """`~/.ironcurtain`; it may not exist yet."""
    session: str
    """`IRONCURTAIN_SESSION_ID` or random; letters, digits, `.`, `_`, `-`."""
    is_session_named: bool = False
    """Whether a program named the session and may run others beside it, as the front over HTTP
    does."""
    config_file: Path | None = None
    """The configuration file that was read, or None."""
    servers: tuple[ServerSpec, ...] = ()
    """The servers after `serverFilter`, with their credentials. May be empty."""
    servers_file: Path | None = None
    """The servers file, if the servers were read from one."""
    generated_dir: Path | None = None
    """The operator's directory; None: `~/.ironcurtain/generated`, then the packaged files."""
    tool_annotations_dir: Path | None = None
    project_policy: bool = setting("policy.project", default=True)
    """Whether the workspace may have a layer of policy, which narrows."""
    policy_reload: bool = setting("policy.reload", default=True)
    """Whether a running session takes over a changed policy."""
    shadow_policy: Path | None = None
    """A candidate that is judged beside the policy and recorded, or None if there is none."""
    said_in: Mapping[str, str] = field(default_factory=dict)
    """The variable or the file that set each of the two directories, by key."""
    workspace: RealPath | None = None
    container_workspace_dir: str | None = None
    protected_paths: tuple[Path, ...] = ()
    """The operator's paths, absolute; the built-in ones are in `protection`."""
    escalation_dir: Path | None = None
    """The directory that the operator named, so that a listener is assumed. None: see
    `mailbox_dir`."""
    mailbox_dir: Path
    """`escalation_dir`, else `~/.ironcurtain/sessions/<session>`."""
    escalation_timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] = setting(
        "escalationTimeoutSeconds", 300
    )
    """Seconds that an escalation, or a call to a server, may take."""
    max_message_bytes: Annotated[int, Meta(ge=4096, le=1 << 31)] = setting(
        "maxMessageBytes", 64 * MEBIBYTE
    )
    forward_meta: frozenset[NameText] = setting("forwardMeta", frozenset())
    """Keys of a call's `_meta` that are forwarded to servers, besides the standard ones."""
    server_in_names: bool = setting("serverInNames", default=False)
    """Whether the agent's names of tools carry their server's also where there is one server."""
    show_denied_tools: bool = setting("showDeniedTools", default=False)
    """Whether tools are listed of which the policy denies every call."""
    drain_seconds: Seconds = setting("drainSeconds", 15.0)
    """Seconds that calls in progress may take to finish once the agent has closed its input."""
    audit: AuditSettings
    session_log: Path
    session_retention_days: Annotated[int, Meta(ge=0, le=36_500)] = setting(
        "sessionRetentionDays", 14
    )
    """Days for which the directories of ended sessions are kept, or 0 if it holds for ever."""
    sandbox_policy: SandboxPolicy = setting("sandboxPolicy", "warn")
    unknown_tools: UnknownTools = setting("unknownTools", "deny")
    pins: PinMode = setting("pins", "on")
    """The treatment of changed descriptions, for servers whose entry names none."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    escalation: EscalationSettings = field(default_factory=EscalationSettings)
    auto_approve: AutoApproveSettings = field(default_factory=AutoApproveSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    provider_keys: Mapping[str, str] = field(default_factory=dict)
    """API keys of models from the file, by provider."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    containment: ContainmentSettings = field(default_factory=ContainmentSettings)
    timeline: TimelineSettings = field(default_factory=TimelineSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
    auto_confirm: "AutoConfirmConfig | None" = None
    """The settings of the engine, or None if the section does not exist."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Secret variables by name; they are removed from the environment."""
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The environment without the secrets; servers get its base variables."""
    warnings: tuple[Problem, ...] = ()

    @property
    def sessions_dir(self) -> Path:
        """The directory that holds one directory for each session."""
        return self.state_dir / SESSIONS

    @property
    def session_dir(self) -> Path:
        """The directory of this session alone."""
        return self.sessions_dir / self.session

    @property
    def mailboxes(self) -> tuple[Path, ...]:
        """Every mailbox of the session, the usual one first."""
        config = self.auto_confirm
        others = () if config is None or not config.engine.enabled else config.mailboxes
        return tuple(dict.fromkeys((self.mailbox_dir, *others)))

    def model_access(self, spec: "ReviewerForm") -> ModelAccess:
        """Return the own key of a reviewer that is a model, else that of its provider.

        INVARIANT: a key is sent only to the provider that it belongs to. The key and endpoint of
        the LLM approver are used only by reviewers of the same provider.
        """
        provider, said = provider_of(spec.model_id or ""), self.auto_approve
        same = provider == provider_of(said.model_id)
        usual = said.api_key if same else self.provider_keys.get(provider, "")
        return ModelAccess(
            api_key=(spec.env or {}).get("API_KEY") or usual,
            api_base=spec.api_base or (said.api_base if same else None),
        )

    @staticmethod
    def from_environment(
        environ: Mapping[str, str] | None = None, config: Path | None = None
    ) -> "Settings":
        """Read all settings, as `serve` does at its start. The mapping is not changed.

        Args:
            environ: the variables; None: those of this process.
            config: the configuration file, or None if the one that the variables or the home have.

        Raises:
            ProblemsError: something cannot be used; it holds everything found.
            ConfigurationError: this platform is not supported.
        """
        return load_settings(dict(os.environ if environ is None else environ), config)


SECTIONS: Final[tuple[tuple[str, type], ...]] = (
    ("", Settings),
    ("", AuditSettings),
    ("circuitBreaker.", BreakerSettings),
    ("telemetry.", TelemetrySettings),
    (_CONTAINMENT, ContainmentSettings),
    (_CONTAINMENT, TimelineSettings),
    ("escalation.", EscalationSettings),
    ("escalation.", NoticeSettings),
    ("autoApprove.", AutoApproveSettings),
    ("targets.", TargetSettings),
    ("grants.", GrantSettings),
)
"""The classes whose fields declare settings, each with the section that its keys stand in."""

KEYS: Final = (
    *("mcpServers", "mcpServersFile", "serverFilter", "serverCredentials"),
    *("generatedDir", "toolAnnotationsDir", "policy.shadow", "auto_confirm"),
    *("allowedDirectory", "protectedPaths", "containerWorkspaceDir", "autoApprove.llmLogPath"),
    *("escalationDir", "auditLogPath", "sessionLogPath"),
    *PROVIDER_KEYS.values(),
    *[key for section, kind in SECTIONS for key in keys_of(kind, section)],
    *OVERLAY_KEYS,
    SCHEMA_KEY,
)
"""All keys of the configuration file, as `section.key`."""


def load_settings(environ: MutableMapping[str, str], config: Path | None = None) -> Settings:
    """Read all settings. Secrets are removed from `environ`, even on errors.

    Raises:
        ProblemsError: something cannot be used; it holds everything found.
        ConfigurationError: this platform is not supported.
    """
    refuse_platform(sys.platform)
    return strictly(lambda report: gather_settings(environ, config, report))


def refuse_platform(platform: str) -> None:
    """Refuse platforms on which the kernel cannot keep its guarantees.

    Raises:
        ConfigurationError: on Windows.
    """
    if platform in {"win32", "cygwin"}:
        raise ConfigurationError("Windows is not supported: run ironcurtain-proxy under WSL")


def gather_settings(
    environ: MutableMapping[str, str], config: Path | None, report: Report
) -> Settings:
    """Read all settings for `check`. Never raises; a wrong setting gets its default."""
    environment = read_environment(environ, report)
    home = home_directory(environ)
    state_dir = home / STATE_DIRECTORY
    layers = read_layers(environ, environment, config, home, report, KEYS)
    session = _session(environ, report)
    session_dir = state_dir / SESSIONS / session
    escalation_dir = layers.path("escalationDir")
    workspace = find_workspace(layers)
    choice = choose_servers(layers, state_dir, report, workspace)
    settings = Settings(
        home=home,
        state_dir=state_dir,
        session=session,
        is_session_named=bool(environ.get(SESSION_VARIABLE, "").strip()),
        config_file=layers.config_file,
        servers=choice.servers,
        servers_file=choice.file,
        generated_dir=layers.path("generatedDir"),
        tool_annotations_dir=layers.path("toolAnnotationsDir"),
        shadow_policy=layers.path("policy.shadow"),
        said_in=_sources(layers, "generatedDir", "toolAnnotationsDir"),
        workspace=workspace,
        container_workspace_dir=container_workspace(layers),
        protected_paths=layers.paths("protectedPaths"),
        escalation_dir=escalation_dir,
        mailbox_dir=escalation_dir or session_dir,
        audit=AuditSettings(
            path=layers.path("auditLogPath") or state_dir / "audit.jsonl",
            **declared(AuditSettings, layers.read),
        ),
        session_log=layers.path("sessionLogPath") or session_dir / "session.log",
        breaker=BreakerSettings(**declared(BreakerSettings, layers.read, "circuitBreaker.")),
        escalation=read_escalation(layers),
        auto_approve=read_auto_approve(layers, environment.secrets, session_dir),
        targets=TargetSettings(**declared(TargetSettings, layers.read, "targets.")),
        provider_keys=read_provider_keys(layers),
        telemetry=TelemetrySettings(**declared(TelemetrySettings, layers.read, "telemetry.")),
        containment=ContainmentSettings(**declared(ContainmentSettings, layers.read, _CONTAINMENT)),
        timeline=TimelineSettings(**declared(TimelineSettings, layers.read, _CONTAINMENT)),
        overlay=with_own_shell(read_overlay(layers, choice.names), choice.servers),
        auto_confirm=_auto_confirm(layers),
        secrets=environment.secrets,
        inherited=dict(environ),
        **declared(Settings, layers.read),
    )
    warnings = [problem for problem in report.problems if problem.severity == "warning"]
    return replace(settings, warnings=tuple(warnings))


def _sources(layers: Layers, *keys: str) -> Mapping[str, str]:
    nodes = {key: layers.node(key) for key in keys}
    return {key: node.source for key, node in nodes.items() if node is not None}


def _auto_confirm(layers: Layers) -> "AutoConfirmConfig | None":
    if layers.node("auto_confirm") is None:
        return None
    # Off by default: most sessions start without the engine.
    from ironcurtain_proxy.config.auto_confirm import read_auto_confirm  # noqa: PLC0415

    return read_auto_confirm(layers)


def home_directory(environ: Mapping[str, str]) -> Path:
    """Return `$HOME` if it is an absolute path, else what the user database says.

    Raises:
        ConfigurationError: neither says it.
    """
    text = environ.get("HOME", "")
    if not text.startswith("/"):
        # Not on every platform, and one that lacks it has been refused in a clear line by now.
        import pwd  # noqa: PLC0415

        try:
            text = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            # As in a container that runs under a number without a name.
            why = f"HOME is not set, and user {os.getuid()} has no home: set HOME to a directory"
            raise ConfigurationError(why) from None
    return Path(os.path.normpath(text))


def _session(environ: Mapping[str, str], report: Report) -> str:
    said = environ.get(SESSION_VARIABLE, "")
    if not said.strip():
        return os.urandom(16).hex()
    if _SESSION.fullmatch(said) is None:
        # The name becomes that of a directory.
        report.error(SESSION_VARIABLE, (), "must be letters, digits, `.`, `_` or `-`, at most 128")
        return os.urandom(16).hex()
    return said
