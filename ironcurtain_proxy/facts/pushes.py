"""Where a git command reaches: the hosts of its remotes, the targets of pushes, credentials.

A tool has a remote argument, present or omitted. A command of a shell has a branch, its upstream,
and the remotes' URLs. The configuration of a repository may hold passwords and tokens.

`NamedCommits` finds the commits and staged files that a push or a commit would publish beside what
was asked for. An agent may commit and stage without a question where the timeline takes it back.
What was so made is nobody's wish to publish. So the kernel remembers the commits that were there
when the session began, or were published or asked for since. All others are told to whoever answers
for the user. Git's objects are read as they are: references and grafts can be written by a command
of the agent's, so neither the remote's branches nor replaced objects count.
"""

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from threading import Lock
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.facts.arguments import (
    Refusal,
    canonical_git_url,
    git_domain,
    is_explicit_remote,
    is_ordinary_remote,
    is_unambiguous,
    strings_of,
)
from ironcurtain_proxy.facts.git import GitRemotes, RemoteOperation
from ironcurtain_proxy.facts.git_process import IrregularFileError, beginning_of
from ironcurtain_proxy.facts.repositories import shared_directory
from ironcurtain_proxy.model.escalation import MadeCommit, Unpublished
from ironcurtain_proxy.model.request import Family, UrlValue, Value
from ironcurtain_proxy.model.values import Json, RealPath, lazy

# --- remotes


_OPERATIONS: Final[Mapping[str, RemoteOperation]] = MappingProxyType(
    {"git_push": "push", "git_fetch": "fetch", "git_pull": "fetch", "git_clone": "fetch"}
)
_OUTSIDE_A_REPOSITORY: Final = frozenset({"git_clone"})

_MAX_REMOTES: Final = 16
"""The most remotes in one argument: git is asked about each."""
_TOO_MANY: Final = Refusal("names too many remotes")
_EMPTY: Final = UrlValue("", ("",), ordinary=False)
_NO_TEXT: Final = Refusal("must be a string or a list of strings")
_EMPTY_AMONG_OTHERS: Final = Refusal("names an empty remote")
_NOWHERE: Final = Refusal(
    "is no URL, and the call names no repository in which it could be the name of a remote"
)
_UNCLEAR: Final = Refusal(
    "can be read as more than one URL; write it as scheme://host/path or user@host:path"
)


def operation_of(tool: str) -> RemoteOperation:
    """Return the operation of a tool on its remote. An unknown tool may do either."""
    return _OPERATIONS.get(tool, "both")


BARE: Final = Refusal(
    "is in a directory that git would take for a bare repository, whose configuration can run "
    "commands; use a repository with a .git directory"
)


def repository_root(directory: RealPath) -> RealPath | Refusal:
    """Return the repository that git would find from a directory.

    The directory itself if there is none.

    Git searches upwards for a `.git`, and at each level also accepts the directory itself as a bare
    repository. An agent that writes files can create one with a `config` that names a command
    (`core.fsmonitor`), and a harmless `git status` runs it. So such a directory is refused, unless
    it is the `.git` of a repository, which is a protected name.
    """
    parts = directory.parts
    for length in range(len(parts), 0, -1):
        place = "/" + "/".join(parts[:length])
        if _is_laid_out(place):
            # Also beside a `.git`: git skips a broken one, and takes the directory around it.
            return RealPath(parts[: length - 1]) if parts[length - 1] == ".git" else BARE
        if os.path.lexists(f"{place}/.git"):
            return RealPath(parts[:length])
    return directory


def _is_laid_out(place: str) -> bool:
    """Return whether git, or a git library, could accept a directory itself as a repository."""
    return os.path.lexists(f"{place}/HEAD") and any(
        os.path.lexists(f"{place}/{name}") for name in _LAYOUT
    )


_LAYOUT: Final = ("objects", "refs", "commondir")
"""The contents of a repository besides HEAD; `commondir` names the place of the rest."""


