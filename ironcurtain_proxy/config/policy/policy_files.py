"""The choice of the files of each layer of policy.

    managed   /etc/ironcurtain/managed/  may narrow, whatever the user says
    bundle    the fleet's, in there      its rules stand below the user's
    project   WORKSPACE/.ironcurtain/    may narrow
    user      ~/.ironcurtain/            may narrow and widen
    shipped   the package                the base, never copied

A layer has rules in short (`policy.yaml`), rules in full (`compiled-policy.json`), or both; the
user's layer also has annotations and lists. A directory that the operator names is the whole
policy: nothing is merged. It is never skipped silently: a policy that is missing where the operator
named it must not be replaced by another one.
"""

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, structs

from ironcurtain_proxy.config.policy.managed import (
    REVIEWERS_NAME,
    ManagedFiles,
    find_managed,
    managed_paths,
)
from ironcurtain_proxy.config.policy.short_form import SHORT_NAME
from ironcurtain_proxy.config.reading.environment import PRINCIPAL_VARIABLE
from ironcurtain_proxy.config.reading.operator_paths import STATE_DIRECTORY
from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.settings import Settings

POLICY_NAME: Final = "compiled-policy.json"
ANNOTATIONS_NAME: Final = "tool-annotations.json"
LISTS_NAME: Final = "dynamic-lists.json"

SHIPPED: Final = Path(__file__).parent / "shipped"


class ProjectFiles(Struct, frozen=True, kw_only=True):
    """The files of the project's layer."""

    directory: Path
    short: Path | None = None
    policy: Path | None = None
    lists: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFiles:
    """The files of one policy."""

    policy: Path
    """The file of rules: the operator's, or the shipped one where the operator has none in full."""
    annotations: Path | None
    """The operator's annotations; None: only the shipped ones are used."""
    lists: Path | None
    short: Path | None = None
    """The operator's rules in short; None: there are none."""
    project: ProjectFiles | None = None
    """The files of the project layer; None: there is no project layer."""
    managed: ManagedFiles | None = None
    """The files of the administrator's layer; None: this machine has none."""
    reviewers: Path | None = None
    """Where the persons who may approve are named, if there is such a file."""
    alone: bool = False
    """Whether the operator named a directory, so that nothing is merged."""
    absent: frozenset[Path] = frozenset()
    """Files that do not exist. They are reported and not read."""
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
        possible=possible_files(settings),
    )


def managed_of(settings: Settings, report: Report) -> ManagedFiles | None:
    """Return the administrator's layer as it holds for who runs this proxy."""
    managed = find_managed(report)
    if managed is None or managed.bundle is None:
        return managed
    stopped = managed.bundle.revoked.stopped(lambda: _principals(settings))
    return structs.replace(managed, bundle=structs.replace(managed.bundle, stopped=stopped))


def _principals(settings: Settings) -> tuple[str, ...]:
    """Return the names of the principal of this proxy: user, machine, and the agent's token."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    machine = os.uname().nodename
    token = settings.inherited.get(PRINCIPAL_VARIABLE, "")
    return (user, f"@{machine}", f"{user}@{machine}", *([token] if token else []))


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
    """The files with another file of the operator's rules, in the form that its ending names."""
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
"""The state of one file; None: there is no such file."""

FileStamps: TypeAlias = tuple[FileStamp, ...]


def file_states(paths: Iterable[Path]) -> FileStamps:
    """The state of each file, in this order, to notice that one has changed. Reads no content.

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
