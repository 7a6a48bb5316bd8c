"""Files that no rule, grant or sandbox makes accessible.

An agent that can write the policy, answer its own escalations or read a key needs no permission
any more. Each path is protected by its own name and by its target, as they are at the start.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.policy.policy_files import PolicyFiles, project_directory
from ironcurtain_proxy.config.reading.operator_paths import as_named, real
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import ProtectedName, ProtectedPath
from ironcurtain_proxy.model.steering import STEERING, STEERING_FILES
from ironcurtain_proxy.version import PACKAGE_DIRECTORY

_CHANGES: Final[frozenset[ArgumentRole]] = frozenset(
    {"write-path", "delete-path", "write-history", "delete-history"}
)
_EVERY_USE: Final[frozenset[ArgumentRole]] = _CHANGES | {"read-path"}

KEYS: Final = (".ssh", ".gnupg", ".aws")

_STEERING_FILES: Final = (
    # Commands that git, or an agent's own client, would run outside any policy.
    # The whole directory: a single file in it can make git read another configuration, other hooks
    # or another repository, or take the parent directory for one.
    (".git",),
    # Servers that the user's own client starts, with all rights of the user; and a project's own
    # layer of policy, which the agent must not loosen.
    *[(directory, f"{name}*") for directory, names in STEERING.items() for name in names],
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
    """Names that must not be changed at any location, and files with generated names.

    In lower case, as they are compared.
    """
    names = [ProtectedName(parts=parts, roles=_CHANGES) for parts in _STEERING_FILES]
    # A file assembled elsewhere and moved here would have the same effect.
    names += [ProtectedName(parts=(name,), roles=_CHANGES, whole=True) for name in STEERING]
    for log in (settings.audit.path, settings.session_log):
        # The head file, rotated logs and the log of a second process lie beside it.
        directory = real(log.parent)
        names.append(_anchored((*directory.parts, f"{log.name}*"), _EVERY_USE))
    names.extend([_anchored(real(code).parts, _CHANGES) for code in own_code()])
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
    for key in KEYS:
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
