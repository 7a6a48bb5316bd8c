"""Which changes of one transaction are control places, by path and, where it decides, by content.

`control_places.rules` judges paths. Three of its answers depend on what a file holds: a
configuration of git that only has harmless settings stays, and an index stays that leads git into
no other repository than before. An approved place stays whatever it holds.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.control_places.git_files import (
    EntryKey,
    NotedFile,
    UnreadableIndexError,
    hash_length_of,
    is_harmless,
    is_index,
    keeps_worktree,
    notes_of,
    resolves_no_more,
)
from ironcurtain_proxy.control_places.leads import Leads, directory_of_git
from ironcurtain_proxy.control_places.links import (
    changes_looks_alone,
    is_activation,
    is_plain,
    leads_into,
    leads_into_cache,
)
from ironcurtain_proxy.control_places.python_modules import COMPILED
from ironcurtain_proxy.control_places.rules import (
    ControlKind,
    RelativeParts,
    control_of,
    folded,
    is_in_cache,
    looks_like_repository,
    may_be_control,
)
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import KeptBack

_ANYWHERE: Final = "/\0"
"""Stands for the directory of the workspace: no path leads back into it."""
REPOSITORY_PARTS: Final = frozenset({"head", "objects", "refs", "commondir"})
"""The entries by which git knows a repository, as `folded` returns them."""
_CONTROL_PARTS: Final = frozenset(
    {"config", "config.worktree", "hooks", "info", "modules", "worktrees", "commondir", "gitdir"}
    | {"branches", "remotes", "objects"}
)
"""What was data while its directory was no repository, and is control, or may hold it, after."""
_SAID: Final[dict[ControlKind, str]] = {
    "configuration": "a setting of git",
    "hook": "a program that git runs",
    "state": "a waiting rebase, merge or bisect, which git continues",
    "pointer": "a pointer that leads git elsewhere",
    "repository": "a repository of git's own",
    "acted-on": "a program of this machine acts on it",
    "hidden": "a new hidden name, of which nobody knows what acts on it",
    "version": "it may lead a program of this machine to a path, or set what steers one",
}
_LAST: Final = {_SAID["acted-on"]: 1, _SAID["version"]: 2, _SAID["hidden"]: 3}
_EDITOR_SETTINGS: Final = (".vscode", "settings.json")
_LED: Final = "a setting, a hook or a link names it: programs may load it by themselves"
_AWAY: Final = "a link to where no command may look"
_CACHE: Final = "a link into a tool's own directory, where no settings are judged"
_LINKED: Final = "an index that leads git into another repository"
_HIDING: Final = "an index with which git shows no change of some files"
_USERS: Final = "it holds the hooks and the settings of a repository of yours"
BECOMES: Final = "it would make a repository of what is there"


def gravest_first(found: Sequence[KeptBack]) -> tuple[KeptBack, ...]:
    """Return what was kept back, so that a crowd of one kind hides nothing.

    What nobody knows a program for comes last, before it what programs act on; and of one kind last
    what there is most of by its name.
    """
    kinds = [(one, one.why.partition("; ")[0], one.path.rpartition(b"/")[2]) for one in found]
    count = Counter([kind[1:] for kind in kinds])
    kinds.sort(key=lambda kind: (_LAST.get(kind[1], 0), count[kind[1:]]))
    return tuple([one for one, _, _ in kinds])


class Judged(Struct, frozen=True):
    """An entry of the view, as the rules need it."""

    parts: RelativeParts
    is_directory: bool
    is_link: bool
    is_removed: bool
    settled: int
    """How many of the components from the left are in the workspace, too."""
    new: Callable[[], bytes | None]
    """Reads the entry in the view, or None if it is no file, or too large."""
    before: Callable[[], bytes | None]
    """Reads what is in the workspace, or None if it is no file, or there is none."""
    settings: Callable[[], bytes | None]
    """Reads git's configuration beside it in the workspace."""
    target: Callable[[], str]
    """Reads the link in the view, or empty if it is none."""


class LedPlaces(Struct, frozen=True):
    """What settings and links lead to, also those that a command has not come near."""

    paths: frozenset[str] = frozenset()
    """In the workspace, absolute."""
    hooks_in_each: tuple[str, ...] = ()
    """Where the user's own settings say that every repository has its hooks, relative to it."""
    modules: Mapping[str, frozenset[str]] = {}
    """By directory, the names of modules that would run as a program starts."""
    settled: frozenset[str] = frozenset()
    """The hidden names that are the project's own, in lower case."""
    configurations: Mapping[str, bytes] = {}
    """The configurations of git that were there before any command, by their absolute paths."""


