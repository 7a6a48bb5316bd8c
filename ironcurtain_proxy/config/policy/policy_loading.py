"""Joining policy, annotations and lists into the kernel's input."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct, field, structs

from ironcurtain_proxy.config.packs.pack import pack_file
from ironcurtain_proxy.config.policy.annotations_file import AnnotationsFile, read_annotations_file
from ironcurtain_proxy.config.policy.bundled import Bundle
from ironcurtain_proxy.config.policy.layer_reading import LayerReader, ReadRules, read_lists
from ironcurtain_proxy.config.policy.managed import check_kept
from ironcurtain_proxy.config.policy.policy_file import ListsFile, PolicyReader, Purpose
from ironcurtain_proxy.config.policy.policy_files import (
    ANNOTATIONS_NAME,
    POLICY_NAME,
    SHIPPED,
    PolicyFiles,
    find_policy_files,
    managed_of,
    with_candidate,
)
from ironcurtain_proxy.config.policy.protection import protected_names, protected_paths
from ironcurtain_proxy.config.reading.problems import Problem, Report, shown
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.servers.recognition import recognised_pack
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.annotation import Annotations
from ironcurtain_proxy.model.condition_reading import host_patterns
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import AskKind, Policy
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.signing import NO_SIGNATORIES

SHIPPED_ANNOTATIONS: Final = SHIPPED / ANNOTATIONS_NAME


class LoadedPolicy(Struct, frozen=True, kw_only=True):
    """The loaded policy with its warnings."""

    policy: Policy
    annotations: Annotations
    files: PolicyFiles
    rules: ReadRules
    """The rules of each layer, with their places."""
    prompts: Annotations = field(default_factory=dict)
    """The annotations of prompts, by server and prompt."""
    warnings: tuple[Problem, ...] = ()

    @property
    def bundle(self) -> Bundle | None:
        """The fleet's bundle, or None if this machine is not enrolled."""
        return None if self.files.managed is None else self.files.managed.bundle

    @property
    def revoked_grants(self) -> frozenset[str]:
        """The ids of the grants that the fleet has revoked."""
        return frozenset() if self.bundle is None else self.bundle.revoked.grants

    @property
    def version(self) -> str:
        """SHA-256 over the files, hexadecimal."""
        return self.policy.version


class RuleFiles(Struct, frozen=True, kw_only=True):
    """The files of a policy, read."""

    rules: ReadRules
    annotations: Annotations
    prompts: Annotations
    version: str


def load_policy(settings: Settings) -> LoadedPolicy:
    """Return the policy that `serve` enforces, protected paths included.

    Raises:
        ProblemsError: a file cannot be used; it holds everything found.
    """
    report = Report()
    loaded = gather_policy(settings, report)
    report.raise_errors()
    return loaded


def gather_policy(settings: Settings, report: Report) -> LoadedPolicy:
    """Read the policy for `check`. Never raises; unreadable parts are left out."""
    files = find_policy_files(settings, report)
    return load_files(settings, files, report)


def load_candidate(settings: Settings, candidate: Path, report: Report) -> LoadedPolicy:
    """Read the policy as it would be with another file of the operator's rules. Never raises."""
    files = with_candidate(find_policy_files(settings, Report()), candidate)
    return load_files(settings, files, report)


def gather_managed(settings: Settings, report: Report) -> LoadedPolicy:
    """Read the administrator's layer without the user's and the project's. Never raises.

    It takes effect in a running session also where the files of the user cannot be used.
    """
    managed = managed_of(settings, report)
    files = replace(
        find_policy_files(settings, Report()),
        policy=SHIPPED / POLICY_NAME,
        short=None,
        annotations=None,
        lists=None,
        project=None,
        # What is kept is held against the settings at the start, which do not change any more.
        managed=None if managed is None else structs.replace(managed, kept=frozenset()),
    )
    return load_files(settings, files, report)


def load_files(settings: Settings, files: PolicyFiles, report: Report) -> LoadedPolicy:
    """Read the policy of these files. Never raises."""
    read = read_rule_files(
        files,
        settings.home,
        report,
        workspace=settings.workspace,
        # Our own shell is described by us, wherever the policy stands.
        shipped=(
            SHIPPED_ANNOTATIONS,
            *packs_of([one for one in settings.servers if one.builtin or not files.alone]),
        ),
    )
    policy = Policy(
        rules=read.rules.rules,
        floors=read.rules.floors,
        workspace=settings.workspace,
        protected_paths=protected_paths(settings, files, report),
        protected_names=protected_names(settings),
        domain_allowlists=_domain_allowlists(settings.servers, report),
        unknown_tools=settings.unknown_tools,
        may_ask=_may_ask(settings.servers),
        version=read.version,
    )
    if files.managed is not None:
        check_kept(settings, files.managed, report)
    _check_reviewers(settings, files, read.rules, report)
    warnings = [problem for problem in report.problems if problem.severity == "warning"]
    return LoadedPolicy(
        policy=policy,
        annotations=read.annotations,
        prompts=read.prompts,
        files=files,
        rules=read.rules,
        warnings=tuple(warnings),
    )


