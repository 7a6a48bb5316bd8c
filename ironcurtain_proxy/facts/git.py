"""The URLs of git remotes, as git itself computes them.

This module reads the output of `git remote`, `git config` and similar commands, which start no
hook, alias, pager, credential helper or connection.

A name does not determine its URL: `origin` may have a `pushurl`, several URLs, or be rewritten by
`insteadOf` and `pushInsteadOf`; and a URL may be the name of a remote or of a group. So git is
asked for names and URLs alike. What it answers is kept with all that it rests on, and counts as
long as that is read again and is the same.
"""

import os
import posixpath
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.facts.arguments import (
    Refusal,
    canonical_git_url,
    git_domain,
    is_ordinary_remote,
)
from ironcurtain_proxy.facts.git_process import GitOutput, GitState, run_git, state_of
from ironcurtain_proxy.model.values import lazy

RemoteOperation: TypeAlias = Literal["push", "fetch", "both", "any"]
"""`any` is both, of whatever branch: a command may check out another one first."""
"""The operation of a call on a remote. `both`: unknown, so either."""

# Verbose listing: name, tab, URL, direction, and for partial clones a filter.
_REMOTE_LINE: Final = lazy(r"([^\t]*)\t(?:(.*) \((fetch|push)\)(?: \[[^\]]*\])?)?")
_CONTROL: Final = lazy(r"[\x00-\x1f\x7f]")
_SETTINGS: Final = (
    r"^(branch\..*\.(remote|pushremote)|remote\.pushdefault|remote\..*\.vcs"
    r"|remotes\..*|fetch\.all)$"
)
_MAPPINGS: Final = (
    r"^(push\.(default|recursesubmodules)|submodule\.recurse|remote\..*\.push|branch\..*\.merge)$"
)
"""Settings that can redirect a push to another branch, or add pushes of submodules."""
_CHOSEN: Final = r"^remote\..*\.gh-resolved$"
"""Where `gh` notes which repository it works on: another one, or `base`, the remote's own."""
_PUSHES: Final = (
    r"^(branch\..*\.(remote|pushremote|merge)|remote\.pushdefault|push\..*|submodule\.recurse"
    r"|remote\..*\.(push|mirror))$"
)
_STEERING: Final = (
    r"^(core\.(sshcommand|gitproxy|askpass|worktree|hookspath|fsmonitor)|credential\..*|http\..*|url\..*|push\..*"
    r"|fetch\..*|pull\..*|protocol\..*|merge\..*|filter\..*|submodule\..*|include.*"
    r"|remotes\..*|remote\.NAME\..*)$"
)

_UNKNOWN: Final = Refusal("names a git remote, but git could not say where it leads")
_GROUP: Final = Refusal("names a group of git remotes; name one remote")
_LEGACY: Final = Refusal("names a git remote that is kept in an outdated form (.git/remotes)")
_HELPER: Final = Refusal("names a git remote that is reached by a helper program")
_NO_TEXT: Final = Refusal("names a git remote with a control character")


class _Remotes(Struct, frozen=True):
    """The remotes of one repository."""

    fetch: Mapping[str, tuple[str, ...]]
    push: Mapping[str, tuple[str, ...]]
    names: frozenset[str]

    def urls(self, name: str, operation: RemoteOperation) -> tuple[str, ...]:
        fetched, pushed = self.fetch.get(name, ()), self.push.get(name, ())
        return {"fetch": fetched, "push": pushed}.get(operation, fetched + pushed)


_Answer: TypeAlias = tuple[str, ...] | Refusal
_MOST_KEPT: Final = 256
_LEADS_NOWHERE: Final = (
    *("GIT_SSL_", "GIT_SSH", "GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_TRACE", "GIT_EDITOR"),
    *("GIT_PAGER", "GIT_ASKPASS", "GIT_TERMINAL_PROMPT", "GIT_CONFIG_NOSYSTEM"),
)
"""Variables by which git reads no other settings than it would without them."""


