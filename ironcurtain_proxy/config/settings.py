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
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ironcurtain_proxy.config.overlay_settings import (
    OVERLAY_KEYS,
    OverlaySettings,
    read_overlay,
    with_own_shell,
)
from ironcurtain_proxy.config.reading.declared import (
    declared,
    keys_of,
    number,
    one_of,
    setting,
    whole,
)
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.environment import SESSION_VARIABLE, read_environment
from ironcurtain_proxy.config.reading.layers import Layers, read_layers
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.reading.problems import Problem, Report
from ironcurtain_proxy.config.review_settings import (
    REVIEW_KEYS,
    AutoApproveSettings,
    EscalationSettings,
    read_auto_approve,
    read_escalation,
    read_provider_keys,
)
from ironcurtain_proxy.config.servers.server_choice import choose_servers
from ironcurtain_proxy.config.servers.workspace import container_workspace, find_workspace
from ironcurtain_proxy.config.timeline_settings import TimelineSettings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.pinning import PIN_MODES, PinMode
from ironcurtain_proxy.model.policy import UNKNOWN_TOOLS, UnknownTools
from ironcurtain_proxy.model.server import ServerSpec

if TYPE_CHECKING:
    from ironcurtain_proxy.config.auto_confirm.settings import AutoConfirmConfig

SandboxPolicy: TypeAlias = Literal["warn", "enforce"]
"""The consequence where no sandbox is available: run the server unconfined and say so, or refuse.
"""

FsyncMode: TypeAlias = Literal["group", "always"]
"""The moment of the sync to the disk: within 100 ms in groups, or for each record before its write
returns."""

MEBIBYTE: Final = 1024 * 1024
_SANDBOX_POLICIES: Final[tuple[SandboxPolicy, ...]] = ("warn", "enforce")
_FSYNC_MODES: Final[tuple[FsyncMode, ...]] = ("group", "always")
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_CONTAINMENT: Final = "containment."

SESSIONS: Final = "sessions"
"""The directory below `~/.ironcurtain` with one for each session."""


def _names(spot: Spot) -> frozenset[str]:
    return frozenset(spot.each(Spot.name))


def _collector(spot: Spot) -> str:
    url = spot.name()
    if not url.startswith(("http://", "https://")):
        spot.error("must be a URL that begins with http:// or https://")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Settings of the audit log."""

    path: Path
    redact: bool = setting("auditRedaction.enabled", Spot.switch, default=True)
    fsync: FsyncMode = setting("auditFsync", one_of(_FSYNC_MODES), "group")
    write_deadline_seconds: float = setting("auditWriteDeadlineSeconds", number(0, 3600), 5.0)
    max_bytes: int | None = setting("auditMaxBytes", whole(MEBIBYTE, 1 << 50), None)
    """The size at which the log is rotated; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """The number of identical calls that pass within a window."""

    threshold: int = setting("threshold", whole(1, 1_000_000), 20)
    window_seconds: float = setting("windowSeconds", number(0, 3600), 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Settings of spans and metrics."""

    enabled: bool = setting("enabled", Spot.switch, default=False)
    endpoint: str | None = setting("endpoint", _collector, None)
    """The URL of a collector; None: the one in the environment, else this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainmentSettings:
    """Settings of containment."""

    undo: bool = setting("undo", Spot.switch, default=False)
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
    project_policy: bool = setting("policy.project", Spot.switch, default=True)
    """Whether the workspace may have a layer of policy, which narrows."""
    policy_reload: bool = setting("policy.reload", Spot.switch, default=True)
    """Whether a running session takes over a changed policy."""
    shadow_policy: Path | None = None
    """A candidate that is judged beside the policy and recorded; None: there is none."""
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
    escalation_timeout_seconds: int = setting("escalationTimeoutSeconds", whole(1, 86_400), 300)
    """Seconds that an escalation, or a call to a server, may take."""
    max_message_bytes: int = setting("maxMessageBytes", whole(4096, 1 << 31), 64 * MEBIBYTE)
    forward_meta: frozenset[str] = setting("forwardMeta", _names, frozenset())
    """Keys of a call's `_meta` that are forwarded to servers, besides the standard ones."""
    server_in_names: bool = setting("serverInNames", Spot.switch, default=False)
    """Whether the agent's names of tools carry their server's also where there is one server."""
    drain_seconds: float = setting("drainSeconds", number(0, 3600), 15.0)
    """Seconds that calls in progress may take to finish once the agent has closed its input."""
    audit: AuditSettings
    session_log: Path
    session_retention_days: int = setting("sessionRetentionDays", whole(0, 36_500), 14)
    """Days for which the directories of ended sessions are kept; 0: for ever."""
    sandbox_policy: SandboxPolicy = setting("sandboxPolicy", one_of(_SANDBOX_POLICIES), "warn")
    unknown_tools: UnknownTools = setting("unknownTools", one_of(UNKNOWN_TOOLS), "deny")
    pins: PinMode = setting("pins", one_of(PIN_MODES), "on")
    """The treatment of changed descriptions, for servers whose entry names none."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    escalation: EscalationSettings = field(default_factory=EscalationSettings)
    auto_approve: AutoApproveSettings = field(default_factory=AutoApproveSettings)
    provider_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """API keys of models from the file, by provider."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    containment: ContainmentSettings = field(default_factory=ContainmentSettings)
    timeline: TimelineSettings = field(default_factory=TimelineSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)
    auto_confirm: "AutoConfirmConfig | None" = None
    """The settings of the engine; None: the section does not exist."""
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


KEYS: Final = (
    *("mcpServers", "mcpServersFile", "serverFilter", "serverCredentials"),
    *("generatedDir", "toolAnnotationsDir", "policy.shadow", "auto_confirm"),
    *("allowedDirectory", "protectedPaths", "containerWorkspaceDir"),
    *("escalationDir", "auditLogPath", "sessionLogPath"),
    *keys_of(Settings),
    *keys_of(AuditSettings),
    *keys_of(BreakerSettings, "circuitBreaker."),
    *keys_of(TelemetrySettings, "telemetry."),
    *keys_of(ContainmentSettings, _CONTAINMENT),
    *keys_of(TimelineSettings, _CONTAINMENT),
    *REVIEW_KEYS,
    *OVERLAY_KEYS,
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
    spots = {key: layers.spot(key) for key in keys}
    return {key: spot.source for key, spot in spots.items() if spot is not None}


def _auto_confirm(layers: Layers) -> "AutoConfirmConfig | None":
    if layers.spot("auto_confirm") is None:
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
