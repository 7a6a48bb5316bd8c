"""The operations, scopes and branches of a call, from its facts.

The sources are argument roles, canonical values, names of well-known tools, and switches.
INVARIANT: words of the agent can add an operation or a danger, never remove one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, assert_never, get_args

from msgspec import Struct

from ironcurtain_proxy.auto_confirm.engine.interaction import (
    COMMAND_OPERATIONS,
    COVERED,
    DESTRUCTIVE_WORDS,
    KNOWN_TOOLS,
    OWN_DATA,
    PRODUCTION_WORDS,
    RAISING_WORDS,
    READING_WORDS,
    REWRITING_SWITCHES,
    ROLE_OPERATIONS,
    TELLING_ARGUMENTS,
    WRITING_WORDS,
    Interaction,
    OperationKind,
)
from ironcurtain_proxy.model.annotation import RESOURCE_ROLES
from ironcurtain_proxy.model.request import (
    ArgumentFact,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Arguments, Json, RealPath

# --- branches -------------------------------------------------------------------------------------
# The branches that a git operation changes.
#
# Every possible name counts: the current branch, and both sides of every refspec. An unreadable
# name makes the branch unknown, and an unknown branch is treated as `main`.


_NAME: Final = re.compile(r"(?!.*\.\.)(?!.*//)[A-Za-z0-9_][A-Za-z0-9._/-]*", re.ASCII)
UNREADABLE: Final = "?"
"""Stands for a branch whose name cannot be read. No branch can have this name."""


def branches_of(interaction: Interaction) -> tuple[str, ...]:
    """Return the known branches in short names.

    The current branch says nothing about a call to a forge. It always counts for a local
    repository, so that an agent cannot make a call look better by naming another branch.
    """
    current = interaction.branch
    at_hand = interaction.request.server != "github"
    named = [name for text in _named_branches(interaction) for name in _sides(text, current)]
    if at_hand:
        named.insert(0, UNREADABLE if current is None else _short(current))
        named += _of_command(interaction)
    return tuple(dict.fromkeys(named))


def _of_command(interaction: Interaction) -> Iterator[str]:
    if interaction.command_operation not in {"git-commit", "git-push", "git-force-push"}:
        return
    if interaction.command_branches is None:
        # The command may work in another repository, or push anywhere.
        yield UNREADABLE
        return
    for refspec in interaction.command_branches:
        yield from _sides(refspec, interaction.branch)


def are_feature_branches(branches: tuple[str, ...], prefixes: tuple[str, ...]) -> bool:
    """Return whether all branches are feature branches, False if there are none."""
    return bool(branches) and all(
        branch.startswith(prefixes) and branch not in prefixes for branch in branches
    )


def _named_branches(interaction: Interaction) -> Iterator[str]:
    for fact in interaction.request.arguments:
        if "branch-name" in fact.roles:
            yield from (value.text for value in fact.values)
    annotated = {f.name for f in interaction.request.arguments if "branch-name" in f.roles}
    for name, value in interaction.arguments.items():
        plain = name.lower()
        if name not in annotated and ("branch" in plain or "ref" in plain):
            yield from _texts(value)


def _texts(value: object) -> Iterator[str]:
    match value:
        case None | bool():
            return
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case _:
            yield UNREADABLE


def _sides(text: str, current: str | None) -> Iterator[str]:
    for side in text.removeprefix("+").split(":"):
        if side in {"HEAD", "@"}:
            yield UNREADABLE if current is None else _short(current)
        else:
            yield _short(side)


def _short(name: str) -> str:
    short = name.removeprefix("refs/heads/")
    return short if _NAME.fullmatch(short) else UNREADABLE


_FILE_OPERATIONS: Final = frozenset({"read", "list", "edit", "delete"})
_ELSEWHERE: Final = frozenset({"database", "network", "install", "deploy", "test"})
_SCOPELESS: Final = (_ELSEWHERE | {"unknown"}) - {"network"}
_ORDER: Final[Mapping[OperationKind, int]] = {
    operation: place for place, operation in enumerate(get_args(OperationKind))
}
_HERE: Final = re.compile(r"localhost|(.+\.)?localhost|127(\.\d{1,3}){3}|\[?::1\]?", re.ASCII)


class Touch(Struct, frozen=True):
    """One thing that a call does."""

    operation: OperationKind
    path: RealPath | None = None
    """The path, or None if it has none."""


class CallSubject(Struct, frozen=True, kw_only=True):
    """The operations and scopes of a call."""

    touches: tuple[Touch, ...]
    """Never empty."""
    operation: OperationKind
    """The most dangerous of them."""
    branches: tuple[str, ...]
    """Every branch that it changes, in short names. Empty means not known."""
    scopes: tuple[str, ...]
    """Every path, address and name in the call, in the judged spelling."""
    scope: str
    """The scopes as one string; `server/tool` if the call names none."""
    paths: tuple[RealPath, ...]
    single: bool
    """Whether it does one thing. To read what is also changed, or where a command runs, is part of
    that; to read anything else is not.
    """
    exact: bool
    """Whether it is single, and operation and scopes say all of it. A command says more than the
    directory that it runs in.
    """
    only_paths: bool
    """Whether its paths are all that it names or reaches."""
    only_reads: bool
    """Whether all that its tool can name are paths to read."""
    own_data: bool
    external: bool
    production: bool
    destructive: bool
    database: bool

    @property
    def understood(self) -> bool:
        """Whether the engine knows every operation of the call."""
        return all(touch.operation != "unknown" for touch in self.touches)


def subject_of(interaction: Interaction) -> CallSubject:
    """Read a call."""
    request = interaction.request
    touches = tuple(dict.fromkeys(_touches(interaction)))
    operations = {touch.operation for touch in touches}
    scopes = tuple(_scopes(request.arguments))
    only_reads = bool(request.arguments) and all(
        fact.roles == ("read-path",) for fact in request.arguments
    )
    urls = [value for value in _values(interaction) if isinstance(value, UrlValue)]
    paths = tuple([v.path for v in _values(interaction) if isinstance(v, PathValue)])
    words = _words(request.tool) | _telling_words(interaction.arguments)
    targets = words.union(*(_words(text) for text in (*scopes, *_branch_words(interaction))))
    single = len(_apart(interaction, touches)) == 1
    return CallSubject(
        touches=touches,
        operation=min(operations, key=_ORDER.__getitem__),
        branches=branches_of(interaction),
        scopes=scopes,
        scope="\n".join(sorted(scopes)) or f"{request.server}/{request.tool}",
        paths=paths,
        only_paths=0 < len(paths) == len(scopes)
        and interaction.command_operation is None
        and operations.isdisjoint(_ELSEWHERE),
        single=single,
        exact=single
        and bool(scopes)
        and interaction.command_operation is None
        and operations.isdisjoint(_SCOPELESS)
        and all(url.ordinary for url in urls),
        only_reads=only_reads,
        own_data=(request.server, request.tool) in OWN_DATA,
        external=any(not _HERE.fullmatch(host) for url in urls for host in _hosts(url)),
        production=not targets.isdisjoint(PRODUCTION_WORDS),
        destructive=not DESTRUCTIVE_WORDS.isdisjoint(words | _switches(interaction.arguments)),
        database="database" in operations,
    )


def _apart(interaction: Interaction, touches: tuple[Touch, ...]) -> frozenset[OperationKind]:
    acting = [touch for touch in touches if touch.operation not in {"read", "list"}]
    changed = {touch.path for touch in acting}
    reading = [
        touch
        for touch in touches
        if touch.operation in {"read", "list"}
        and touch.path not in changed
        and interaction.command_operation is None
    ]
    return frozenset(touch.operation for touch in (*acting, *reading))


def _touches(interaction: Interaction) -> Iterator[Touch]:
    named = _named(interaction)
    covered = COVERED.get(named[0], frozenset()) if named else frozenset()
    by_role = [
        Touch(operation, value.path if isinstance(value, PathValue) else None)
        for fact in interaction.request.arguments
        for value in fact.values
        for role in fact.roles
        if role not in covered and (operation := ROLE_OPERATIONS[role]) is not None
    ]
    paths = [value.path for value in _values(interaction) if isinstance(value, PathValue)]
    for operation in named:
        if operation not in _FILE_OPERATIONS or not paths:
            yield Touch(operation)
        elif operation not in {touch.operation for touch in by_role}:
            yield from (Touch(operation, path) for path in paths)
    yield from by_role
    yield from _besides(interaction, named, has_paths=bool(paths))


def _named(interaction: Interaction) -> tuple[OperationKind, ...]:
    """Return the operations that the command, or else the tool's name, shows."""
    if interaction.command_operation is not None:
        return (COMMAND_OPERATIONS.get(interaction.command_operation, "unknown"),)
    request = interaction.request
    known = KNOWN_TOOLS.get(request.server, {}).get(request.tool)
    if known is not None:
        return (known,)
    return tuple(
        dict.fromkeys(
            RAISING_WORDS[word] for word in sorted(_words(request.tool)) if word in RAISING_WORDS
        )
    )


