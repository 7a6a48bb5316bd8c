"""The targets of git commands in a shell: the branch, its upstream, and the remotes' URLs."""

import os
from collections.abc import Iterable
from hashlib import sha256

from ironcurtain_proxy.facts.branches import current_branch, own_branches, shared_directory
from ironcurtain_proxy.facts.git import GitRemotes, RemoteOperation
from ironcurtain_proxy.facts.remotes import repository_root
from ironcurtain_proxy.facts.spelling import Refusal
from ironcurtain_proxy.model.family import Family
from ironcurtain_proxy.model.path import RealPath


def branch_of(directory: str) -> str | None:
    """The current branch of a repository; None: none, or unknown."""
    try:
        return current_branch(RealPath.from_text(directory))
    except (OSError, ValueError):
        return None


def own_among(directory: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the branches among the names that began in this clone of a repository; blocks."""
    try:
        return own_branches(RealPath.from_text(directory), names)
    except (OSError, ValueError):
        return ()


def may_run_hooks(repository: str, remotes: GitRemotes) -> bool:
    """Whether git may run a hook in a repository; blocks.

    Args:
        repository: a real directory with a `.git` of its own.
        remotes: git as the server would run it.
    """
    if remotes.names_hooks(repository):
        return True
    try:
        # All worktrees of a repository have its hooks.
        shared = shared_directory(RealPath.from_text(repository))
        with os.scandir(f"{shared}/hooks") as found:
            return any(not one.name.endswith(".sample") for one in found)
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def where_git_leads(family: Family, remotes: GitRemotes) -> str | None:
    """A digest of the targets of a family of git commands; None: unknown.

    Every URL of the remote after all rewriting, and the relevant settings. The repository itself is
    no part of it: in another clone the same commands reach the same place.
    """
    root = repository_root(RealPath.from_text(family.directory or ""))
    if isinstance(root, Refusal):
        return None
    repository = str(root)
    if not os.path.isdir(repository):  # noqa: PTH112  a text
        return "absent"
    program, named = _named(family)
    urls = _urls(family, repository, remotes)
    named = None if "--all" in family.kept else named
    steering = remotes.steering(repository, named)
    if urls is None or steering is None:
        return None
    if program == "push" and remotes.renames_pushes(repository):
        return None
    if not urls:
        # Without a remote, only its place identifies a repository.
        urls = (repository,)
    said = "\0".join([*urls, "", steering])
    return sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


def destinations(family: Family, remotes: GitRemotes) -> tuple[str, ...] | None:
    """Every URL that a family of git commands reaches; None: unknown."""
    root = repository_root(RealPath.from_text(family.directory or ""))
    if isinstance(root, Refusal) or not os.path.isdir(str(root)):  # noqa: PTH112  a text
        return None
    return _urls(family, str(root), remotes)


def _urls(family: Family, repository: str, remotes: GitRemotes) -> tuple[str, ...] | None:
    program, named = _named(family)
    operation: RemoteOperation = "push" if program == "push" else "both"
    if named is None or "--all" in family.kept:
        urls = remotes.default_destinations(repository, "both")
    else:
        urls = remotes.destinations(named, repository, operation)
    return None if isinstance(urls, Refusal) else urls


def _named(family: Family) -> tuple[str, str | None]:
    """The sub-command, and the remote that it names; None: it names none."""
    words = [one for one in (*family.program, *family.kept) if not one.startswith("-")]
    if "git" not in words:
        return words[-1], None
    after = words[words.index("git") + 1 :]
    return "".join(after[:1]), after[1] if len(after) > 1 else None