class GitRemotes:
    """Asks git, with the environment that the server's own git has.

    Blocks for a few milliseconds, at most for `deadline`: not for an event loop. Thread-safe.
    """

    def __init__(self, environment: Mapping[str, str], *, deadline: float = 5.0) -> None:
        """Set git's environment.

        Args:
            environment: the server's environment. Only `PATH`, `HOME`,
                `XDG_CONFIG_HOME` and names that begin with `GIT_` count.
            deadline: seconds for all questions about one remote.
        """
        self._environment = dict(environment)
        self._deadline = deadline
        self._answers: dict[tuple[str | None, ...], tuple[GitState, _Answer]] = {}

    def _kept(
        self, repository: str | None, question: Sequence[str], ask: Callable[[], _Answer]
    ) -> _Answer:
        """Return what git answers; it is asked again once anything changed that this rests on."""
        state = self._state(repository)
        known = self._answers.get((repository, *question))
        if state is not None and known is not None and known[0][0] == state[0]:
            return known[1]
        answer = ask()
        # INVARIANT: an answer counts for the state that it was given in, with no other between.
        if state is not None and not isinstance(answer, Refusal):
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            if self._state(repository) == state:
                self._answers[repository, *question] = (state, answer)
        return answer

    def _state(self, repository: str | None) -> GitState | None:
        try:
            return state_of(repository, self._settings) if self._settings else None
        except (OSError, ValueError):
            return None

    @cached_property
    def _settings(self) -> tuple[str, ...]:
        """The files of settings of the machine and the user, or none if not all are known.

        Where the machine's file lies was chosen when git was built. Git tells it to an editor.
        """
        home = self._environment.get("HOME", "")
        users = self._environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
        leading = [name for name in self._environment if not name.startswith(_LEADS_NOWHERE)]
        # From a relative place git reads in the repository itself.
        is_fixed = home.startswith("/") and users.startswith("/")
        if not is_fixed or any(name.startswith("GIT_") for name in leading):
            return ()
        (found,) = run_git(
            (("config", "--system", "--edit"),),
            "/",
            {**_git_environment(self._environment, ()), "GIT_EDITOR": "echo"},
            self._deadline,
        )
        machine = found.text.removesuffix("\n")
        if found.status != 0 or not posixpath.isabs(machine) or "\n" in machine:
            return ()
        return (machine, f"{users}/git/config", f"{home}/.gitconfig")

    def destinations(
        self, remote: str, repository: str | None, operation: RemoteOperation
    ) -> tuple[str, ...] | Refusal:
        """Return every URL that git would contact for a remote given by name or by URL.

        Never empty.

        Args:
            remote: as the agent wrote it, not empty.
            repository: a real directory; None: the operation belongs to no repository (a clone).
            operation: which of the URLs count.
        """
        if _CONTROL.search(remote):
            return _NO_TEXT
        if repository is None:
            return self._kept(None, (remote,), lambda: self._outside(remote))
        if not os.path.isdir(repository):  # noqa: PTH112  a text
            return (remote,)
        return self._kept(
            repository, (operation, remote), lambda: self._inside(remote, repository, operation)
        )

    def default_destinations(
        self, repository: str, operation: RemoteOperation
    ) -> tuple[str, ...] | Refusal:
        """Return every URL git would contact if no remote is given; empty if there is no remote.

        `origin` counts besides git's own default: servers fill it in by themselves.
        """
        if not os.path.isdir(repository):  # noqa: PTH112  a text
            return ()
        return self._kept(repository, (operation,), lambda: self._defaults(repository, operation))

    def _defaults(self, repository: str, operation: RemoteOperation) -> _Answer:
        listing, settings, head = self._run(
            repository,
            (
                ("remote", "-v"),
                ("config", "-z", "--get-regexp", _SETTINGS),
                ("symbolic-ref", "-q", "HEAD"),
            ),
        )
        if listing.no_repository:
            return ()
        remotes, values = _read_listing(listing), _read_settings(settings)
        if remotes is None or values is None or head.status not in {0, 1}:
            return _UNKNOWN
        branch = head.text.strip().removeprefix("refs/heads/")
        found: list[str] = []
        for name in _default_names(branch, operation, remotes, values):
            # `origin` is a guess: if it is missing, nothing goes there.
            if name == "origin" and name not in remotes.names:
                continue
            urls = self.destinations(name, repository, operation)
            if isinstance(urls, Refusal):
                return urls
            found += urls
        return _distinct(found)

    def only_repository(self, repository: str) -> str | None:
        """Return the one `host/path` to which all remotes lead, or None if there is no such one.

        Args:
            repository: a real directory.
        """
        said = self._kept(repository, ("only",), lambda: self._every_url(repository))
        urls = () if isinstance(said, Refusal) else map(canonical_git_url, said)
        found = {git_domain(one) if is_ordinary_remote(one) else "" for one in urls}
        return found.pop() or None if len(found) == 1 else None

    def _every_url(self, repository: str) -> _Answer:
        listing, chosen = self._run(
            repository, (("remote", "-v"), ("config", "-z", "--get-regexp", _CHOSEN))
        )
        remotes, values = _read_listing(listing), _read_settings(chosen)
        if remotes is None or values is None or not {"base"}.issuperset(values.values()):
            return _UNKNOWN
        return _distinct(url for one in (remotes.fetch, remotes.push) for urls in one.values()
                         for url in urls)  # fmt: skip

    def renames_pushes(self, repository: str) -> bool:
        """Return whether a push by a branch's name may change one of another name.

        Or it may push submodules, each to a place that its own configuration names.
        """
        settings, links = self._run(
            repository,
            (
                ("config", "-z", "--get-regexp", _MAPPINGS),
                ("for-each-ref", "--format=%(symref)", "refs/heads"),
            ),
        )
        values = _read_settings(settings)
        if values is None or _recurses(values) or any(key.endswith(".push") for key in values):
            return True
        if links.status != 0 or links.text.strip():
            # A symbolic branch is pushed under the name of its target.
            return True
        follows = values.get("push.default", "") in {"upstream", "tracking"}
        return follows and any(
            key != f"branch.{value.removeprefix('refs/heads/')}.merge"
            for key, value in values.items()
            if key.startswith("branch.")
        )

    def push_target(self, repository: str, branch: str) -> tuple[str, str] | None:
        """Return the remote and branch of `git push` without operands, or None if it is unknown.

        Args:
            repository: a real directory.
            branch: the one that is checked out.
        """
        said = self._kept(repository, ("target", branch), lambda: self._target(repository, branch))
        return None if isinstance(said, Refusal) else (said[0], said[1])

    def _target(self, repository: str, branch: str) -> _Answer:
        listing, settings = self._run(
            repository, (("remote", "-v"), ("config", "-z", "--get-regexp", _PUSHES))
        )
        remotes, values = _read_listing(listing), _read_settings(settings)
        if remotes is None or values is None:
            return _UNKNOWN
        (remote, *_) = _default_names(branch, "push", remotes, values)
        (fetched, *_) = _default_names(branch, "fetch", remotes, values)
        if _recurses(values) or any(f"remote.{remote}.{one}" in values for one in _LEADING):
            return _UNKNOWN
        upstream = values.get(f"branch.{branch}.merge", "").removeprefix("refs/heads/")
        target = upstream if remote == fetched else branch
        match values.get("push.default", "simple"):
            case "simple" if not target:
                # Without an upstream git refuses, or sets it to the branch of the same name.
                target = branch
            case "simple" if target != branch:
                target = ""
            case "current":
                target = branch
            case "upstream" | "tracking" if remote != fetched:
                target = ""
            case "simple" | "upstream" | "tracking":
                pass
            case _:
                target = ""
        return (remote, target) if target else _UNKNOWN

    def steering(self, repository: str, remote: str | None) -> str | None:
        """Return the settings that change the programs git runs, or its use of a remote.

        It is None if it is unknown.

        Args:
            repository: a real directory.
            remote: by name, or None if all count.
        """
        plain = remote is not None and re.fullmatch(r"[A-Za-z0-9_]+", remote)
        name = remote if remote is not None and plain else ".*"
        pattern = _STEERING.replace("NAME", name)

        def ask() -> _Answer:
            (found,) = self._run(repository, (("config", "-z", "--get-regexp", pattern),))
            return (found.text,) if found.status in {0, 1} else _UNKNOWN

        said = self._kept(repository, ("steering", name), ask)
        return None if isinstance(said, Refusal) else said[0]

    def names_hooks(self, repository: str) -> bool:
        """Return whether a setting may name another directory of hooks."""
        (found,) = self._run(repository, (("config", "-z", "--get-all", "core.hooksPath"),))
        # The last one is ours: no hook runs while git is asked.
        return found.status != 0 or found.text.split("\0")[:-1] != ["/dev/null"]

    def plumbing(self, repository: str, command: tuple[str, ...]) -> str | None:
        """Return what a command of git's plumbing prints, or None if it fails."""
        (output,) = self._run(repository, (command,))
        return output.text if output.status == 0 else None

    def _inside(
        self, remote: str, repository: str, operation: RemoteOperation
    ) -> tuple[str, ...] | Refusal:
        # An unpredictable name: git rewrites its URL as if it were given.
        stand_in = f"ironcurtain-{secrets.token_hex(8)}"
        listing, settings = self._run(
            repository,
            (("remote", "-v"), ("config", "-z", "--get-regexp", _SETTINGS)),
            ((f"remote.{stand_in}.url", remote),),
        )
        if listing.no_repository:
            return (remote,)
        remotes, values = _read_listing(listing), _read_settings(settings)
        if remotes is None or values is None:
            return _UNKNOWN
        refusal = self._unusual(remote, repository, operation, remotes, values)
        if refusal is not None:
            return refusal
        found: list[str] = []
        for direction in ("fetch", "push") if operation == "both" else (operation,):
            found += remotes.urls(remote, direction) or remotes.urls(stand_in, direction)
        return _distinct(found) or _UNKNOWN

    def _outside(self, remote: str) -> tuple[str, ...] | Refusal:
        (answer,) = self._run("/", (("ls-remote", "--get-url", "--", remote),), no_repository=True)
        url = answer.text.removesuffix("\n")
        return _UNKNOWN if answer.status != 0 or not url or _CONTROL.search(url) else (url,)

    def _unusual(
        self,
        remote: str,
        repository: str,
        operation: RemoteOperation,
        remotes: _Remotes,
        values: Mapping[str, str],
    ) -> Refusal | None:
        """Return remotes that git reads from other places than its list."""
        if operation != "push" and f"remotes.{remote}".lower() in map(str.lower, values):
            return _GROUP
        if f"remote.{remote}.vcs" in values:
            return _HELPER
        if remote in remotes.names or "/" in remote or remote in {".", ".."}:
            return None
        (answer,) = self._run(
            repository, (("rev-parse", "--path-format=absolute", "--git-common-dir"),)
        )
        folder = answer.text.removesuffix("\n")
        if answer.status != 0 or not folder:
            return _UNKNOWN
        if any(os.path.lexists(f"{folder}/{kept}/{remote}") for kept in ("remotes", "branches")):
            return _LEGACY
        return None

    def _run(
        self,
        directory: str,
        commands: tuple[tuple[str, ...], ...],
        settings: tuple[tuple[str, str], ...] = (),
        *,
        no_repository: bool = False,
    ) -> list[GitOutput]:
        environment = _git_environment(self._environment, settings)
        if no_repository:
            environment["GIT_DIR"] = "/dev/null"
        return run_git(commands, directory, environment, self._deadline)