class RemoteReader:
    """Reads the arguments that name git remotes."""

    def __init__(self, *, cwd: str | None, plain_urls_only: bool) -> None:
        """See `FactReader`."""
        self._cwd = cwd
        self._plain_urls_only = plain_urls_only

    def read(
        self,
        tool: str,
        value: Json,
        repository: RealPath | None,
        remotes: GitRemotes,
        *,
        of_git: bool,
    ) -> tuple[Value, ...] | Refusal:
        """Return one value for each remote, with every host that it leads to.

        An omitted argument means the default remote, if the tool is known to contact one.
        """
        if not value and value in (None, "", []):
            if of_git and repository is not None and tool in _OPERATIONS:
                return self._default(tool, str(repository), remotes, given=value is not None)
            return (_EMPTY,) if value == "" else ()
        if not isinstance(value, str | list):
            # A server may convert it to text, which git may take for a remote.
            return _NO_TEXT
        strings = strings_of(value, "git-remote")
        if isinstance(strings, Refusal) or len(strings) > _MAX_REMOTES:
            return strings if isinstance(strings, Refusal) else _TOO_MANY
        found: list[Value] = []
        for text in strings:
            one = self._explicit(tool, text, repository, remotes)
            if isinstance(one, Refusal):
                return one
            found.append(one)
        return tuple(found)

    def _explicit(
        self, tool: str, text: str, repository: RealPath | None, remotes: GitRemotes
    ) -> UrlValue | Refusal:
        if self._plain_urls_only and "://" in text and not is_unambiguous(text):
            return _UNCLEAR
        spelled = canonical_git_url(text)
        if not text:
            # One of several values is empty. It does not stand for the default remote; nobody knows
            # for what.
            return _EMPTY_AMONG_OTHERS
        directory = self._cwd if repository is None else str(repository)
        if tool in _OUTSIDE_A_REPOSITORY:
            directory = None
        elif directory is None and not is_explicit_remote(text):
            return _NOWHERE
        urls = remotes.destinations(text, directory, operation_of(tool))
        return urls if isinstance(urls, Refusal) else _leading_to(spelled, urls)

    def _default(
        self, tool: str, repository: str, remotes: GitRemotes, *, given: bool
    ) -> tuple[Value, ...] | Refusal:
        urls = remotes.default_destinations(repository, operation_of(tool))
        if isinstance(urls, Refusal):
            return urls
        if not urls:
            return (_EMPTY,) if given else ()
        return (_leading_to(canonical_git_url(urls[0]), urls),)


def _leading_to(text: str, urls: tuple[str, ...]) -> UrlValue:
    spelled = [canonical_git_url(url) for url in urls]
    domains = tuple(dict.fromkeys(map(git_domain, spelled)))
    return UrlValue(text, domains, all(map(is_ordinary_remote, spelled)))


# --- pushes


def may_run_hooks(repository: str, remotes: GitRemotes) -> bool:
    """Return whether git may run a hook in a repository; blocks.

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
    """Return a digest of the targets of a family of git commands, or None if it is unknown.

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
    # All spellings of a fetch mean the same: also those that leave the remote to git.
    steering = remotes.steering(repository, None if program in _FETCHES else named)
    # A push takes these along: a new one is another approval.
    follows = program == "push" and "push.followtags" in (steering or "")
    tags = remotes.plumbing(repository, ("for-each-ref", "refs/tags")) if follows else ""
    is_renamed = program == "push" and remotes.renames_pushes(repository)
    if is_renamed or urls is None or steering is None or tags is None:
        return None
    # Without a remote, only its place identifies a repository.
    said = "\0".join([*(urls or (repository,)), "", steering, tags])
    return sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


_FETCHES: Final = frozenset({"fetch", "pull", "ls-remote"})


def destinations(family: Family, remotes: GitRemotes) -> tuple[str, ...] | None:
    """Return every URL that a family of git commands reaches, or None if it is unknown."""
    root = repository_root(RealPath.from_text(family.directory or ""))
    if isinstance(root, Refusal) or not os.path.isdir(str(root)):  # noqa: PTH112  a text
        return None
    return _urls(family, str(root), remotes)


def _urls(family: Family, repository: str, remotes: GitRemotes) -> tuple[str, ...] | None:
    program, named = _named(family)
    operation: RemoteOperation = "push" if program == "push" else "both"
    if named is None or "--all" in family.kept:
        urls = remotes.default_destinations(repository, "any" if program in _FETCHES else "both")
    else:
        urls = remotes.destinations(named, repository, operation)
    return None if isinstance(urls, Refusal) else urls


def _named(family: Family) -> tuple[str, str | None]:
    """Return the sub-command, and the remote that it names, or None if it names none."""
    words = [one for one in (*family.program, *family.kept) if not one.startswith("-")]
    if "git" not in words:
        return words[-1], None
    after = words[words.index("git") + 1 :]
    return "".join(after[:1]), after[1] if len(after) > 1 else None


# --- git credentials


_LARGEST: Final = 1 << 20
_CREDENTIALS: Final = lazy(
    # A password in a URL, a token in the place of the user, a header that a server asks for.
    rb"://[^\s/@:\"]*:[^\s/@\"]+@"
    rb"|://(?:gh[a-z]_|github_pat_|glpat-|x-token|[A-Za-z0-9_-]{30,})[^\s/@\"]*@"
    rb"|extraheader\s*=.*(?:authorization|token|cookie)",
    re.IGNORECASE,
)