class Control:
    """The control places of one transaction."""

    def __init__(
        self,
        approved: Collection[str] = (),
        led: LedPlaces = LedPlaces(),  # noqa: B008  frozen
        closed: Collection[str] = (),
    ) -> None:
        """Begin with what is known of the whole workspace.

        Args:
            approved: the paths that a person approved, relative to the workspace.
            led: what settings and links lead to.
            closed: where no command may look, absolute and real: no link may lead there either.
        """
        self._approved = frozenset([tuple(path.split("/")) for path in approved])
        self._known = led
        self._closed = closed
        self._workspace = ""
        self._repositories: set[RelativeParts] = set()
        self._leads = Leads(())
        """Where the user's own settings of git, and links of control places, lead to."""

    def enter(self, parts: RelativeParts, view: Collection[str], host: Collection[str]) -> bool:
        """Learn what a directory holds now, and held before.

        Args:
            parts: the directory.
            view: the repository's parts of `REPOSITORY_PARTS` that are in the view.
            host: all names in the workspace; of these, what the view removed is not left out.

        Returns:
            Whether what is there becomes a repository that nobody has judged.
        """
        if not looks_like_repository(view):
            return False
        self._repositories.add(parts)
        self.begins(parts)
        # Not what lies in one: its directories of data may hold any file.
        was_one = looks_like_repository(host) or [*map(folded, parts[-1:])] == [".git"]
        # Each file of the user's would count as a setting of git, or as data that git reads.
        return not was_one and not REPOSITORY_PARTS.issuperset(map(folded, host))

    def why_kept_back(self, entry: Judged) -> str | None:
        """Return why a change does not come into the workspace, or None if it does."""
        if self._is_led_to(entry):
            return _LED
        if entry.is_link and (why := self._why_link(entry)) is not None:
            return why
        found = control_of(
            entry.parts,
            is_directory=entry.is_directory,
            is_link=entry.is_link,
            is_repository=self._repositories.__contains__,
            is_settled=lambda path: (
                len(path) <= entry.settled
                or path in self._approved
                or path[-1].lower() in self._known.settled
            ),
        )
        if found is None:
            return _why_index(entry) if is_index(entry.parts[-1]) else None
        if self._is_approved(entry.parts) or found.root in self._approved:
            return None
        return None if self._is_harmless(found.kind, entry) else _SAID[found.kind]

    def _is_harmless(self, kind: ControlKind, entry: Judged) -> bool:
        """Return whether a control place may change as it did, by its content."""
        match kind:
            case "configuration":
                # A repository may have been removed by one command, to be made anew by the next.
                was = entry.before() or self._known.configurations.get(self._absolute(entry.parts))
                return _is_harmless_configuration(entry, was)
            case "version":
                return entry.is_removed or is_plain(entry.parts[-1], entry.new(), entry.before())
            case "acted-on":
                if entry.is_removed or entry.parts[-2:] != _EDITOR_SETTINGS:
                    # The directory alone acts on nothing. What is in it is judged by itself.
                    is_new = entry.is_directory and not entry.is_removed
                    return is_new and entry.parts[-1] == _EDITOR_SETTINGS[0]
                return changes_looks_alone(entry.before(), entry.new() or b"")
            case "hook" | "state" | "pointer" | "repository" | "hidden":
                return False

    def why_no_removal(self, directory: RelativeParts) -> str | None:
        """Return why a directory with a repository of the user's may not go, or be replaced.

        The next one at its place would have neither the user's hooks nor the user's remotes. One
        that a command made is its own to remove.
        """
        below = f"{self._absolute(directory)}/"
        holds = any(one.startswith(below) for one in self._known.configurations)
        return _USERS if holds and not self._is_approved(directory) else None

    def _absolute(self, parts: RelativeParts) -> str:
        return "/".join([self._workspace, *parts])

    def follow(self, parts: RelativeParts, host: int) -> None:
        """Learn where the control places in a directory of the workspace lead to.

        Git runs the hooks of `core.hooksPath` and reads what `include.path` names; programs follow
        a link such as `.vscode`. What lies there is control, under whatever name.
        """
        here = str(Path(f"/proc/self/fd/{host}").readlink())
        if not parts:
            self._workspace = here
            known = self._known
            self._leads = Leads((here,), known.paths, known.hooks_in_each, known.modules)
            self._leads.of_user()
            # Whatever the user's Python is told there, it looks there first.
            self._leads.modules.import_from(here)
        if not (is_repository := files.look(host, b".git") is not None) and parts:
            return
        with suppress(OSError), os.scandir(here) as found:
            for one in found:
                if one.is_symlink() and may_be_control("", one.name):
                    self._leads.of_link(one.path, os.readlink(one.path), here)  # noqa: PTH115  text
        if is_repository:
            self._leads.of_git(directory_of_git(f"{here}/.git"), here)

    def begins(self, parts: RelativeParts, host: int | None = None) -> bool:
        """Learn that a directory holds a repository, which has hooks by the user's settings.

        Args:
            parts: the directory.
            host: the same in the workspace, opened, or None if there is none.

        Returns:
            Whether it is new, and what these settings run is there already, judged as data.
        """
        is_new = host is not None and files.look(host, b".git") is None
        spoils = is_new and self._leads.would_run(self._absolute(parts))
        self._leads.of_repository(self._absolute(parts), is_pointer=False)
        return spoils

    def _why_link(self, entry: Judged) -> str | None:
        """Return why a new link may not lead where it does, or None if it may."""
        target = entry.target()
        if self._is_approved(entry.parts):
            return None
        if leads_into(self._absolute(entry.parts), target, self._closed):
            return _AWAY
        return _CACHE if leads_into_cache(self._workspace, entry.parts, target) else None

    def _is_led_to(self, entry: Judged) -> bool:
        """Return whether a path is led to, or takes the place of a directory on the way there."""
        if not len(self._leads) or self._is_approved(entry.parts):
            return False
        path = self._absolute(entry.parts)
        # A virtual environment may be made anew: what comes in its place is judged as this one.
        if entry.is_removed and (COMPILED in entry.parts or is_in_cache(entry.parts)):
            return False
        if not entry.is_link and is_activation(path, entry.new(), [self._workspace]):
            return False
        if entry.is_removed:
            # Nothing is lost of what is not there, and the next directory is judged as this one.
            is_directory = os.path.isdir(path) and not entry.is_link  # noqa: PTH112  text
            return self._leads.holds(path, is_directory=is_directory) or self._leads.is_above(path)
        return self._leads.holds(path, is_directory=entry.is_directory) or (
            not entry.is_directory and self._leads.is_on_the_way(path)
        )

    def _is_approved(self, parts: RelativeParts) -> bool:
        return any(parts[:end] in self._approved for end in range(1, len(parts) + 1))

    def is_in_repository(self, parts: RelativeParts) -> bool:
        """Return whether a path lies in a directory of git."""
        return any(
            folded(parts[end]) == ".git" or parts[: end + 1] in self._repositories
            for end in range(len(parts))
        )


