"""Joining policy, annotations and lists into the kernel's input."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ironcurtain_proxy.config.policy.annotations_file import AnnotationsFile, read_annotations_file
from ironcurtain_proxy.config.policy.lists_file import ListsFile, read_lists_file
from ironcurtain_proxy.config.policy.policy_file import (
    PolicyFile,
    PolicyReader,
    Purpose,
    host_patterns,
)
from ironcurtain_proxy.config.policy.policy_files import (
    ANNOTATIONS_NAME,
    SHIPPED,
    PolicyFiles,
    find_policy_files,
)
from ironcurtain_proxy.config.policy.protection import protected_names, protected_paths
from ironcurtain_proxy.config.reading.problems import Problem, Report, shown
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import Policy
from ironcurtain_proxy.model.server import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPolicy:
    """The loaded policy with its warnings."""

    policy: Policy
    annotations: Annotations
    files: PolicyFiles
    warnings: tuple[Problem, ...] = ()

    @property
    def version(self) -> str:
        """SHA-256 over the files, hexadecimal."""
        return self.policy.version


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFiles:
    """The files of a policy, read."""

    policy: PolicyFile
    annotations: Annotations
    version: str


def load_policy(settings: Settings) -> LoadedPolicy:
    """The policy that `serve` enforces, protected paths included.

    Raises:
        ProblemsError: a file cannot be used; it holds everything found.
    """
    report = Report()
    loaded = gather_policy(settings, report)
    report.raise_errors()
    return loaded


def gather_policy(settings: Settings, report: Report) -> LoadedPolicy:
    """Read the same for `check`. Never raises; unreadable parts are left out."""
    files = find_policy_files(settings, report)
    read = read_rule_files(files, settings.home, report, workspace=settings.workspace)
    policy = Policy(
        rules=read.policy.rules,
        workspace=settings.workspace,
        protected_paths=protected_paths(settings, files, report),
        protected_names=protected_names(settings),
        domain_allowlists=_domain_allowlists(settings.servers, report),
        version=read.version,
    )
    warnings = [problem for problem in report.problems if problem.severity == "warning"]
    return LoadedPolicy(
        policy=policy, annotations=read.annotations, files=files, warnings=tuple(warnings)
    )


def read_rule_files(
    files: PolicyFiles,
    home: Path,
    report: Report,
    *,
    workspace: RealPath | None = None,
    purpose: Purpose = "enforce",
    with_shipped: bool = True,
) -> RuleFiles:
    """Read the files; the operator's annotations of a server replace the shipped ones."""
    lists = None if files.lists is None else read_lists_file(files.lists, report)
    reader = PolicyReader(
        home=home,
        workspace=workspace,
        lists=None if lists is None else lists.lists,
        purpose=purpose,
        report=report,
    )
    policy = None if files.policy in files.absent else reader.read(files.policy)
    own = None
    if files.annotations is not None and files.annotations not in files.absent:
        own = read_annotations_file(files.annotations, report)
    shipped = read_annotations_file(SHIPPED / ANNOTATIONS_NAME, report) if with_shipped else None
    policy = policy or PolicyFile(b"", ())
    return RuleFiles(
        policy=policy,
        annotations=_merged(shipped, own),
        version=_version((policy, lists, own, shipped)),
    )


def _merged(shipped: AnnotationsFile | None, own: AnnotationsFile | None) -> Annotations:
    if shipped is None or own is None:
        one = shipped or own
        return {} if one is None else one.annotations
    kept = {key: a for key, a in shipped.annotations.items() if key[0] not in own.servers}
    return {**kept, **own.annotations}


def _version(files: Iterable[PolicyFile | AnnotationsFile | ListsFile | None]) -> str:
    digest = sha256()
    for file in files:
        data = b"" if file is None else file.data
        # With its length: moving bytes from one file to the next must not give the same hash.
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def _domain_allowlists(
    servers: Iterable[ServerSpec], report: Report
) -> Mapping[str, frozenset[str]]:
    """By annotation name, as the kernel sees it: servers with the same name share the allowlist."""
    allowlists: dict[str, frozenset[str]] = {}
    for server in servers:
        if not server.allowed_domains:
            continue
        mine = host_patterns(server.allowed_domains)
        common = allowlists.get(server.annotations, mine) & mine
        if not common:
            # An empty list would turn the domain gate off.
            report.error(
                f"server {shown(server.name)}",
                (),
                f"has no allowed domain in common with others annotated as "
                f"{shown(server.annotations)}: give them the same sandbox.network.allowedDomains",
            )
        allowlists[server.annotations] = common
    return allowlists