_OVERRIDES: Final = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("credential.helper", ""),
)
_KEPT: Final = frozenset({"PATH", "HOME", "XDG_CONFIG_HOME"})


def _git_environment(
    server: Mapping[str, str], settings: Iterable[tuple[str, str]]
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in server.items()
        if name in _KEPT or (name.startswith("GIT_") and not name.startswith("GIT_TRACE"))
    }
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ASKPASS": "false",
        "GIT_PAGER": "cat",
    }
    count = int(text) if (text := server.get("GIT_CONFIG_COUNT", "")).isdecimal() else 0
    for key, value in (*_OVERRIDES, *settings):
        environment[f"GIT_CONFIG_KEY_{count}"] = key
        environment[f"GIT_CONFIG_VALUE_{count}"] = value
        count += 1
    environment["GIT_CONFIG_COUNT"] = str(count)
    return environment


def _read_listing(output: GitOutput) -> _Remotes | None:
    """Read `git remote -v`. An unexpected line makes the whole output unreadable."""
    if output.status != 0:
        return None
    fetch: dict[str, tuple[str, ...]] = {}
    push: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    for line in output.text.split("\n")[:-1]:
        match = _REMOTE_LINE.fullmatch(line)
        if match is None:
            return None
        name, url, direction = match[1], match[2], match[3]
        names.add(name)
        if url is not None:
            urls = fetch if direction == "fetch" else push
            urls[name] = (*urls.get(name, ()), url)
    return _Remotes(fetch, push, frozenset(names))


