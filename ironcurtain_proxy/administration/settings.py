"""Everything `serve` was told: environment over configuration file over defaults.

This file knows what a setting is called and which place wins; the shape of the file is in
`settings_file`, the reading of variables in `environment`.
"""

import os
import pwd
import re
import secrets as random_source
import stat
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ironcurtain_proxy.administration.environment import (
    SERVERS_VARIABLE,
    Environment,
    read_environment,
    variable_of,
)
from ironcurtain_proxy.administration.operator_paths import absolute, real
from ironcurtain_proxy.administration.problems import Problem, Report
from ironcurtain_proxy.administration.reading import read_document
from ironcurtain_proxy.administration.server_choice import chosen
from ironcurtain_proxy.administration.servers_file import (
    ServersReader,
    parse_servers,
    read_servers_file,
)
from ironcurtain_proxy.administration.settings_file import FsyncMode, SandboxPolicy, SettingsShape
from ironcurtain_proxy.administration.shapes import read_shape
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.server import ServerSpec

STATE_DIRECTORY: Final = ".ironcurtain"
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """How calls are recorded."""

    path: Path
    redact: bool = True
    fsync: FsyncMode = "group"
    write_deadline_seconds: float = 5.0
    max_bytes: int | None = None
    """The log is rotated beyond this; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """How many identical calls are let through."""

    threshold: int = 20
    window_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the proxy was told, checked."""

    home: Path
    state_dir: Path
    """`~/.ironcurtain`; it may not exist yet."""
    session: str
    """`IRONCURTAIN_SESSION_ID` or random; letters, digits, `.`, `_`, `-`."""
    config_file: Path | None = None
    """The configuration file that was read, or None."""
    servers: tuple[ServerSpec, ...] = ()
    """After `serverFilter`, with their credentials. May be empty."""
    servers_file: Path | None = None
    """The file the servers were read from, if it was one of their own."""
    generated_dir: Path | None = None
    """As the operator said; None: `~/.ironcurtain/generated`, then the packaged files."""
    tool_annotations_dir: Path | None = None
    workspace: RealPath | None = None
    container_workspace_dir: str | None = None
    protected_paths: tuple[Path, ...] = ()
    """The operator's, absolute; the built-in ones are in `protection`."""
    escalation_dir: Path | None = None
    """As the operator said: someone listens there. None: see `mailbox_dir`."""
    mailbox_dir: Path
    """`escalation_dir`, else `~/.ironcurtain/sessions/<session>`."""
    escalation_timeout_seconds: int = 300
    """Also the deadline of a call to a server."""
    max_message_bytes: int = 64 * 1024 * 1024
    audit: AuditSettings
    session_log: Path
    sandbox_policy: SandboxPolicy = "warn"
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret variables of later stages, by name: they are gone from the environment."""
    warnings: tuple[Problem, ...] = ()


def load_settings(environ: MutableMapping[str, str], config: Path | None = None) -> Settings:
    """Read all settings. Takes the secrets out of `environ`, even if something else is wrong.

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
    """Refuse what the kernel cannot hold its promises on (R-38).

    Raises:
        ConfigurationError: on Windows.
    """
    if platform in {"win32", "cygwin"}:
        raise ConfigurationError("Windows is not supported: run ironcurtain-proxy under WSL")


def gather_settings(
    environ: MutableMapping[str, str], config: Path | None, report: Report
) -> Settings:
    """The same for `check`: never raises; where something is wrong, its default stands."""
    environment = read_environment(environ, report)
    return _Gatherer(environ, config, environment, report).settings()


def home_directory(environ: Mapping[str, str]) -> Path:
    """`$HOME` if it is an absolute path, else what the user database says."""
    text = environ.get("HOME", "")
    return Path(os.path.normpath(text if text.startswith("/") else pwd.getpwuid(os.getuid())[5]))


@dataclass(frozen=True, slots=True)
class _Layer:
    """One place settings come from."""

    shape: SettingsShape
    source: str
    """Empty: the environment."""
    base: Path
    """What relative paths are relative to."""

    def name(self, key: str) -> str:
        return self.source or variable_of(key)

    def place(self, *path: str | int) -> tuple[str | int, ...]:
        return path if self.source else path[1:]


class _Gatherer:
    """Joins the places into `Settings`."""

    def __init__(
        self,
        environ: Mapping[str, str],
        config: Path | None,
        environment: Environment,
        report: Report,
    ) -> None:
        self._environ = environ
        self._environment = environment
        self._report = report
        self._home = home_directory(environ)
        self._state = self._home / STATE_DIRECTORY
        self._config_file = self._find_config(config)
        file = self._read_config()
        base = self._state if self._config_file is None else self._config_file.parent
        self._layers = (
            _Layer(environment.shape, "", Path.cwd()),
            _Layer(file, str(self._config_file), base),
        )

    def settings(self) -> Settings:
        session = self._session()
        escalation_dir = self._path("escalationDir", "escalation_dir")
        sessions = self._state / "sessions" / session
        servers, servers_file = self._servers()
        return Settings(
            home=self._home,
            state_dir=self._state,
            session=session,
            config_file=self._config_file,
            servers=self._chosen(servers),
            servers_file=servers_file,
            generated_dir=self._path("generatedDir", "generated_dir"),
            tool_annotations_dir=self._path("toolAnnotationsDir", "tool_annotations_dir"),
            workspace=self._workspace(),
            container_workspace_dir=self._container_workspace(),
            protected_paths=self._protected_paths(),
            escalation_dir=escalation_dir,
            mailbox_dir=escalation_dir or sessions,
            escalation_timeout_seconds=self._value("escalation_timeout_seconds") or 300,
            max_message_bytes=self._value("max_message_bytes") or 64 * 1024 * 1024,
            audit=self._audit(),
            session_log=self._path("sessionLogPath", "session_log_path")
            or sessions / "session.log",
            sandbox_policy=self._value("sandbox_policy") or "warn",
            breaker=self._breaker(),
            secrets=self._environment.secrets,
            warnings=tuple([p for p in self._report.problems if p.severity == "warning"]),
        )
