"""The files of the policy, and the layers of its rules.

The choice of the files of each layer of policy.

    managed   /etc/ironcurtain/managed/  may narrow, whatever the user says
    bundle    the fleet's, in there      its rules stand below the user's
    project   WORKSPACE/.ironcurtain/    may narrow
    user      ~/.ironcurtain/            may narrow and widen
    shipped   the package                the base, never copied

A layer has rules in short (`policy.yaml`), rules in full (`compiled-policy.json`), or both; the
user's layer also has annotations and lists. A directory that the operator names is the whole
policy: nothing is merged. It is never skipped silently: a policy that is missing where the operator
named it must not be replaced by another one.

The rules of every layer, read and joined.

The user's rules come first, then those of the fleet's bundle, then those of the base. The denials
of the base, and the questions and denials of the administrator's and the project's layer, hold
whatever the user allows: they are floors. The project's layer is a stranger's file: its rules are
marked with its name, its reasons are cut, and what it allows is left out. The administrator's rules
are marked in the same way.
"""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.config.policy.annotations_file import ANNOTATIONS_NAME
from ironcurtain_proxy.config.policy.managed import (
    MAXIMUM_NAME,
    REVIEWERS_NAME,
    Bundle,
    ManagedFiles,
    find_managed,
    managed_paths,
)
from ironcurtain_proxy.config.policy.policy_file import (
    LISTS_NAME,
    POLICY_NAME,
    SHIPPED,
    SHORT_NAME,
    BaseName,
    DynamicLists,
    ListsFile,
    PolicyFile,
    PolicyReader,
    read_lists_file,
)
from ironcurtain_proxy.config.reading.document import Report, RulePlace, shown
from ironcurtain_proxy.config.reading.layers import PRINCIPAL_VARIABLE, STATE_DIRECTORY, real
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.policy import Floor, Rule
from ironcurtain_proxy.model.values import RealPath


class ProjectFiles(Struct, frozen=True, kw_only=True):
    """The files of the project's layer."""

    directory: Path
    short: Path | None = None
    policy: Path | None = None
    lists: Path | None = None


class PolicyFiles(Struct, frozen=True, kw_only=True):
    """The files of one policy."""

    policy: Path
    """The file of rules: the operator's, or the shipped one where the operator has none in full."""
    annotations: Path | None
    """The operator's annotations, or None if only the shipped ones are used."""
    lists: Path | None
    short: Path | None = None
    """The operator's rules in short, or None if there are none."""
    project: ProjectFiles | None = None
    """The files of the project layer, or None if there is no project layer."""
    managed: ManagedFiles | None = None
    """The files of the administrator's layer, or None if this machine has none."""
    reviewers: Path | None = None
    """Where the persons who may approve are named, if there is such a file."""
    alone: bool = False
    """Whether the operator named a directory, so that nothing is merged."""
    absent: frozenset[Path] = frozenset()
    """Files that do not exist. They are reported and not read."""
    shells: tuple[str, ...] = ()
    """Our own shells, by the names that rules use: they run commands, and no file has to say so."""
    possible: tuple[Path, ...] = ()
    """Every path where a file of a layer counts, once there is one."""

    @property
    def operators(self) -> tuple[Path, ...]:
        """The files that the operator wrote, and the paths where one could exist."""
        files = [self.policy, self.policy.with_name(LISTS_NAME), self.annotations, *self.possible]
        return tuple(dict.fromkeys([f for f in files if f is not None and f.parent != SHIPPED]))

    def read(self) -> tuple[Path, ...]:
        """Return the files that rules are read from, the upper layer first."""
        project = self.project
        upper = [] if self.managed is None else [self.managed.short, self.managed.policy]
        upper += [] if project is None else [project.short, project.policy]
        return tuple([file for file in (*upper, self.short, self.policy) if file is not None])