def _read_settings(output: GitOutput) -> dict[str, str] | None:
    """Read `git config -z --get-regexp`: the last value of each key. Exit 1 means no match."""
    if output.status == 1:
        return {}
    if output.status != 0:
        return None
    pairs = (entry.partition("\n") for entry in output.text.split("\0") if entry)
    return {key: value for key, _, value in pairs}


_LEADING: Final = ("push", "mirror")


def _recurses(values: Mapping[str, str]) -> bool:
    """Return whether a push may push submodules before."""
    said = [values.get(one, "no") for one in ("push.recursesubmodules", "submodule.recurse")]
    return not {one.lower() for one in said} <= {"no", "false", "off", "0", "check"}


def _default_names(
    branch: str, operation: RemoteOperation, remotes: _Remotes, values: Mapping[str, str]
) -> list[str]:
    only = next(iter(remotes.names)) if len(remotes.names) == 1 else "origin"
    fetched = values.get(f"branch.{branch}.remote") or only
    pushed = (
        values.get(f"branch.{branch}.pushremote") or values.get("remote.pushdefault") or fetched
    )
    names = {"fetch": [fetched], "push": [pushed]}.get(operation, [fetched, pushed])
    followed = {to for key, to in values.items() if re.match(r"(?s)branch\..*\.remote\Z", key)}
    # `.` is this repository.
    names += sorted(followed - {"."}) if operation == "any" else []
    if operation != "push" and values.get("fetch.all", "false").lower() not in {"false", "no", "0"}:
        names += sorted(remotes.names)
    return list(dict.fromkeys([*names, "origin"]))


def _distinct(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(urls))
