"""`decide --dir`: the kernel's files in one directory, with `engine.json` instead of settings.

No other file is read: no user configuration, no shipped annotations, no built-in protected
paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.policy.policy_file import Purpose
from ironcurtain_proxy.config.policy.policy_files import (
    ANNOTATIONS_NAME,
    LISTS_NAME,
    POLICY_NAME,
    PolicyFiles,
)
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, read_rule_files
from ironcurtain_proxy.config.policy.short_form import SHORT_NAME
from ironcurtain_proxy.config.reading.document import Members, Spot
from ironcurtain_proxy.config.reading.operator_paths import absolute, real, working_directory
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import is_there, read_document
from ironcurtain_proxy.config.servers.servers_file import asking
from ironcurtain_proxy.model.condition_reading import host_patterns
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import UNKNOWN_TOOLS, AskKind, Policy, ProtectedPath

ENGINE_NAME: Final = "engine.json"
_KEYS: Final = (
    "allowedDirectory",
    "protectedPaths",
    "domainAllowlists",
    "trustedServers",
    "unknownTools",
    "ask",
    "home",
    "containerWorkspaceDir",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """The files of one directory, read for decisions."""

    loaded: LoadedPolicy
    home: Path
    """The directory that `~` stands for."""
    container_workspace_dir: str | None = None


def load_engine(directory: Path, home: Path) -> LoadedEngine:
    """Read a `decide` directory; `home` is used if `engine.json` names none.

    Raises:
        ProblemsError: a file cannot be used; it holds everything found.
    """
    report = Report()
    loaded = gather_engine(directory, home, report)
    report.raise_errors()
    return loaded


def gather_engine(
    directory: Path, home: Path, report: Report, purpose: Purpose = "replay"
) -> LoadedEngine:
    """Read a `decide` directory for `check --dir`. Never raises; unreadable parts are left out."""
    return _EngineReader(directory, home, report).engine(purpose)


class _EngineReader:
    """Reads one directory."""

    def __init__(self, directory: Path, home: Path, report: Report) -> None:
        self._report = report
        self._home = home
        lists, short = directory / LISTS_NAME, directory / SHORT_NAME
        self._files = PolicyFiles(
            policy=directory / POLICY_NAME,
            annotations=directory / ANNOTATIONS_NAME,
            lists=lists if is_there(lists) else None,
            short=short if is_there(short) else None,
            alone=True,
        )
        self._data, self._said = self._read(directory / ENGINE_NAME)
        self._home = self._path("home") or home

    def engine(self, purpose: Purpose) -> LoadedEngine:
        directory = self._path("allowedDirectory")
        workspace = None if directory is None else real(directory)
        read = read_rule_files(
            self._files,
            self._home,
            self._report,
            workspace=workspace,
            purpose=purpose,
            shipped=(),
        )
        policy = Policy(
            rules=read.rules.rules,
            floors=read.rules.floors,
            workspace=workspace,
            protected_paths=self._protected(workspace),
            domain_allowlists=self._allowlists(),
            trusted_servers=frozenset(self._said.read("trustedServers", Spot.texts, ())),
            unknown_tools=self._said.read(
                "unknownTools", lambda spot: spot.word(UNKNOWN_TOOLS), "deny"
            ),
            may_ask=self._may_ask(),
            version=sha256(read.version.encode() + self._data).hexdigest(),
        )
        warnings = [p for p in self._report.problems if p.severity == "warning"]
        loaded = LoadedPolicy(
            policy=policy,
            annotations=read.annotations,
            prompts=read.prompts,
            files=self._files,
            rules=read.rules,
            warnings=tuple(warnings),
        )
        alias = self._optional("containerWorkspaceDir")
        return LoadedEngine(
            loaded=loaded,
            home=self._home,
            container_workspace_dir=None if alias is None else alias.name(),
        )

    def _read(self, path: Path) -> tuple[bytes, Members]:
        read = read_document(path, self._report) if is_there(path) else None
        if read is None:
            return b"", Members(Spot(None, str(path), None), {})
        return read[0], read[1].object(_KEYS)

    def _protected(self, workspace: RealPath | None) -> tuple[ProtectedPath, ...]:
        paths = self._said.read("protectedPaths", lambda spot: spot.each(self._as_path), ())
        # As in the original: the workspace is exempt at any location.
        return tuple(
            [
                ProtectedPath(path=real(path), unless_within=workspace)
                for path in paths
                if path is not None
            ]
        )

    def _allowlists(self) -> Mapping[str, frozenset[str]]:
        lists = self._said.read("domainAllowlists", Spot.members, {})
        return {server: host_patterns(spot.texts()) for server, spot in lists.items()}

    def _may_ask(self) -> Mapping[str, frozenset[AskKind]]:
        said = self._said.read("ask", Spot.members, {})
        return {server: frozenset(asking(spot)) for server, spot in said.items()}

    def _optional(self, key: str) -> Spot | None:
        """A member that may be absent or null."""
        spot = self._said.get(key)
        return None if spot is None or spot.value is None else spot

    def _path(self, key: str) -> Path | None:
        spot = self._optional(key)
        return None if spot is None else self._as_path(spot)

    def _as_path(self, spot: Spot) -> Path | None:
        try:
            return absolute(spot.name(), self._home, working_directory())
        except ValueError as error:
            spot.error(str(error))
            return None
