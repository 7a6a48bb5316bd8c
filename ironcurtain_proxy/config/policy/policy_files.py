"""Choosing the files that the policy is read from.

An explicit directory is never skipped silently: a policy that is missing where the operator
named it must not be replaced by another one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.config.reading.problems import Report, shown
from ironcurtain_proxy.config.reading.reading import is_there
from ironcurtain_proxy.config.settings import Settings

POLICY_NAME: Final = "compiled-policy.json"
ANNOTATIONS_NAME: Final = "tool-annotations.json"
LISTS_NAME: Final = "dynamic-lists.json"

SHIPPED: Final = Path(__file__).parent / "shipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFiles:
    """The files of one policy."""

    policy: Path
    annotations: Path | None
    """The operator's; None: only the shipped ones."""
    lists: Path | None
    absent: frozenset[Path] = frozenset()
    """Files that do not exist. They are reported and not read."""

    @property
    def operators(self) -> tuple[Path, ...]:
        """The files that the operator wrote, and the paths where one could exist."""
        files = [self.policy, self.policy.with_name(LISTS_NAME), self.annotations]
        return tuple([file for file in files if file is not None and file.parent != SHIPPED])


def find_policy_files(settings: Settings, report: Report) -> PolicyFiles:
    """Find the files in the operator's directories, `~/.ironcurtain/generated`, or the package."""
    usual = settings.state_dir / "generated"
    absent: set[Path] = set()
    policy = _first(POLICY_NAME, settings.generated_dir, usual) or SHIPPED / POLICY_NAME
    if settings.generated_dir is not None and policy.parent != settings.generated_dir:
        policy = settings.generated_dir / POLICY_NAME
        absent.add(policy)
        _note_absent(settings, "generatedDir", policy, report)
    annotations = _first(ANNOTATIONS_NAME, settings.generated_dir, usual)
    if settings.tool_annotations_dir is not None:
        annotations = settings.tool_annotations_dir / ANNOTATIONS_NAME
        if not is_there(annotations):
            absent.add(annotations)
            _note_absent(settings, "toolAnnotationsDir", annotations, report)
    # Lists belong to the policy that names them; another policy's lists would allow other hosts.
    lists = policy.with_name(LISTS_NAME)
    return PolicyFiles(
        policy=policy,
        annotations=annotations,
        lists=lists if is_there(lists) else None,
        absent=frozenset(absent),
    )


def _note_absent(settings: Settings, key: str, file: Path, report: Report) -> None:
    """Report a missing file under the name that the operator wrote."""
    source = settings.said_in.get(key, key)
    place = (key,) if source == str(settings.config_file) else ()
    report.error(source, place, f"{shown(str(file.parent))} has no {file.name}: write it there")


def _first(name: str, *directories: Path | None) -> Path | None:
    files = [directory / name for directory in directories if directory is not None]
    return next((file for file in files if is_there(file)), None)