def find_policy_files(settings: Settings, report: Report) -> PolicyFiles:
    """Find the files of all layers."""
    usual = settings.state_dir / "generated"
    absent: set[Path] = set()
    named = settings.generated_dir
    policy = _policy(settings, usual)
    short = _there((named or settings.state_dir) / SHORT_NAME)
    if named is not None and policy.parent != named and short is None:
        policy = named / POLICY_NAME
        absent.add(policy)
        _note_absent(settings, "generatedDir", policy, report)
    annotations = _first(ANNOTATIONS_NAME, named, usual)
    if settings.tool_annotations_dir is not None:
        annotations = settings.tool_annotations_dir / ANNOTATIONS_NAME
        if not is_there(annotations):
            absent.add(annotations)
            _note_absent(settings, "toolAnnotationsDir", annotations, report)
    # Lists belong to the policy that names them; another policy's lists would allow other hosts.
    lists = (named or usual) / LISTS_NAME
    project = None if named is not None else _project(settings)
    managed = managed_of(settings, report)
    own = settings.state_dir / REVIEWERS_NAME
    return PolicyFiles(
        policy=policy,
        annotations=annotations,
        lists=lists if is_there(lists) else None,
        short=short,
        project=project,
        managed=managed,
        reviewers=own if managed is None or managed.reviewers is None else managed.reviewers,
        alone=named is not None,
        absent=frozenset(absent),
        shells=tuple([one.annotations for one in settings.servers if one.builtin == "shell"]),
        possible=possible_files(settings),
    )


def managed_of(settings: Settings, report: Report) -> ManagedFiles | None:
    """Return the administrator's layer as it holds for who runs this proxy."""
    managed = find_managed(report)
    if managed is None or managed.bundle is None:
        return managed
    stopped = managed.bundle.revoked.stopped(lambda: _principals(settings))
    return replace(managed, bundle=replace(managed.bundle, stopped=stopped))


def _principals(settings: Settings) -> tuple[str, ...]:
    """Return the names of the principal of this proxy: user, machine, and the agent's token."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    host, token = os.uname().nodename, settings.inherited.get(PRINCIPAL_VARIABLE, "")
    # Who stops `@web-1` means `web-1.example.com`, too.
    machines = [f"@{name}" for name in (host, host.partition(".")[0])]
    return (user, *machines, *[user + one for one in machines], *([token] if token else []))


def _policy(settings: Settings, usual: Path) -> Path:
    """Return the file of the rules in full. A named directory with rules in short needs none."""
    named = settings.generated_dir
    if named is None:
        return _first(POLICY_NAME, usual) or SHIPPED / POLICY_NAME
    if is_there(named / POLICY_NAME) or not is_there(named / SHORT_NAME):
        return _first(POLICY_NAME, named, usual) or SHIPPED / POLICY_NAME
    return SHIPPED / POLICY_NAME


def project_directory(settings: Settings) -> Path | None:
    """Return the directory of the project's layer, or None if there is no such layer."""
    workspace = settings.workspace
    if workspace is None or not settings.project_policy or settings.generated_dir is not None:
        return None
    directory = Path(str(workspace)) / STATE_DIRECTORY
    # The operator's own files are no project's.
    return None if directory == settings.state_dir else directory


def with_candidate(files: PolicyFiles, candidate: Path) -> PolicyFiles:
    """Replace the file of the operator's rules, in the form that its ending names."""
    if candidate.suffix.lower() in {".yaml", ".yml"}:
        return replace(files, short=candidate)
    return replace(files, policy=candidate)


def _project(settings: Settings) -> ProjectFiles | None:
    directory = project_directory(settings)
    if directory is None:
        return None
    short, policy = _there(directory / SHORT_NAME), _there(directory / POLICY_NAME)
    if short is None and policy is None:
        return None
    lists = _there(directory / LISTS_NAME)
    return ProjectFiles(directory=directory, short=short, policy=policy, lists=lists)