def _check_reviewers(
    settings: Settings, files: PolicyFiles, rules: ReadRules, report: Report
) -> None:
    """Report mistakes in `reviewers.json`, and rules whose signatures nobody could give."""
    there = files.reviewers is not None and is_there(files.reviewers)
    every = (*rules.rules, *[rule for floor in rules.floors for rule in floor.rules])
    if not there and all(rule.quorum is None for rule in every):
        return
    # Most installations have none: it is not imported for them.
    from ironcurtain_proxy.config.policy.reviewers_file import (  # noqa: PLC0415
        check_quorums,
        read_reviewers,
    )

    known = None
    if there and files.reviewers is not None:
        known = read_reviewers(files.reviewers, settings.home, report)
        if known is None:
            return
    check_quorums(every, known or NO_SIGNATORIES, report)


def packs_of(servers: Iterable[ServerSpec]) -> tuple[Path, ...]:
    """Return the packs of these servers, each once.

    A server has a pack if its command starts the pack's package, or if its entry names the pack. A
    name that only happens to be that of a pack counts for nothing.
    """
    found: dict[str, Path] = {}
    for spec in servers:
        file = pack_file(spec.annotations)
        named = spec.annotations != spec.name
        if file is not None and (
            named or recognised_pack(spec.command, spec.args) == spec.annotations
        ):
            found[spec.annotations] = file
    return tuple(found.values())


def read_rule_files(
    files: PolicyFiles,
    home: Path,
    report: Report,
    *,
    workspace: RealPath | None = None,
    purpose: Purpose = "enforce",
    shipped: Sequence[Path] = (SHIPPED_ANNOTATIONS,),
) -> RuleFiles:
    """Read the files of all layers.

    Args:
        files: the files to read.
        home: the directory that `~` stands for.
        report: gets the problems.
        workspace: the directory that `@workspace` stands for.
        purpose: the purpose of the policy.
        shipped: the annotations of the package that apply, packs included.
    """
    lists = read_lists(files.lists, report)
    reader = PolicyReader(
        home=home,
        workspace=workspace,
        lists=None if lists is None else lists.lists,
        purpose=purpose,
        report=report,
    )
    rules = LayerReader(reader=reader, report=report).read(files)
    own = None
    if files.annotations is not None and files.annotations not in files.absent:
        own = read_annotations_file(files.annotations, report)
    ours = [read_annotations_file(file, report) for file in shipped]
    named: tuple[Path, ...] = ()
    if files.managed is not None and files.managed.bundle is not None:
        named = files.managed.bundle.annotations()
    # Above the user's: an annotation that says less of a tool would open what the maximum closes.
    fleet = [read_annotations_file(file, report) for file in named]
    return RuleFiles(
        rules=rules,
        annotations=_merged(
            ours, (own, *fleet), lambda file: file.annotations, by_server=files.alone
        ),
        prompts=_merged(ours, (own, *fleet), lambda file: file.prompts, by_server=files.alone),
        version=_version((*rules.data, *[_data(file) for file in (lists, own, *ours)])),
    )


def _merged(
    shipped: Sequence[AnnotationsFile | None],
    above: Sequence[AnnotationsFile | None],
    of: Callable[[AnnotationsFile], Annotations],
    *,
    by_server: bool,
) -> Annotations:
    """Return the annotations: the operator's above the shipped ones, the fleet's above both.

    In a directory that stands alone, the operator's annotations of a server replace all shipped
    ones of that server.
    """
    own = above[0]
    replaced = own.servers if own is not None and by_server else frozenset()
    kept = {
        key: annotation
        for file in shipped
        if file is not None
        for key, annotation in of(file).items()
        if key[0] not in replaced
    }
    for one in above:
        kept |= {} if one is None else of(one)
    return kept


def _data(file: AnnotationsFile | ListsFile | None) -> bytes:
    return b"" if file is None else file.data


def _version(files: Iterable[bytes]) -> str:
    digest = sha256()
    for data in files:
        # With its length: moving bytes from one file to the next must not give the same hash.
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def _may_ask(servers: Iterable[ServerSpec]) -> Mapping[str, frozenset[AskKind]]:
    """Return the questions that all servers with an annotation name may ask, by that name."""
    allowed: dict[str, frozenset[AskKind]] = {}
    for server in servers:
        mine = frozenset(server.ask)
        allowed[server.annotations] = allowed.get(server.annotations, mine) & mine
    return allowed


def _domain_allowlists(
    servers: Iterable[ServerSpec], report: Report
) -> Mapping[str, frozenset[str]]:
    """Return the allowlist of each annotation name: servers with the same name share it."""
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
