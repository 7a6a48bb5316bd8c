"""The commits and staged files that a push or a commit would publish beside what was asked for.

An agent may commit and stage without a question where the timeline takes it back. What was so made
is nobody's wish to publish. So the kernel remembers the commits that were there when the session
began, or were published or asked for since. All others are told to whoever answers for the user.
Git's objects are read as they are: references and grafts can be written by a command of the
agent's, so neither the remote's branches nor replaced objects count.
"""

import re
from collections.abc import Iterable
from threading import Lock
from typing import Final

from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.model.history import MadeCommit, Unpublished
from ironcurtain_proxy.model.values import RealPath

_MOST_COMMITS: Final = 20
"""The most commits on top of the known ones that are read. With more it is not known what a push
would publish."""
_MOST_ASKED: Final = 256
_TAGS: Final = ("for-each-ref", "refs/tags")
_COMMIT: Final = re.compile(r"tree [0-9a-f]+\nparent ([0-9a-f]+)\nauthor ")
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