def _besides(
    interaction: Interaction, named: tuple[OperationKind, ...], *, has_paths: bool
) -> Iterator[Touch]:
    """Yield the operations that switches, options, odd addresses and unknown values add."""
    request = interaction.request
    if not named and not _says_what_roles_say(request.tool, request.arguments, has_paths=has_paths):
        yield Touch("unknown")
    pushes = "git-push" in named
    if request.server in {"git", "github"} or pushes:
        rewrites = not REWRITING_SWITCHES.isdisjoint(_switches(interaction.arguments))
        if rewrites or _has_options(interaction.arguments):
            yield Touch("git-force-push" if pushes else "unknown")
    if any(isinstance(value, UrlValue) and not value.ordinary for value in _values(interaction)):
        yield Touch("unknown")


def _says_what_roles_say(
    tool: str, arguments: tuple[ArgumentFact, ...], *, has_paths: bool
) -> bool:
    words = _words(tool)
    roles = {role for fact in arguments for role in fact.roles}
    if not has_paths:
        return False
    if not words.isdisjoint(WRITING_WORDS):
        return "write-path" in roles
    return not words.isdisjoint(READING_WORDS)


def _values(interaction: Interaction) -> Iterator[Value]:
    return (value for fact in interaction.request.arguments for value in fact.values)


