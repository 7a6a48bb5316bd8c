"""Kinds: sub-commands that one approval covers together, and spellings of one sub-command.

To the person who is asked, `gh pr view 12`, `gh run list` and `gh api repos/o/r/pulls/12/files` are
one thing: GitHub is read, of one repository. What writes, and what reads secrets, variables, other
repositories or the account, is no such kind.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.model.request import ANY, FETCHES, ONLY_READS, Family, Word

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
    """A family that also covers what this one covers, and more, or None if there is none."""
    if family.wide is not None:
        return family.widened()
    if family.program[-3:] != ("gh", "pr", "create"):
        return None
    kept = tuple([one for one in family.kept if one not in _DRAFT])
    # A draft tells nobody. It is less than a pull request, and never stands for one.
    return None if kept == family.kept else replace(family, kept=kept)


_DRAFT: Final = frozenset({"-d", "--draft"})


def of_fetches(family: Family, *, held: bool) -> Family:
    """Return a family of git with the kind of fetches from `origin` that it belongs to, if to one.

    A pull also changes the workspace: it is of the kind where that is held, as a merge is nothing
    to ask about there.
    """
    is_pull = family.program == ("git", "pull")
    names = [one for one in family.kept if not (is_pull and one in _PULLS)] or ["origin"]
    names_branch = is_pull and _BRANCH.fullmatch(names[-1]) is not None
    if family.program not in _FETCHES or (is_pull and not held):
        return family
    if names[0] != "origin" or len(names) > 1 + names_branch:
        return family
    return replace(family, wide=(("git", FETCHES), ("origin",)))


_FETCHES: Final = frozenset({("git", "fetch"), ("git", "pull"), ("git", "ls-remote")})
_PULLS: Final = frozenset({"--rebase", "--ff-only", "--no-edit"})
_BRANCH: Final = re.compile(r"\w+(?:[./-]\w+)*")


def reading(kept: Sequence[str]) -> tuple[str, ...] | None:
    """The repository that a reading sub-command of `gh` is about, or None if it is about more."""
    if not kept:
        return ()
    found = _REPOSITORY.fullmatch(kept[0])
    return None if found is None or len(kept) > 1 else (f"--repo={found[1].lower()}",)


def reading_of_api(kept: Sequence[str]) -> tuple[str, ...] | None:
    """The repository that `gh api` reads, or None if it may write, or reads outside the kind."""
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


_FIELDS: Final = frozenset({"-f", "-F", "--field", "--raw-field"})
_SHOWN_AS: Final = frozenset({"-q", "--jq", "-t", "--template"})
_FLAGS: Final = frozenset({"--paginate", "--slurp", "-i", "--include"})
_QUIET_TEXT: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*', re.DOTALL
)
_DEFINITION: Final = re.compile(
    r"\s*(?:(?P<kind>query|mutation|subscription|fragment)\b(?:\s+\w+)?(?:\s+on\s+\w+)?)?\s*"
)
_STEP: Final = re.compile(r"\s*(?:(?:\w+\s*:\s*)?(?P<name>\w+)|\.\.\.\s*(?:on\s+)?\w*)\s*")
_OF_REPOSITORY: Final = re.compile(
    r"\brepository\s*\(\s*(?:owner|name)\s*:\s*(?P<one>\$?[\w.\"-]+)\s*,?\s*"
    r"(?:owner|name)\s*:\s*(?P<two>\$?[\w.\"-]+)\s*\)"
)
_BEYOND: Final = re.compile(
    r"\b(?:object|target|blob|text|blame|deployKeys|collaborators|assignableUsers|owner|viewer"
    r"|organizations?|repositories|repositoriesContributedTo|forks|parent|node|search|user)\b(?!\s*:)"
)
"""Fields of GitHub that show files, keys and members, or lead out of a repository."""


def graphql(behind: Sequence[Word]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return program and kept words of the family of `gh api graphql`, or None if it is not known.

    A query of pull requests, issues and the like is reading of its repository. A mutation is the
    names of its changes. Anything else stands for itself.

    Args:
        behind: the words behind `gh api`.
    """
    fields: dict[str, str] = {}
    given = list(behind)
    while given:
        name, equals, value = (given.pop(0).text or "\0").partition("=")
        if name in _FIELDS | _SHOWN_AS and not equals and given:
            value = given.pop(0).text or "\0"
        if name in _FIELDS and not value.startswith(("query=@", "\0")):
            field, _, content = value.partition("=")
            fields[field] = content
        elif name not in _SHOWN_AS | _FLAGS | {"graphql"}:
            return None
    found = _definitions(_QUIET_TEXT.sub(_without_text, fields.get("query", "")))
    kinds = {kind for kind, _ in found} - {"fragment"}
    roots = sorted({name for kind, names in found if kind != "fragment" for name in names})
    if kinds == {"mutation"} and "" not in roots:
        return ("gh", "api"), ("graphql", "mutation", *roots)
    repository = _only_repository(fields) if (kinds, roots) == ({"query"}, ["repository"]) else None
    return None if repository is None else (("gh", ONLY_READS), (f"--repo={repository}",))


def _without_text(found: re.Match[str]) -> str:
    """Return what stands for a comment or a text. A name, which has no bracket, stays."""
    if found[0].startswith("#"):
        return " "
    return found[0] if re.fullmatch(r'"[\w.-]*"', found[0]) else '""'


def _definitions(text: str) -> list[tuple[str, list[str]]]:
    """Return kind and first fields of each definition in a query; empty: it is not understood.

    A field that is not understood has the name "".
    """
    found: list[tuple[str, list[str]]] = []
    rest = text
    while rest.strip():
        head = _DEFINITION.match(rest)
        rest = _behind(rest[head.end() :] if head else rest, "(", ")")
        inner = rest[: len(rest) - len(_behind(rest, "{", "}"))]
        if not inner.startswith("{"):
            return []
        found.append((head["kind"] or "query" if head else "query", _first_fields(inner[1:-1])))
        rest = rest[len(inner) :]
    return found


def _first_fields(text: str) -> list[str]:
    names: list[str] = []
    while text.strip():
        step = _STEP.match(text)
        if step is None or step.end() == 0:
            return [""]
        names.append(step["name"] or "")
        text = _behind(_behind(text[step.end() :], "(", ")").lstrip(" \t\n,"), "{", "}")
        text = text.lstrip(" \t\n,")
    return names


def _behind(text: str, opening: str, closing: str) -> str:
    """Return what follows a bracketed part at the beginning of a text."""
    text = text.lstrip()
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == opening) - (sign == closing)
        if depth == 0:
            return text[at + 1 :].lstrip() if at else text
    return text


def _only_repository(fields: Mapping[str, str]) -> str | None:
    """Return the one repository that a query reads pull requests, issues and the like of."""
    text = _QUIET_TEXT.sub(_without_text, fields["query"])
    named = list(_OF_REPOSITORY.finditer(text))
    if len(named) != 1 or _BEYOND.search(_OF_REPOSITORY.sub("", text)):
        return None
    both = [named[0]["one"], named[0]["two"]]
    if re.match(r"repository\s*\(\s*name", named[0][0]):
        both.reverse()
    said = [fields.get(one[1:], "") if one[0] == "$" else one.strip('"') for one in both]
    found = "/".join(said).lower()
    return found if re.fullmatch(r"[\w.-]+/[\w.-]+", found) else None


class _Request(Struct, frozen=True):
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
