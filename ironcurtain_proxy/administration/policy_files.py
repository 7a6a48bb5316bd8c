"""Which files the policy is read from.

An explicit directory is never passed over in silence: a policy that is not where the operator said
must not be replaced by another one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ironcurtain_proxy.administration.problems import Report
from ironcurtain_proxy.administration.reading import is_there
from ironcurtain_proxy.administration.settings import Settings

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

    @property
    def operators(self) -> tuple[Path, ...]:
        """The files that the operator wrote, and the places where one could stand."""
        files = [self.policy, self.policy.with_name(LISTS_NAME), self.annotations]
        return tuple([file for file in files if file is not None and file.parent != SHIPPED])


def find_policy_files(settings: Settings, report: Report) -> PolicyFiles:
    """The files: from the operator's directories, `~/.ironcurtain/generated`, or the package."""
    usual = settings.state_dir / "generated"
    policy = _first(POLICY_NAME, settings.generated_dir, usual) or SHIPPED / POLICY_NAME
    if settings.generated_dir is not None and policy.parent != settings.generated_dir:
        policy = settings.generated_dir / POLICY_NAME
        report.error(policy, (), "does not exist, and generatedDir says that it should")
    # Lists belong to the policy that names them: another one's would open other doors.
    lists = policy.with_name(LISTS_NAME)
    return PolicyFiles(
        policy=policy,
        annotations=_annotations(settings, usual, report),
        lists=lists if is_there(lists) else None,
    )


def _annotations(settings: Settings, usual: Path, report: Report) -> Path | None:
    named = settings.tool_annotations_dir
    if named is not None:
        file = named / ANNOTATIONS_NAME
        if not is_there(file):
            report.error(file, (), "does not exist, and toolAnnotationsDir says that it should")
        return file
    return _first(ANNOTATIONS_NAME, settings.generated_dir, usual)


def _first(name: str, *directories: Path | None) -> Path | None:
    files = [directory / name for directory in directories if directory is not None]
    return next((file for file in files if is_there(file)), None)