def possible_files(settings: Settings) -> tuple[Path, ...]:
    """Return every path where a file of a layer counts, once there is one."""
    named = settings.generated_dir
    generated = named or settings.state_dir / "generated"
    files = [generated / name for name in (POLICY_NAME, ANNOTATIONS_NAME, LISTS_NAME)]
    files.append((named or settings.state_dir) / SHORT_NAME)
    if settings.tool_annotations_dir is not None:
        files.append(settings.tool_annotations_dir / ANNOTATIONS_NAME)
    if (project := project_directory(settings)) is not None:
        files += [project / name for name in (SHORT_NAME, POLICY_NAME, LISTS_NAME)]
    return (*files, *managed_paths())


def _there(path: Path) -> Path | None:
    return path if is_there(path) else None


def _note_absent(settings: Settings, key: str, file: Path, report: Report) -> None:
    """Report a missing file under the name that the operator wrote."""
    source = settings.said_in.get(key, key)
    place = (key,) if source == str(settings.config_file) else ()
    report.error(source, place, f"{shown(str(file.parent))} has no {file.name}: write it there")


def _first(name: str, *directories: Path | None) -> Path | None:
    files = [directory / name for directory in directories if directory is not None]
    return next((file for file in files if is_there(file)), None)


FileStamp: TypeAlias = tuple[int, ...] | None
"""The state of one file, or None if there is no such file."""

FileStamps: TypeAlias = tuple[FileStamp, ...]


def file_states(paths: Iterable[Path]) -> FileStamps:
    """Return the state of each file, in this order, to notice that one has changed.

    Reads no content.

    A change is what `stat` shows of a path, or of the target of a link at it: content, owner, mode,
    or another file in its place. A path that cannot be looked at has a state of its own.
    """
    return tuple([_state(path) for path in paths])


def gone(paths: Iterable[Path], before: FileStamps, now: FileStamps) -> list[Path]:
    """Return the files that existed before and are gone now."""
    states = zip(paths, before, now, strict=True)
    return [path for path, was, state in states if was is not None and state is None]


def _state(path: Path) -> FileStamp:
    try:
        own = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (-1, error.errno or 0)
    try:
        target = os.stat(path)  # noqa: PTH116  beside lstat
    except OSError as error:
        return (-2, own.st_ino, own.st_mtime_ns, own.st_ctime_ns, error.errno or 0)
    return (
        *(own.st_ino, own.st_mtime_ns, own.st_ctime_ns),
        *(target.st_dev, target.st_ino, target.st_size, target.st_mtime_ns, target.st_ctime_ns),
    )


# --- layer reading


PROJECT_PREFIX: Final = "project:"
"""The prefix of the project's rules, which could otherwise take the name of another rule."""
MANAGED_PREFIX: Final = "managed:"
BUNDLE_PREFIX: Final = "bundle:"
_REASON: Final = 200
_SHIPPED_FILE: Final = SHIPPED / POLICY_NAME


_Narrowing: TypeAlias = tuple[tuple[tuple[Rule, RulePlace], ...], tuple[bytes, ...]]


class ReadRules(Struct, frozen=True, kw_only=True):
    """The rules of all layers."""

    rules: tuple[Rule, ...]
    """The user's rules, then those of the base."""
    floors: tuple[Floor, ...]
    places: tuple[RulePlace, ...]
    """The places of the user's rules; rules of the base have no place."""
    bundle: tuple[Rule, ...] = ()
    """The fleet's rules, which are asked after the user's."""
    project: tuple[tuple[Rule, RulePlace], ...]
    managed: tuple[tuple[Rule, RulePlace], ...] = ()
    base: BaseName
    data: tuple[bytes, ...]
    """The bytes of all files, for the version."""