def _scopes(arguments: tuple[ArgumentFact, ...]) -> Iterator[str]:
    for fact in arguments:
        if any(role in RESOURCE_ROLES for role in fact.roles):
            for value in fact.values:
                match value:
                    case PathValue(path=path):
                        yield str(path)
                    # `origin` is a name; where it leads is what counts.
                    case UrlValue(domains=domains) if "git-remote-url" in fact.roles:
                        yield from domains
                    case UrlValue(text=text) | SqlValue(text=text) | TextValue(text=text):
                        yield text
                    case _:
                        assert_never(value)


def _hosts(url: UrlValue) -> Iterator[str]:
    return (domain.partition("/")[0].lower() for domain in url.domains)


def _branch_words(interaction: Interaction) -> Iterator[str]:
    for fact in interaction.request.arguments:
        if "branch-name" in fact.roles:
            yield from (value.text for value in fact.values)
    if interaction.branch is not None:
        yield interaction.branch


def _words(text: str) -> frozenset[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return frozenset(re.findall(r"[a-z0-9]+", spaced.lower()))


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _telling_words(arguments: Arguments) -> frozenset[str]:
    found: set[str] = set()
    for name, value in arguments.items():
        if _plain(name) in TELLING_ARGUMENTS:
            for text in _strings(value):
                found |= _words(text)
    return frozenset(found)


def _switches(arguments: Arguments) -> frozenset[str]:
    """Return the names of true arguments: `"false"` counts, as a server may read it as true."""
    return frozenset(
        _plain(name) for name, value in arguments.items() if value not in (None, False, 0, "")
    ) | _telling_words(arguments)


def _has_options(arguments: Arguments) -> bool:
    """Return whether a string could be taken for an option, or for the `+` of a forced refspec."""
    return any(
        text.lstrip().startswith(("-", "+"))
        for name, value in arguments.items()
        if _plain(name) not in {"message", "content", "body", "title"}
        for text in _strings(value)
    )


def _strings(value: Json) -> Iterator[str]:
    pending: list[Json] = [value]
    while pending:
        found = pending.pop()
        match found:
            case str():
                yield found
            case list():
                pending += found
            case dict():
                pending += [*found, *found.values()]
            case _:
                pass
