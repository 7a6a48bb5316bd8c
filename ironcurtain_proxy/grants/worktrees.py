"""Families of shell commands in the other worktrees of a repository.

All worktrees hold branches of one repository, between which a session in one of them may change
anyway. So a family means the same in each, if nothing in it names a place outside its project.
"""

from dataclasses import replace

from ironcurtain_proxy.model.family import Family
from ironcurtain_proxy.model.grant import FamilyPattern
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.place import Place


def is_same_repository(pattern: FamilyPattern, place: Place) -> bool:
    """Whether a pattern was given for the workspace, or for another worktree of its repository."""
    if str(pattern.workspace) == place.workspace:
        return True
    return pattern.repository is not None and str(pattern.repository) == place.repository


def holds_in_worktrees(family: Family, workspace: RealPath) -> bool:
    """Whether a family that was approved in one worktree means the same in each.

    `--out=../x` is another file seen from another worktree, and the workspace of the approval is
    no longer the project.
    """
    words = (*family.program, *family.kept, *family.around)
    return not any(
        ".." in word.replace("...", "") or "~" in word or str(workspace) in word for word in words
    )


def in_worktree(family: Family, pattern: FamilyPattern, place: Place) -> Family | None:
    """A family of a pattern as it is in a place; None: it does not hold there.

    The digest of its meaning says where files lie in the worktree, and stays as it is.
    """
    if family.is_of_remote:
        return family
    return moved(family, pattern.workspace, place) if is_same_repository(pattern, place) else None


def moved(family: Family, workspace: RealPath, place: Place) -> Family | None:
    """A family as it is in another worktree; None: it does not hold there.

    Args:
        family: the approved one.
        workspace: of the approval.
        place: in a worktree of the same repository.
    """
    if str(workspace) == place.workspace:
        return family
    if place.workspace is None or not holds_in_worktrees(family, workspace):
        return None
    if family.directory is None:
        return family
    there = RealPath.from_text(family.directory)
    if not there.is_within(workspace):
        return family
    here = RealPath.from_text(place.workspace)
    return replace(
        family, directory=str(RealPath(here.parts + there.parts[len(workspace.parts) :]))
    )