def shows_credentials(directory: str) -> bool:
    """Return whether git's own configuration of a repository holds a password or a token.

    A configuration that cannot be read counts as one that does.

    Args:
        directory: real, absolute; what holds `.git`.
    """
    shared = shared_directory(RealPath.from_text(directory))
    return any(map(_holds_credentials, (f"{shared}/config", f"{directory}/.git/config.worktree")))


def _holds_credentials(path: str) -> bool:
    try:
        text = beginning_of(path, _LARGEST + 1) or b""
    except IrregularFileError:
        return False
    except (OSError, ValueError):
        return True
    return len(text) > _LARGEST or _CREDENTIALS.search(text) is not None


# --- what would be published beside what was asked for

_MOST_COMMITS: Final = 20
"""The most commits on top of the known ones that are read. With more it is not known what a push
would publish."""
_MOST_ASKED: Final = 256
_TAGS: Final = ("for-each-ref", "refs/tags")
_COMMIT: Final = lazy(r"tree [0-9a-f]+\nparent ([0-9a-f]+)\nauthor ")
"""A commit with one parent. A merge brings what another branch has."""


class NamedCommits:
    """The commits of one session's workspace that somebody asked for. Thread-safe; blocks."""

    def __init__(self, git: GitRemotes, workspace: RealPath | None) -> None:
        """Take what is there as the user's own."""
        self._git = git
        self._workspace = workspace
        self._lock = Lock()
        self._asked: dict[str, frozenset[str] | None] = {}
        heads = self._ask("rev-parse", "HEAD", "--branches", "--remotes")
        self._known = set((heads or "").split())
        self._tags = self._ask(*_TAGS)

    def look(self) -> Unpublished | None:
        """Return what a commit and a push would publish, or None if it is not known."""
        with self._lock:
            head = (self._ask("rev-parse", "--verify", "HEAD^{commit}") or "").strip()
            staged = self._changes("diff-index", "--cached", "HEAD") if head else None
            if staged is None:
                return None
            made = self._made(head)
            while made and self._is_asked(made[0]):
                self._known.add(made.pop(0).id)
            commits = None if made is None or self._takes_tags() else tuple(made)
            return Unpublished(head=head, staged=staged[0], new=staged[1], commits=commits)

    def _takes_tags(self) -> bool:
        """Return whether a push would take along a tag that was not there: its words go, too."""
        follows = self._ask("config", "--type=bool", "--default=0", "push.followTags") != "false\n"
        return follows and (self._tags is None or self._ask(*_TAGS) != self._tags)

    def _made(self, at: str) -> list[MadeCommit] | None:
        """Return the commits on top of a known one, oldest first, or None if they are unclear."""
        made: list[MadeCommit] = []
        while at not in self._known:
            one = self._commit(at) if len(made) < _MOST_COMMITS else None
            if one is None:
                return None
            made.insert(0, one)
            at = one.parent
        return made

    def asked(self, seen: Unpublished, paths: Iterable[str] | None) -> None:
        """Note that a commit on top of what was seen was asked for: of these paths, or of any."""
        with self._lock:
            if len(self._asked) >= _MOST_ASKED:
                self._asked.clear()
            self._asked[seen.head] = None if paths is None else frozenset(paths)

    def published(self, seen: Unpublished) -> None:
        """Note that what was seen is published: nothing in it is told again."""
        with self._lock:
            self._known.add(seen.head)

    def _is_asked(self, one: MadeCommit) -> bool:
        if one.parent not in self._asked:
            return False
        # Another commit on the same parent is a second one.
        paths = self._asked.pop(one.parent)
        return paths is None or paths.issuperset(one.paths)

    def _commit(self, name: str) -> MadeCommit | None:
        raw = self._ask("cat-file", "commit", name)
        found = _COMMIT.match(raw or "")
        changes = found and self._changes("diff-tree", "-r", found[1], name)
        if raw is None or not found or not changes:
            return None
        text = raw.partition("\n\n")[2].strip()
        return MadeCommit(id=name, parent=found[1], text=text, paths=changes[0], new=changes[1])

    def _changes(self, *command: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the paths that a comparison names, and the new ones among them."""
        listed = self._ask(command[0], "--name-status", "--no-renames", "-z", *command[1:])
        if listed is None:
            return None
        words = listed.split("\0")
        named = list(
            zip(words[::2], [f"{self._workspace}/{one}" for one in words[1::2]], strict=False)
        )
        return (
            tuple([path for _, path in named]),
            tuple([path for status, path in named if status == "A"]),
        )

    def _ask(self, *command: str) -> str | None:
        if self._workspace is None:
            return None
        return self._git.plumbing(str(self._workspace), ("--no-replace-objects", *command))