def names_that_decide(directory: int) -> frozenset[str]:
    """Return the names in a directory that make it a repository, or steer one that it is.

    They are asked for as git does: a file system that makes no difference of case finds each.
    """
    every = {one: one for one in REPOSITORY_PARTS | _CONTROL_PARTS} | {"head": "HEAD"}
    found = [one for one, name in every.items() if files.look(directory, name.encode()) is not None]
    return frozenset(found)


def _is_harmless_configuration(entry: Judged, before: bytes | None) -> bool:
    if entry.is_link or entry.is_directory:
        return False
    new = entry.new()
    if entry.parts[-1] == "MERGE_RR":
        return entry.is_removed or (new is not None and resolves_no_more(before, new))
    if entry.parts[-1] != "config" or new is None or not is_harmless(before, new):
        return False
    return keeps_worktree("/".join([_ANYWHERE, *entry.parts[:-1]]), before, new)


def _why_index(entry: Judged) -> str | None:
    """Return why an index is kept back; None also for a file that only has the name of one."""
    if entry.is_directory or entry.is_link or entry.is_removed:
        return None
    new = entry.new()
    if new is not None and not new.startswith(b"DIRC"):
        return None
    if new is None:
        return "an index that is too large to be read"
    # An index can be made that reads as harmless with the wrong one.
    length = hash_length_of(entry.settings() or b"")
    try:
        found = notes_of(new, hash_length=length)
    except UnreadableIndexError as error:
        return str(error)
    links, hidden = _special(found)
    known: Mapping[EntryKey, NotedFile] = {}
    # Mostly there are none, and the index before takes as long to read as this one.
    if links or hidden:
        with suppress(UnreadableIndexError):
            known = notes_of(entry.before() or b"", hash_length=length)
    links_before, hidden_before = _special(known)
    if not links <= links_before:
        return _LINKED
    return None if hidden <= hidden_before else _HIDING


def _special(notes: Mapping[EntryKey, NotedFile]) -> tuple[set[bytes], set[bytes]]:
    """Return the gitlinks, and the files of which git shows no change."""
    return (
        {path for (path, _), one in notes.items() if one.is_gitlink},
        {path for (path, _), one in notes.items() if one.is_hidden},
    )
