"""`engine.json` of `decide --dir`: the kernel's files stand in one directory.

No other file is read: no user configuration, no shipped annotations, no built-in protected paths.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.policy_file import (
    LISTS_NAME,
    POLICY_NAME,
    SHORT_NAME,
    Purpose,
)
from ironcurtain_proxy.config.policy.policy_files import PolicyFiles
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, read_rule_files
from ironcurtain_proxy.config.reading.document import DocumentNode, Report, strictly
from ironcurtain_proxy.config.reading.forms import (
    Document,
    NameText,
    read_form,
)
from ironcurtain_proxy.config.reading.layers import absolute, real, working_directory
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.servers.remote_entry import AskForm, asked
from ironcurtain_proxy.model.condition_reading import host_patterns
from ironcurtain_proxy.model.policy import Policy, ProtectedPath, UnknownTools
from ironcurtain_proxy.model.values import RealPath

ENGINE_NAME: Final = "engine.json"


class EngineForm(Document, frozen=True, kw_only=True):
    """What stands for the settings in a `decide` directory."""

    allowed_directory: NameText | None = None
    protected_paths: tuple[NameText, ...] = ()
    domain_allowlists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Host patterns by server."""
    trusted_servers: tuple[str, ...] = ()
    unknown_tools: UnknownTools = "deny"
    ask: dict[str, AskForm] = field(default_factory=dict)
    """The questions that a server may ask, by server."""
    home: NameText | None = None
    """The directory that `~` stands for."""
    container_workspace_dir: NameText | None = None


class LoadedEngine(Struct, frozen=True, kw_only=True):
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
    return strictly(lambda report: gather_engine(directory, home, report))


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
        self._data, self._said, self._node = self._read(directory / ENGINE_NAME)
        self._home = self._path("home", self._said.home) or home

    def engine(self, purpose: Purpose) -> LoadedEngine:
        said = self._said
        directory = self._path("allowedDirectory", said.allowed_directory)
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
            domain_allowlists={
                server: host_patterns(hosts) for server, hosts in said.domain_allowlists.items()
            },
            trusted_servers=frozenset(said.trusted_servers),
            unknown_tools=said.unknown_tools,
            may_ask={server: frozenset(asked(words)) for server, words in said.ask.items()},
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
        return LoadedEngine(
            loaded=loaded,
            home=self._home,
            container_workspace_dir=said.container_workspace_dir,
        )

    def _read(self, path: Path) -> tuple[bytes, EngineForm, DocumentNode]:
        read = read_form(path, EngineForm, self._report) if is_there(path) else None
        return (b"", EngineForm(), DocumentNode(None, str(path), None)) if read is None else read

    def _protected(self, workspace: RealPath | None) -> tuple[ProtectedPath, ...]:
        said = enumerate(self._said.protected_paths)
        paths = [self._path(("protectedPaths", index), text) for index, text in said]
        # As in the original: the workspace is exempt at any location.
        return tuple(
            [
                ProtectedPath(path=real(path), unless_within=workspace)
                for path in paths
                if path is not None
            ]
        )

    def _path(self, place: str | tuple[str, int], text: str | None) -> Path | None:
        if not text:
            return None
        try:
            return absolute(text, self._home, working_directory())
        except ValueError as error:
            parts = (place,) if isinstance(place, str) else place
            self._node.at(*parts).error(str(error))
            return None
