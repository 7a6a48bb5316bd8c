"""A repository: what stands around its files, found out and put back; nothing of it is run.

It is held as `git stash` would hold it, as commits: one with the whole work tree, untracked files
too, in a repository of the snapshot's own; one with the index, whose parents are the branches, in
the repository itself, under `refs/ironcurtain/<id>`. What was not committed is in the first alone:
in the repository the agent could read it, and push it, whatever the policy says of those files.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from ironcurtain_proxy.snapshots.faults import RollbackError, SnapshotError
from ironcurtain_proxy.snapshots.git_commands import GitError, GitPlace, git
from ironcurtain_proxy.snapshots.manifest import Refs
from ironcurtain_proxy.snapshots.places import Parts, text_of

COMMIT: Final = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})", re.ASCII)
_BRANCH: Final = re.compile(r"refs/(?:heads|tags)/[^\x00-\x20\x7f~^:?*\[\\]+")
_STATE: Final = (
    "config",
    "index",
    "AUTO_MERGE",
    "BISECT_LOG",
    "BISECT_START",
    "CHERRY_PICK_HEAD",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_MSG",
    "ORIG_HEAD",
    "REBASE_HEAD",
    "REVERT_HEAD",
    "SQUASH_MSG",
    "rebase-apply",
    "rebase-merge",
    "sequencer",
)
"""In `.git`, beside branches and HEAD, what says where somebody's work stands."""
_MOST_REFS: Final = 5000


class UnsafeRepositoryError(SnapshotError):
    """Git had better not be run there: its files are copied like any others."""


def top_of(repository: Parts) -> Parts | None:
    """The work tree that a directory belongs to; None: no `.git` is found above it."""
    for length in range(len(repository), 0, -1):
        top = repository[:length]
        if os.path.lexists(_git_dir(top)):
            return top
    return None


def is_believable(refs: Refs) -> bool:
    """Whether these are names and ids that git can be given."""
    names = all(
        _BRANCH.fullmatch(name) and COMMIT.fullmatch(refs.heads[name]) for name in refs.heads
    )
    return names and bool(COMMIT.fullmatch(refs.head) or _BRANCH.fullmatch(refs.head))


def check_safe(top: Parts) -> None:
    """See that git would read and write in this repository and nowhere else.

    Raises:
        UnsafeRepositoryError: it would not, or that is not known.
    """
    folder = _git_dir(top)
    for name in ("", "objects", "refs"):
        if not _is_ours(folder / name, stat.S_ISDIR):
            raise UnsafeRepositoryError("the repository is of an unusual form")
    for name in ("refs/heads", "refs/ironcurtain", "logs", "logs/refs", "logs/refs/heads", "info"):
        _check_absent_or(folder / name, stat.S_ISDIR)
    for name in ("HEAD", "index", "packed-refs", "config", "config.worktree", "logs/HEAD"):
        _check_absent_or(folder / name, stat.S_ISREG)
    if os.path.lexists(folder / "commondir"):
        raise UnsafeRepositoryError("the repository is of an unusual form")


def _check_absent_or(path: Path, is_kind: Callable[[int], bool]) -> None:
    if os.path.lexists(path) and not _is_ours(path, is_kind):
        raise UnsafeRepositoryError("the repository is of an unusual form")


def _is_ours(path: Path, is_kind: Callable[[int], bool]) -> bool:
    with suppress(OSError):
        found = path.lstat()
        return is_kind(found.st_mode) and found.st_uid == os.geteuid()
    return False


def check_idle(top: Parts) -> None:
    """See that no git is at work.

    Raises:
        SnapshotError: one is, or was and left its lock.
    """
    if os.path.lexists(_git_dir(top) / "index.lock"):
        raise SnapshotError("git is at work in the repository (there is .git/index.lock)")


def has_own_folder(top: Parts) -> bool:
    """Whether its `.git` is a directory of ours: then all of the repository is in the work tree."""
    return _is_ours(_git_dir(top), stat.S_ISDIR)


def state_files(top: Parts) -> list[Parts]:
    """What is held of `.git` by copies; most of it does not exist most of the time."""
    return [(*top, ".git", name) for name in _STATE]


def place_of_repository(top: Parts, variables: Mapping[str, str] | None = None) -> GitPlace:
    """How git is told of it, but not of its files."""
    return GitPlace(git_dir=_git_dir(top), variables=variables or {})


def read_refs(top: Parts) -> Refs:
    """Where HEAD, the branches and the tags stand, and what the index says.

    Raises:
        GitError: git could not say, or says what is not looked after here.
    """
    place = place_of_repository(top)
    form = "--format=%(objectname) %(refname) %(symref)"
    listing = git(("for-each-ref", form, "refs/heads", "refs/tags"), place)
    heads = dict(_heads(os.fsdecode(listing)))
    if len(heads) > _MOST_REFS:
        raise GitError("the repository has too many branches and tags")
    try:
        head = os.fsdecode(git(("symbolic-ref", "-q", "HEAD"), place)).removesuffix("\n")
    except GitError:
        head = git(("rev-parse", "--verify", "-q", "HEAD^{commit}"), place).decode().strip()
    if COMMIT.fullmatch(head) is None and _BRANCH.fullmatch(head) is None:
        raise GitError("the repository's HEAD is of an unusual form")
    index = sha256(git(("ls-files", "-z", "--stage", "-v"), place)).hexdigest()
    return Refs(head=head, heads=heads, index=index)


