"""Kinds: sub-commands that one approval covers together, and spellings of one sub-command.

To the person who is asked, `gh pr view 12`, `gh run list` and `gh api repos/o/r/pulls/12/files` are
one thing: GitHub is read, of one repository. What writes, and what reads secrets, variables, other
repositories or the account, is no such kind.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ironcurtain_proxy.model.family import ANY, Family

_REPOSITORY: Final = re.compile(r"(?:-R|--repo)=([\w.-]+/[\w.-]+)")
_ENDPOINT: Final = re.compile(
    r"/?repos/(?P<repository>\{owner\}/\{repo\}|:owner/:repo|[\w-][\w.-]*/[\w-][\w.-]*)"
    r"(?P<rest>(?:/[\w-][\w.-]*)*)/?"
)
_READ: Final = frozenset(
    {"", "pulls", "issues", "commits", "compare", "branches", "releases", "tags", "labels",
     "milestones", "check-runs", "check-suites", "statuses", "comments", "contributors",
     "languages", "readme", "actions/runs", "actions/jobs", "actions/workflows"}
)  # fmt: skip
"""The parts of a repository in the kind: no secrets, variables, keys, hooks or members."""
_METHOD: Final = re.compile(r"(?:-X|--method)(?:[ =]|(?<=-X))([A-Za-z]+)")
_FIELD: Final = re.compile(r"(?:-f|-F|--field|--raw-field)=(.*)", re.DOTALL)


def wider(family: Family) -> Family | None:
    """A family that also covers what this one covers, and more; None: there is none."""
    if family.wide is not None:
        return family.widened()
    if family.program[-3:] != ("gh", "pr", "create"):
        return None
    kept = tuple([one for one in family.kept if one not in _DRAFT])
    # A draft tells nobody. It is less than a pull request, and never stands for one.
    return None if kept == family.kept else replace(family, kept=kept)


_DRAFT: Final = frozenset({"-d", "--draft"})


def reading(kept: Sequence[str]) -> tuple[str, ...] | None:
    """The repository that a reading sub-command of `gh` is about; None: it is about more."""
    if not kept:
        return ()
    found = _REPOSITORY.fullmatch(kept[0])
    return None if found is None or len(kept) > 1 else (f"--repo={found[1].lower()}",)


def reading_of_api(kept: Sequence[str]) -> tuple[str, ...] | None:
    """The repository that `gh api` reads; None: it may write, or reads outside the kind."""
    endpoint = "" if len(kept) != 1 else kept[0]
    before, glob, behind = endpoint.partition(ANY)
    found = None if glob and "/" in behind else _ENDPOINT.fullmatch(before)
    if found is None:
        return None
    parts = found["rest"].strip("/").split("/")
    if parts[0] not in _READ and "/".join(parts[:2]) not in _READ:
        return None
    repository = found["repository"]
    return () if repository[0] in "{:" else (f"--repo={repository.lower()}",)


@dataclass(frozen=True, slots=True)
class _Request:
    """The parsed words of `gh api`."""

    methods: tuple[str, ...]
    fields: tuple[str, ...]
    others: tuple[str, ...]


def plain_request(kept: Sequence[str]) -> tuple[str, ...]:
    """The words of `gh api` in one spelling: a method that is the default is left out.

    With fields, `gh api` sends a POST, else a GET.
    """
    found = _sorted(kept)
    if len(found.methods) > 1 or any(one.startswith("--input") for one in found.others):
        return tuple(kept)
    implied = "POST" if found.fields else "GET"
    method = [] if found.methods in {(), (implied,)} else [f"-X={found.methods[0]}"]
    fields = sorted({f"-f={one}" for one in found.fields})
    return (*method, *fields, *found.others)


def _sorted(kept: Sequence[str]) -> _Request:
    methods: list[str] = []
    fields: list[str] = []
    others: list[str] = []
    for word in kept:
        method, field = _METHOD.fullmatch(word), _FIELD.fullmatch(word)
        if method is not None:
            methods.append(method[1].upper())
        elif field is not None and re.fullmatch(r"[\w\[\].-]+", field[1]):
            fields.append(field[1])
        else:
            others.append(word)
    return _Request(tuple(methods), tuple(fields), tuple(others))
