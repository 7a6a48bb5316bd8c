"""All settings of `serve`: the environment over the configuration file over defaults.

This module has the names and defaults of settings. Precedence and the allowed keys of the file
are in `layers`, the variables in `environment`.
"""

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from ironcurtain_proxy.config.overlay_settings import (
    OVERLAY_KEYS,
    GrantSettings,
    OverlaySettings,
    read_overlay,
    with_own_shell,
)
from ironcurtain_proxy.config.reading.declared import declared, keys_of, setting
from ironcurtain_proxy.config.reading.forms import SCHEMA_KEY, NameText, Seconds, says
from ironcurtain_proxy.config.reading.layers import (
    SESSION_VARIABLE,
    STATE_DIRECTORY,
    Layers,
    read_environment,
    read_layers,
)
from ironcurtain_proxy.config.reading.problems import Problem, Report
from ironcurtain_proxy.config.review_settings import (
    PROVIDER_KEYS,
    AutoApproveSettings,
    EscalationSettings,
    NoticeSettings,
    TargetSettings,
    read_auto_approve,
    read_escalation,
    read_provider_keys,
)
from ironcurtain_proxy.config.servers.servers_file import (
    choose_servers,
    container_workspace,
    find_workspace,
)
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.policy import UnknownTools
from ironcurtain_proxy.model.server import PinMode, ServerSpec
from ironcurtain_proxy.model.values import RealPath

if TYPE_CHECKING:
    from ironcurtain_proxy.config.auto_confirm.settings import AutoConfirmConfig


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSettings:
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
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_CONTAINMENT: Final = "containment."

SESSIONS: Final = "sessions"
"""The directory below `~/.ironcurtain` with one for each session."""


_Collector: TypeAlias = Annotated[
    str,
    says(r"https?://[^\x00]*", "must be a URL that begins with http:// or https://", 1),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Settings of the audit log."""

    path: Path
    redact: bool = setting("auditRedaction.enabled", default=True)
    fsync: FsyncMode = setting("auditFsync", "group")
    write_deadline_seconds: Seconds = setting("auditWriteDeadlineSeconds", 5.0)
    max_bytes: Annotated[int, Meta(ge=MEBIBYTE, le=1 << 50)] | None = setting("auditMaxBytes", None)
    """The size at which the log is rotated; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """The number of identical calls that pass within a window."""

    threshold: Annotated[int, Meta(ge=1, le=1_000_000)] = setting("threshold", 20)
    window_seconds: Seconds = setting("windowSeconds", 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Settings of spans and metrics."""

    enabled: bool = setting("enabled", default=False)
    endpoint: _Collector | None = setting("endpoint", None)
    """The URL of a collector; None: the one in the environment, else this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainmentSettings:
    """Settings of containment."""

    undo: bool = setting("undo", default=False)
    """Make a point of the workspace before each call that may change it, so that it can be undone.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of the proxy, validated."""

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
    """Days for which the directories of ended sessions are kept; 0: for ever."""
    sandbox_policy: SandboxPolicy = setting("sandboxPolicy", "warn")
    unknown_tools: UnknownTools = setting("unknownTools", "deny")
    pins: PinMode = setting("pins", "on")
    """The treatment of changed descriptions, for servers whose entry names none."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    escalation: EscalationSettings = field(default_factory=EscalationSettings)
    auto_approve: AutoApproveSettings = field(default_factory=AutoApproveSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    provider_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """API keys of models from the file, by provider."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    containment: ContainmentSettings = field(default_factory=ContainmentSettings)
    timeline: TimelineSettings = field(default_factory=TimelineSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
    auto_confirm: "AutoConfirmConfig | None" = None
    """The settings of the engine, or None if the section does not exist."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret variables by name; they are removed from the environment."""
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)
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

    @staticmethod
    def from_environment(
        environ: Mapping[str, str] | None = None, config: Path | None = None
    ) -> "Settings":
        """Read all settings, as `serve` does at its start. The mapping is not changed.

        Args:
            environ: the variables; None: those of this process.
            config: the configuration file; None: the one that the variables or the home have.

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
    report = Report()
    settings = gather_settings(environ, config, report)
    report.raise_errors()
    return settings


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
    from ironcurtain_proxy.config.auto_confirm.settings import read_auto_confirm  # noqa: PLC0415

    return read_auto_confirm(layers)


def home_directory(environ: Mapping[str, str]) -> Path:
    """`$HOME` if it is an absolute path, else what the user database says."""
    text = environ.get("HOME", "")
    if not text.startswith("/"):
        # Not on every platform, and one that lacks it has been refused in a clear line by now.
        import pwd  # noqa: PLC0415

        text = pwd.getpwuid(os.getuid()).pw_dir
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
