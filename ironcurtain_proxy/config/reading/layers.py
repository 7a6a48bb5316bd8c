"""Environment over configuration file: which of the two said what.

This file does not know the defaults, nor what a setting is for. A later section of the
configuration file, or one inside another, is one line in `_SECTIONS`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.environment import CONFIG_VARIABLE, Environment
from ironcurtain_proxy.config.reading.operator_paths import (
    STATE_DIRECTORY,
    absolute,
    expand_home,
    working_directory,
)
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import is_there, read_document

CONFIG_NAME: Final = "config.json"

_KEYS: Final = (
    "mcpServers",
    "mcpServersFile",
    "generatedDir",
    "toolAnnotationsDir",
    "allowedDirectory",
    "protectedPaths",
    "containerWorkspaceDir",
    "composites",
    "escalationDir",
    "escalationTimeoutSeconds",
    "auto_confirm",
    "auditLogPath",
    "auditFsync",
    "auditWriteDeadlineSeconds",
    "auditMaxBytes",
    "sessionLogPath",
    "sessionRetentionDays",
    "sandboxPolicy",
    "serverFilter",
    "serverCredentials",
    "maxMessageBytes",
    "forwardMeta",
    "drainSeconds",
    "anthropicApiKey",
    "googleApiKey",
    "openaiApiKey",
)
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "auditRedaction": ("enabled",),
        "autoApprove": (
            *("enabled", "modelId", "apiBase", "targetCheck", "deadlineSeconds"),
            *("maxPerMinute", "maxOutages", "llmLogPath"),
        ),
        "capabilities": ("profile", "isolation", "profiles", "tools"),
        "circuitBreaker": ("threshold", "windowSeconds"),
        "containment": ("undo", "max_bytes", "max_files", "keep_days", "caches"),
        "escalation": ("mode", "holdAfterSeconds", "channels", "requireDigest"),
        "grants": ("ttlSeconds",),
        "grants.persist": ("enabled", "scope", "expiresDays"),
        "security": (),
        "security.interceptor": (
            *("enabled", "approvalPolicy", "exemptTools", "sensitiveTools"),
            *("approvalContained", "approvalAllowed", "approvalRequired"),
        ),
    }
)
"""The keys of each section, besides the sections inside it."""

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Layer:
    """One place settings come from."""

    spots: Mapping[str, Spot]
    """By key; one inside a section is `section.key`. A section is there as a whole, too."""
    base: Path
    """What relative paths are relative to."""


@dataclass(frozen=True, slots=True)
class Layers:
    """What was said, the environment first."""

    environment: Layer
    file: Layer
    config_file: Path | None
    home: Path
    file_is_unread: bool = False
    """There is a configuration file, and it cannot be read: what it says is not known."""

    def read(self, key: str, read: Callable[[Spot], T], default: D) -> T | D:
        """A setting, or its default. Both places are read, so that both hear of mistakes."""
        found = [
            read(layer.spots[key]) for layer in (self.environment, self.file) if key in layer.spots
        ]
        return found[0] if found else default

    def path(self, key: str) -> Path | None:
        """A setting that names a path, absolute, or None."""
        return self.read(key, self.as_path, None)

    def paths(self, key: str) -> tuple[Path, ...]:
        """A setting that lists paths."""
        found = self.read(key, lambda spot: spot.each(self.as_path), ())
        return tuple([path for path in found if path is not None])

    def as_path(self, spot: Spot) -> Path | None:
        """A path in the words of either place.

        Relative ones are against the file that holds them; in the environment, against our own
        working directory.
        """
        text = spot.name()
        in_file = self.config_file is not None and spot.source == str(self.config_file)
        base = self.file.base if in_file else self.environment.base
        if not text:
            return None
        try:
            return absolute(text, self.home, base)
        except ValueError as error:
            spot.error(str(error))
            return None

    def spot(self, key: str) -> Spot | None:
        """The words that count for a setting, or None."""
        return self.environment.spots.get(key) or self.file.spots.get(key)


def read_layers(
    environ: Mapping[str, str],
    environment: Environment,
    config: Path | None,
    home: Path,
    report: Report,
) -> Layers:
    """Read the configuration file, if there is one, and lay the environment over it."""
    file = _find(environ, config, home)
    read = None if file is None else read_document(file, report)
    spots: dict[str, Spot] = {}
    if read is not None:
        _gather(read[1], "", spots)
    return Layers(
        environment=Layer(environment.spots, working_directory()),
        file=Layer(spots, home if file is None else file.parent),
        config_file=file,
        home=home,
        file_is_unread=file is not None and read is None,
    )


def _find(environ: Mapping[str, str], config: Path | None, home: Path) -> Path | None:
    """The file: as the command line says, else the environment, else the usual one if it exists."""
    said = str(config) if config is not None else environ.get(CONFIG_VARIABLE, "").strip()
    if said:
        return Path(os.path.normpath(working_directory() / expand_home(said, home)))
    usual = home / STATE_DIRECTORY / CONFIG_NAME
    return usual if is_there(usual) else None


def _gather(spot: Spot, section: str, spots: dict[str, Spot]) -> None:
    """What a section says, and those inside it; the file as a whole is the section ``."""
    prefix = f"{section}." if section else ""
    inner = {name.removeprefix(prefix) for name in _SECTIONS if name.startswith(prefix)}
    sections = {name for name in inner if "." not in name}
    keys = _SECTIONS[section] if section else _KEYS
    members = spot.object((*keys, *sorted(sections)))
    for key in members:
        name = prefix + key
        spots[name] = members.required(key)
        if key in sections:
            _gather(spots[name], name, spots)
