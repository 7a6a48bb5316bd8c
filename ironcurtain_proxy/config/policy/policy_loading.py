"""The policy joined from its files into the kernel's input, and the files that no rule opens.

An agent that can write the policy, answer its own escalations or read a key needs no permission
any more. So no rule, grant or sandbox makes these files accessible. Each path is protected by its
own name and by its target, as they are at the start.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.annotations_file import (
    ANNOTATIONS_NAME,
    AnnotationsFile,
    read_annotations_file,
)
from ironcurtain_proxy.config.policy.managed import Bundle, check_kept
from ironcurtain_proxy.config.policy.policy_file import (
    POLICY_NAME,
    SHIPPED,
    ListsFile,
    PolicyReader,
    Purpose,
)
from ironcurtain_proxy.config.policy.policy_files import (
    LayerReader,
    PolicyFiles,
    ReadRules,
    find_policy_files,
    managed_of,
    project_directory,
    read_lists,
    with_candidate,
)
from ironcurtain_proxy.config.reading.document import Problem, Report, shown, strictly
from ironcurtain_proxy.config.reading.layers import as_named, real
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.servers.recognition import pack_file, recognised_pack
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.credentials import keys
from ironcurtain_proxy.model.annotation import CHANGES, Annotations, ArgumentRole
from ironcurtain_proxy.model.condition_reading import host_patterns
from ironcurtain_proxy.model.policy import AskKind, Policy, ProtectedName, ProtectedPath
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.signing import NO_SIGNATORIES
from ironcurtain_proxy.model.values import STEERING, STEERING_FILES, RealPath
from ironcurtain_proxy.version import PACKAGE_DIRECTORY

# --- protection


_EVERY_USE: Final[frozenset[ArgumentRole]] = CHANGES | {"read-path"}

_STEERING_FILES: Final = (
    # Commands that git, or an agent's own client, would run outside any policy.
    # The whole directory: a single file in it can make git read another configuration, other hooks
    # or another repository, or take the parent directory for one.
    (".git",),
    # Servers that the user's own client starts, with all rights of the user; and a project's own
    # layer of policy, which the agent must not loosen.
    *[(place, *f"{one}*".split("/")) for place, names in STEERING.items() for one in names],
    *[(name,) for name in STEERING_FILES],
)


def protected_paths(
    settings: Settings, files: PolicyFiles, report: Report
) -> tuple[ProtectedPath, ...]:
    """Return the proxy's own files, the user's keys, and the paths that the operator names.

    The workspace is exempt only from protected paths that contain it.
    """
    workspace = settings.workspace
    found: dict[RealPath, None] = {}
    for place in (*_own_places(settings, files), *settings.protected_paths):
        found.update(dict.fromkeys((as_named(place), real(place))))
    protected: list[ProtectedPath] = []
    for path in found:
        holds = workspace is not None and workspace.is_within(path)
        if holds and workspace == path:
            report.error(
                "the workspace", (), f"{path} is protected: name another directory as workspace"
            )
        protected.append(
            ProtectedPath(path=path, unless_within=workspace if holds else None, anchored=not holds)
        )
    return tuple([entry for entry in protected if not _is_covered(entry, protected)])


def protected_names(settings: Settings) -> tuple[ProtectedName, ...]:
    """Return names that must not be changed at any location, and files with generated names.

    In lower case, as they are compared.
    """
    names = [ProtectedName(parts=parts, roles=CHANGES) for parts in _STEERING_FILES]
    # A file assembled elsewhere and moved here would have the same effect.
    names += [ProtectedName(parts=(name,), roles=CHANGES, whole=True) for name in STEERING]
    for log in (settings.audit.path, settings.session_log):
        # The head file, rotated logs and the log of a second process lie beside it.
        directory = real(log.parent)
        names.append(_anchored((*directory.parts, f"{log.name}*"), _EVERY_USE))
    names.extend([_anchored(real(code).parts, CHANGES) for code in own_code()])
    return tuple(names)


def _is_covered(entry: ProtectedPath, others: Iterable[ProtectedPath]) -> bool:
    """Return whether another entry protects the same paths. Every call checks all entries."""
    return any(
        other.path != entry.path
        and entry.path.is_within(other.path)
        and not (other.unless_within is not None and entry.path.is_within(other.unless_within))
        for other in others
    )


def _own_places(settings: Settings, files: PolicyFiles) -> Iterable[Path]:
    yield settings.state_dir
    yield settings.mailbox_dir
    if settings.auto_confirm is not None:
        # A file in it may be an answer, and its token makes it valid.
        yield from settings.auto_confirm.mailboxes
        yield from settings.auto_confirm.token_files
    yield settings.audit.path
    yield settings.session_log
    for key in keys():
        yield settings.home / key
    for file in (settings.config_file, settings.servers_file):
        if file is not None:
            yield file
    # The sandbox program closes a path that does not exist by an empty file, which it leaves in the
    # workspace. A project's layer that does not exist is protected by its names alone.
    project = project_directory(settings)
    yield from (file for file in files.operators if file.parent != project or is_there(file))
    for directory in (settings.generated_dir, settings.tool_annotations_dir):
        # The directory is protected, too, lest it be moved away and replaced, unless that would
        # close the workspace itself.
        workspace = settings.workspace
        if directory is not None and (
            workspace is None or not workspace.is_within(real(directory))
        ):
            yield directory


def own_code() -> Iterable[Path]:
    """Return the proxy's own code: this package, and the environment it is installed in."""
    yield PACKAGE_DIRECTORY
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix)


def _anchored(parts: tuple[str, ...], roles: frozenset[ArgumentRole]) -> ProtectedName:
    return ProtectedName(parts=tuple([part.lower() for part in parts]), roles=roles)


# --- policy loading


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
    return strictly(lambda report: gather_policy(settings, report))


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
        managed=None if managed is None else replace(managed, kept=frozenset()),
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
    from ironcurtain_proxy.config.policy.reviewers_file import check_quorums, read_reviewers  # noqa: PLC0415

    known = None
    if there and files.reviewers is not None:
        known = read_reviewers(files.reviewers, settings.home, report)
        if known is None:
            return
    if known is not None and files.managed is not None:
        known = known.without(files.managed.revoked_keys)
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