class LayerReader(Struct, frozen=True, kw_only=True):
    """Reads the layers of one policy."""

    reader: PolicyReader
    report: Report

    def read(self, files: PolicyFiles) -> ReadRules:
        """Return the rules of all layers. Never raises; what cannot be read is in the report."""
        short = None
        if files.short is not None:
            from ironcurtain_proxy.config.policy.short_form import ShortReader  # noqa: PLC0415  few policies have one

            short = ShortReader(reader=self.reader).read(files.short)
        full = None
        if files.policy.parent != SHIPPED and files.policy not in files.absent:
            full = self.reader.read(files.policy)
        own = _joined(short, full)
        bundle = None if files.managed is None or files.alone else files.managed.bundle
        fleet = self._bundle(bundle)
        base = self._base(files, (short, full), fleet.base)
        # A preset has rules about commands; the operator says which servers run them.
        said = () if full is None else full.command_servers
        below = self._base_rules(base, tuple(dict.fromkeys([*said, *files.shells])))
        lower = tuple([replace(rule, layer="shipped") for rule in below.rules])
        project, more = ((), ()) if files.project is None else self._project(files.project)
        managed = [] if files.managed is None else self._managed(files.managed)
        # A floor of its own each: within one, the first rule that holds is the answer.
        layers = [*[rules for rules, _ in managed], project]
        narrowing = [tuple([rule for rule, _ in layer]) for layer in layers]
        most = [one for _, data in managed for one in data]
        floors = [Floor(rules=rules, asks=True) for rules in narrowing if rules]
        if (own.rules or fleet.rules) and any(rule.effect == "deny" for rule in lower):
            floors.append(Floor(rules=lower, asks=False))
        own_data = [b"" if file is None else file.data for file in (short, full)]
        return ReadRules(
            rules=(*own.rules, *fleet.rules, *lower),
            bundle=fleet.rules,
            floors=tuple(floors),
            places=own.places,
            project=project,
            managed=tuple([one for rules, _ in managed for one in rules]),
            base=base,
            data=(*own_data, base.encode(), below.data, fleet.data, *more, *most),
        )

    def _base(
        self,
        files: PolicyFiles,
        own: tuple[PolicyFile | None, ...],
        of_fleet: BaseName | None,
    ) -> BaseName:
        said = [file.base for file in own if file is not None and file.base is not None]
        if len(set(said)) > 1:
            self.report.error(
                files.short, ("base",), f"{files.policy} names another base: {shown(said[1])}"
            )
        return said[0] if said else "none" if files.alone else of_fleet or "shipped"

    def _base_rules(self, base: BaseName, command_servers: tuple[str, ...]) -> PolicyFile:
        # The package's own files need no report of the operator's.
        reader = replace(self.reader, lists=None)
        match base:
            case "none":
                return PolicyFile(b"", ())
            case "shipped":
                return reader.read(_SHIPPED_FILE) or PolicyFile(b"", ())
            case "coding" | "supervised" | "read-only":
                # Read only where it is the base.
                from ironcurtain_proxy.config.presets import base_document  # noqa: PLC0415

                data, rules = base_document(base, command_servers)
                return PolicyFile(data, reader.rules_of(rules, f"preset {base}"))
            case _:
                assert_never(base)

    def _managed(self, files: ManagedFiles) -> list[_Narrowing]:
        rules, data = self._narrowing(files, None, "the administrator's layer")
        own = tuple([(_of_managed(rule), place) for rule, place in rules])
        found: list[_Narrowing] = [(own, (*data, files.data))]
        bundle = files.bundle
        if bundle is None:
            return found
        here = ManagedFiles(
            directory=bundle.directory,
            short=bundle.file(MAXIMUM_NAME),
            lists=bundle.file(LISTS_NAME),
        )
        rules, data = self._narrowing(here, None, "the fleet's maximum")
        maximum = tuple([(_of_managed(rule), place) for rule, place in rules])
        place = RulePlace(str(bundle.directory), ())
        named = [replace(rule, name=MANAGED_PREFIX + rule.name) for rule in bundle.rules()]
        # First, so that a stop is the reason that is told.
        above = [((rule, place),) for rule in named]
        return [*[(one, ()) for one in above], *found, (maximum, (*data, bundle.data))]

    def _bundle(self, bundle: Bundle | None) -> PolicyFile:
        """Return the fleet's rules, which are asked where the user's say nothing."""
        if bundle is None:
            return PolicyFile(b"", ())
        from ironcurtain_proxy.config.policy.short_form import ShortReader  # noqa: PLC0415  few policies have one

        lists = bundle.file(LISTS_NAME)
        known = None if lists is None else read_lists_file(lists, self.report)
        reader = replace(self.reader, lists={} if known is None else known.lists)
        short, full = bundle.file(SHORT_NAME), bundle.file(POLICY_NAME)
        read = [
            None if short is None else ShortReader(reader=reader).read(short),
            None if full is None else reader.read(full),
        ]
        found = _joined(*read)
        rules = [replace(one, layer="bundle", name=BUNDLE_PREFIX + one.name) for one in found.rules]
        said = [one.base for one in read if one is not None and one.base is not None]
        return PolicyFile(
            b"".join([one.data for one in read if one is not None]),
            tuple(rules),
            base=said[0] if said else None,
        )

    def _project(self, files: ProjectFiles) -> _Narrowing:
        rules, data = self._narrowing(files, real(files.directory.parent), "a project")
        return tuple([(_of_project(rule), place) for rule, place in rules]), data

    def _narrowing(
        self, files: ManagedFiles | ProjectFiles, relative_to: RealPath | None, whose: str
    ) -> _Narrowing:
        """Read the rules of a layer that may ask and deny, and the bytes of its files."""
        lists = None if files.lists is None else read_lists_file(files.lists, self.report)
        own: DynamicLists = {} if lists is None else lists.lists
        reader = replace(self.reader, lists={**(self.reader.lists or {}), **own})
        short = None
        if files.short is not None:
            from ironcurtain_proxy.config.policy.short_form import ShortReader  # noqa: PLC0415  few policies have one

            short = ShortReader(reader=reader, relative_to=relative_to, may_have_base=False).read(
                files.short
            )
        full = None if files.policy is None else reader.read(files.policy)
        found = _joined(short, full)
        kept: list[tuple[Rule, RulePlace]] = []
        for rule, place in zip(found.rules, found.places, strict=True):
            if rule.effect == "allow":
                message = f"{place.text}rule {shown(rule.name)} allows: it has no effect here, "
                message += f"{whose} may only ask and deny"
                self.report.warning(place.source, place.path, message)
            else:
                kept.append((rule, place))
        data = tuple([b"" if file is None else file.data for file in (short, full, lists)])
        return tuple(kept), data


def read_lists(file: Path | None, report: Report) -> ListsFile | None:
    """Return the operator's lists, or None if there are none, or they cannot be read."""
    return None if file is None else read_lists_file(file, report)


def _joined(short: PolicyFile | None, full: PolicyFile | None) -> PolicyFile:
    """Return the rules of one layer. Rules of the short form are asked first."""
    files = [file for file in (short, full) if file is not None]
    return PolicyFile(
        b"",
        tuple([rule for file in files for rule in file.rules]),
        tuple([place for file in files for place in file.places]),
    )


def _of_managed(rule: Rule) -> Rule:
    return replace(
        rule,
        layer="managed",
        name=MANAGED_PREFIX + rule.name,
        reason=f"The administrator of this machine says: {rule.reason}",
    )


def _of_project(rule: Rule) -> Rule:
    # These words are shown to reviewers, and may be a stranger's.
    said = " ".join("".join(c if c.isprintable() else " " for c in rule.reason).split())
    reason = said if len(said) <= _REASON else said[:_REASON] + " …"
    return replace(
        rule,
        layer="project",
        name=PROJECT_PREFIX + rule.name[:_REASON],
        reason=f"The project's policy says: {reason}",
    )
