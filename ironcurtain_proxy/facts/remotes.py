"""The hosts of a git remote argument, present or omitted."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.facts.arguments import strings_of
from ironcurtain_proxy.facts.git import GitRemotes, RemoteOperation
from ironcurtain_proxy.facts.spelling import Refusal
from ironcurtain_proxy.facts.urls import (
    canonical_git_url,
    git_domain,
    is_explicit_remote,
    is_ordinary_remote,
    is_unambiguous,
)
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.request import UrlValue, Value

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
    """The operation of a tool on its remote. An unknown tool may do either."""
    return _OPERATIONS.get(tool, "both")


BARE: Final = Refusal(
    "is in a directory that git would take for a bare repository, whose configuration can run "
    "commands; use a repository with a .git directory"
)


def repository_root(directory: RealPath) -> RealPath | Refusal:
    """The repository that git would find from a directory; the directory itself if there is none.

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
    """Whether git, or a git library, could accept a directory itself as a repository."""
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
        """One value for each remote, with every host that it leads to.

        An omitted argument means the default remote, if the tool is known to contact one.
        """
        if not value and value in (None, "", []):
            if of_git and repository is not None and tool in _OPERATIONS:
                return self._default(tool, str(repository), remotes, given=value is not None)
            return _values_of_empty(value)
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
        if isinstance(urls, Refusal):
            return urls
        return _leading_to(spelled, urls)

    def _default(
        self, tool: str, repository: str, remotes: GitRemotes, *, given: bool
    ) -> tuple[Value, ...] | Refusal:
        urls = remotes.default_destinations(repository, operation_of(tool))
        if isinstance(urls, Refusal):
            return urls
        if not urls:
            return _values_of_empty("" if given else None)
        return (_leading_to(canonical_git_url(urls[0]), urls),)


def _values_of_empty(value: Json) -> tuple[Value, ...]:
    return (_EMPTY,) if value == "" else ()


def _leading_to(text: str, urls: tuple[str, ...]) -> UrlValue:
    spelled = [canonical_git_url(url) for url in urls]
    domains = tuple(dict.fromkeys(map(git_domain, spelled)))
    return UrlValue(text, domains, all(map(is_ordinary_remote, spelled)))