def _heads(listing: str) -> Iterator[tuple[str, str]]:
    for line in listing.splitlines():
        target, name, symbolic = line.split(" ", 2)
        try:
            name.encode()
        except UnicodeEncodeError:
            raise GitError("the name of a branch is no text") from None
        if symbolic or COMMIT.fullmatch(target) is None or _BRANCH.fullmatch(name) is None:
            raise GitError("a branch is of an unusual form")
        yield name, target


def ignored_directories(top: Parts) -> list[Parts]:
    """Directories of the work tree of which git ignores everything.

    Raises:
        GitError: git could not say.
    """
    said = git(
        ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"),
        replace(place_of_repository(top), work_tree=Path(text_of(top))),
    )
    names = os.fsdecode(said).split("\0")
    found = [(*top, *name[:-1].split("/")) for name in names if name.endswith("/")]
    return [path for path in found if not any(part in ("", ".", "..") for part in path)]


def anchor(top: Parts, refs: Refs, identifier: str, scratch: Path, now: datetime) -> str:
    """Make the commit that holds the index and the branches, and name it.

    Args:
        top: the work tree.
        refs: the branches.
        identifier: the snapshot's.
        scratch: where an index may be made; nothing is there yet.
        now: aware.

    Returns:
        The commit's id.

    Raises:
        GitError: it could not be made.
    """
    index = place_of_repository(top, {"GIT_INDEX_FILE": str(scratch)})
    if git(("rev-parse", "--shared-index-path"), place_of_repository(top)).strip():
        raise GitError("the index is split")
    # Names and ids alone: no times, by which git would find that it has to look at a file.
    staged = git(("ls-files", "-z", "--stage"), place_of_repository(top))
    git(("update-index", "-z", "--index-info"), index, staged)
    tree = git(("write-tree",), index).decode().strip()
    ids = [target for name, target in refs.heads.items() if name.startswith("refs/heads/")]
    ids += [refs.head] if COMMIT.fullmatch(refs.head) else []
    parents = [word for target in dict.fromkeys(ids) for word in ("-p", target)]
    at = f"{int(now.timestamp())} +0000"
    dated = place_of_repository(top, {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at})
    message = f"Snapshot {identifier}: the index, and the branches as parents\n"
    commit = git(("commit-tree", *parents, tree), dated, message.encode()).decode().strip()
    if COMMIT.fullmatch(commit) is None:
        raise GitError("git made no commit")
    git(("update-ref", "--no-deref", f"refs/ironcurtain/{identifier}", commit), dated)
    return commit


def remove_anchor(top: Parts, identifier: str) -> None:
    """Take the name away again. That it is gone, or cannot be taken, is no error."""
    with suppress(GitError, UnsafeRepositoryError):
        check_safe(top)
        git(
            ("update-ref", "--no-deref", "-d", f"refs/ironcurtain/{identifier}"),
            place_of_repository(top),
        )


def set_refs(top: Parts, wanted: Refs, found: Refs, names: list[str]) -> None:
    """Bring branches and HEAD back, each only if it still is as it was found.

    Args:
        top: the work tree.
        wanted: how they shall be.
        found: how they are.
        names: those to be changed, `HEAD` among them if it is.

    Raises:
        RollbackError: git did not do it; branches are changed all together or not at all.
    """
    place = place_of_repository(top)
    branches = [name for name in names if name != "HEAD"]
    try:
        check_safe(top)
        if branches:
            lines = [
                _update(name, wanted.heads.get(name), found.heads.get(name)) for name in branches
            ]
            git(("update-ref", "--no-deref", "-z", "--stdin"), place, "".join(lines).encode())
        if "HEAD" in names:
            _set_head(wanted.head, place)
    except (GitError, UnsafeRepositoryError) as error:
        raise RollbackError(f"{text_of(top)}: the branches cannot be put back: {error}") from None


def _update(name: str, wanted: str | None, found: str | None) -> str:
    if wanted is None:
        return f"delete {name}\0{found}\0"
    if found is None:
        return f"create {name}\0{wanted}\0"
    return f"update {name}\0{wanted}\0{found}\0"


def _set_head(head: str, place: GitPlace) -> None:
    if COMMIT.fullmatch(head):
        git(("update-ref", "--no-deref", "HEAD", head), place)
    else:
        git(("symbolic-ref", "HEAD", head), place)


def _git_dir(top: Parts) -> Path:
    return Path(text_of(top)) / ".git"
