"""The facts of a call: every argument read by its roles, and the arguments to send.

`FactReader` reads the disk and asks git only where an argument needs it. `resolver.py` uses it for
a live agent, and the `decide` command directly. It blocks as long as the disk and git do: see
`looks_up`.

Some texts are read one by one. A specification with `inside` gives each member of an object its own
roles, however many lists lie around it. A text of the role `unclear` is read as what it looks like:
a path, a URL, or the paths and URLs in what looks like a command. It is sent as it came, because it
may be none of these; what it looks like only adds reasons to deny.
"""

import os
import re
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from ironcurtain_proxy.facts.arguments import (
    NOT_A_STRING,
    WORKING_DIRECTORY_ARGUMENTS,
    ArgumentReading,
    PlannedArgument,
    Refusal,
    ToolPlan,
    canonical_url,
    is_file_url,
    is_no_text,
    is_ordinary,
    is_unambiguous,
    plan_for,
    reading_of,
    strings_of,
)
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.paths import NAME_MAX, PathReader
from ironcurtain_proxy.facts.pushes import RemoteReader, operation_of, repository_root
from ironcurtain_proxy.facts.repositories import current_branch, current_commit, shared_directory
from ironcurtain_proxy.model.annotation import (
    CHANGES,
    IGNORES_CASE,
    Roles,
    RoleSpec,
    ToolAnnotation,
    in_one_case,
)
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.request import (
    AccessRequest,
    ArgumentFact,
    Facts,
    Gathered,
    PathValue,
    TextValue,
    Unresolvable,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Arguments, Json, RealPath, file_uri, lazy

# --- deep


ReadText: TypeAlias = Callable[[str, Roles], tuple[tuple[Value, ...], str] | Refusal]
"""Reads a text by its roles. Returns its values, and the text to send."""

GUESSED_PATH: Final[Roles] = ("read-path", "write-path")
GUESSED_URL: Final[Roles] = ("fetch-url",)
FETCHED_FILE: Final[Roles] = ("read-path",)

_URL: Final = lazy(r"\s*[A-Za-z][A-Za-z0-9+.-]*://\S", re.ASCII)
_LONGEST_PATH: Final = 4096
_LONGEST_COMMAND: Final = 10_000
_COMMAND_NAME: Final = lazy(r"cmd|command|shell|bash|script|exec|argv|\bargs\b", re.IGNORECASE)
_COMMAND: Final = lazy(r"\s*[a-z./~][\w./~+-]*\s+\S")
_BREAKS: Final = lazy(r"[\s\"'`;|&<>(){}=,]+")
_MOST_TEXTS: Final = 10_000


class DeepReading(Struct):
    """The values of one argument."""

    name: str
    read: ReadText
    _found: dict[Roles, dict[Value, None]] = field(default_factory=dict)
    _texts: int = 0

    def facts(self) -> tuple[ArgumentFact, ...]:
        """Return a fact for each set of roles."""
        found = self._found.items()
        return tuple([ArgumentFact(self.name, roles, tuple(values)) for roles, values in found])

    def take(self, value: Json, spec: RoleSpec, member: str = "") -> "Json | Refusal":
        """Read a value and everything inside it.

        Args:
            value: as the agent sent it.
            spec: its roles.
            member: the name under which it stands.

        Returns:
            The value to send in its place.
        """
        self._found.setdefault(spec.default, {})
        for inner in spec.inside.values():
            # The role of an omitted member counts, because the server may fill it in.
            for roles in _roles_in(inner):
                self._found.setdefault(roles, {})
        return self._take(value, spec, member or self.name)

    def _take(self, value: Json, spec: RoleSpec, member: str) -> "Json | Refusal":
        match value:
            case str():
                return self._text(value, spec.default, member)
            case list():
                items: list[Json] = []
                for item in value:
                    read = self._take(item, spec, member)
                    if isinstance(read, Refusal):
                        return read
                    items.append(read)
                return items
            case dict():
                return self._object(value, spec)
            case _:
                return value

    def _object(self, value: dict[str, Json], spec: RoleSpec) -> "Json | Refusal":
        members: dict[str, Json] = {}
        rest = RoleSpec(default=spec.default)
        for name, inner in value.items():
            read = self._take(inner, spec.inside.get(name, rest), name)
            if isinstance(read, Refusal):
                return read
            if name not in spec.inside and "unclear" in spec.default:
                said = self._text(name, spec.default, name)
                if isinstance(said, Refusal):
                    return said
            members[name] = read
        return members

    def _text(self, text: str, roles: Roles, member: str) -> str | Refusal:
        self._texts += 1
        if self._texts > _MOST_TEXTS:
            return Refusal("holds too many values")
        if "unclear" in roles:
            return self._unclear(text, roles, member)
        is_file = is_file_url(text) and reading_of(roles) == "url"
        # A `file:` URL is a file of this machine, as if its path stood there.
        roles = FETCHED_FILE if is_file else roles
        read = self.read(text, roles)
        if isinstance(read, Refusal):
            return read
        values, spelled = read
        spelled = file_uri(spelled) if is_file else spelled
        self._found.setdefault(roles, {}).update(dict.fromkeys(values))
        return spelled

    def _unclear(self, text: str, roles: Roles, member: str) -> str | Refusal:
        self._found.setdefault(roles, {})[TextValue(text)] = None
        for look, part in looks_in(text, member):
            guessed = GUESSED_PATH if look == "path" else GUESSED_URL
            read = self.read(part, guessed)
            if isinstance(read, Refusal):
                if look == "url" and part == text:
                    # A URL that parsers read differently could hide a host.
                    return read
                continue
            self._found.setdefault(guessed, {}).update(dict.fromkeys(read[0]))
        return text


_LISTED: Final = lazy(r"[,;='\"\[\]]")


def looks_in(text: str, member: str) -> Iterator[tuple[Literal["path", "url"], str]]:
    """Yield the paths and URLs that a text may be: itself, or those in a possible command."""
    if _URL.match(text):
        yield ("path" if text.lstrip().lower().startswith("file:") else "url"), text
        return
    if paths := _paths_in(text):
        yield from (("path", path) for path in paths)
        return
    if len(text) > _LONGEST_COMMAND:
        return
    if _COMMAND_NAME.search(member) or _COMMAND.match(text):
        for part in _BREAKS.split(text):
            if _URL.match(part):
                yield "url", part
            elif part.startswith(("/", "~", "./", "../")) or "/../" in part:
                yield "path", part


def _paths_in(text: str) -> list[str]:
    """Return the path that a text may be, and those of a list: `a/b,/c`, `name=/c`, `["/c"]`."""
    if not 0 < len(text) <= _LONGEST_PATH or "\n" in text:
        return []
    parts = [part for piece in _LISTED.split(text) if (part := piece.strip())]
    is_path = _is_path(text)
    is_list = len(parts) > 1 and not any(map(str.isspace, "".join(parts)))
    listed = [part for part in parts if is_path or _is_path(part)]
    return [text] * is_path + (listed if parts != [text] and (is_path or is_list) else [])


def _is_path(text: str) -> bool:
    return text.startswith(("/", "~/", "./", "../", "~")) or (
        "/" in text and not re.search(r"\s", text)
    )


def _roles_in(spec: RoleSpec) -> Iterator[Roles]:
    yield spec.default
    for inner in spec.inside.values():
        yield from _roles_in(inner)


# --- facts


_REPOSITORY_ARGUMENTS: Final = ("path", "repo_path")
_DIRECTORIES: Final = frozenset(WORKING_DIRECTORY_ARGUMENTS)
_MAX_STRINGS: Final = 10_000
"""The most paths or URLs in one argument: more would keep a processor busy for seconds."""
_TOO_MANY: Final = Refusal("holds too many values")
_NO_LIST: Final = Refusal("must be one path, not a list")
_TOO_LONG: Final = Refusal("names a directory with a longer name than a file system can hold")
_CANNOT_BE_READ: Final = Refusal("cannot be looked up")
_UNREADABLE: Final = (OSError, ValueError, RecursionError)
"""Errors of the system or a parser on an argument: the call is denied, and the argument named."""
_UNCLEAR_URL: Final = Refusal(
    "can be read as more than one URL; write it as scheme://host/path, the host in plain ASCII"
)


_NO_HOST: Final = Refusal(
    "names no host (data:, about:, blob:), so nobody can tell what it loads; give an address with "
    "a host, such as http://localhost:8000/page.html"
)
_WITHOUT_HOST: Final = lazy(r"\s*(?:data|about|blob|javascript):", re.IGNORECASE)


def unresolvable(reason: str, rule: str = "invalid-arguments") -> Unresolvable:
    """Return a refusal of the whole call."""
    return Unresolvable(ground=Ground(rule, reason))


class FactReader:
    """Reads the calls of one agent connection. Thread-safe."""

    def __init__(
        self,
        paths: PathReader,
        *,
        cwd: str | None = None,
        plain_urls_only: bool = True,
        workspace: RealPath | None = None,
    ) -> None:
        """Set up the reader.

        Args:
            paths: reads path arguments.
            cwd: where a remote's name is looked up if the call names no repository; None: it is
                refused, because the server has a working directory of its own.
            workspace: where git must not climb out of unnoticed, or None if it may.
            plain_urls_only: refuse URLs that another parser may read differently, because they are
                sent as they came. Off only where nothing is sent.
        """
        self._paths = paths
        self._workspace = workspace
        self._remotes = RemoteReader(cwd=cwd, plain_urls_only=plain_urls_only)
        self._plain_urls_only = plain_urls_only
        self._plans: dict[tuple[str, str], ToolPlan] = {}

    def looks_up(self, plan: ToolPlan, arguments: Arguments) -> int | None:
        """Return the number of paths in the call, or None if git must be asked."""
        if not _DIRECTORIES.isdisjoint(arguments) and _may_push(arguments):
            return None
        count = 0
        looked_up = plan.looked_up
        for argument in plan.looked_up_by_values(arguments) if looked_up is None else looked_up:
            if argument.reading in {"git-remote", "sql"}:
                return None
            value = arguments.get(argument.name)
            if value is None:
                continue
            if argument.reading == "deep" or self._names_files(argument, value):
                # The number is unknown before it is read.
                return None
            if argument.reading == "path":
                count += len(value) if isinstance(value, list) else 1
        return count

    def read(self, plan: ToolPlan, arguments: Arguments, remotes: GitRemotes) -> Gathered:
        """Read one call.

        Args:
            plan: how the arguments of its tool are read; see `plan`.
            arguments: as the agent sent them; never changed.
            remotes: git with the server's environment.
        """
        facts: list[ArgumentFact] = []
        given = arguments
        awaiting: list[int] = []
        annotation, fixed = plan.annotation, plan.fixed
        for argument in plan.by_values(arguments) if fixed is None else fixed:
            value = arguments.get(argument.name)
            if value is None or argument.reading == "git-remote":
                if argument.reading == "git-remote":
                    awaiting.append(len(facts))
                facts += argument.absent
                continue
            outcome = self._one(plan, argument, value)
            if not isinstance(outcome, tuple):
                return unresolvable(_about(argument.name, outcome))
            found, spelled = outcome
            facts += found
            if spelled is not None:
                given = {**given, argument.name: spelled}
        if not (awaiting or plan.names_directory or plan.is_git):
            return Facts(request=_request(annotation, facts, given), arguments=given)
        try:
            return self._with_repository(plan, facts, awaiting, given, remotes)
        except _UNREADABLE:
            # What remains is the repository, or the directory of a command.
            names = (*_REPOSITORY_ARGUMENTS, *WORKING_DIRECTORY_ARGUMENTS)
            name = next((name for name in names if name in arguments), annotation.tool)
            return unresolvable(_about(name, _CANNOT_BE_READ))

    def _remote(
        self,
        plan: ToolPlan,
        value: Json,
        repository: RealPath | None,
        remotes: GitRemotes,
    ) -> tuple[Value, ...] | Refusal:
        try:
            return self._remotes.read(
                plan.annotation.tool, value, repository, remotes, of_git=plan.is_git
            )
        except _UNREADABLE:
            return _CANNOT_BE_READ

    def _leaves_workspace(self, root: RealPath, repository: RealPath | None) -> bool:
        """Return whether git would climb from the workspace to a repository around it."""
        workspace = self._workspace
        return (
            workspace is not None
            and repository is not None
            and repository.is_within(workspace)
            and not root.is_within(workspace)
        )

    def plan(self, annotation: ToolAnnotation) -> ToolPlan:
        """Return how the arguments of a tool are read, made once for each annotation."""
        known = self._plans.get((annotation.server, annotation.tool))
        if known is None or known.annotation is not annotation:
            known = self._plans[annotation.server, annotation.tool] = plan_for(annotation)
        return known

    def _one(
        self, plan: ToolPlan, argument: PlannedArgument, value: Json
    ) -> tuple[tuple[ArgumentFact, ...], Json] | Refusal:
        """Return an argument's facts, and its new spelling or None if it is sent unchanged."""
        if argument.is_plain and isinstance(value, str):
            return (ArgumentFact(argument.name, argument.roles, (TextValue(value),)),), None
        # Of a list of repositories git would take any or none. An empty list names nothing, as if
        # it were left out.
        is_repository = plan.is_git and argument.name in _REPOSITORY_ARGUMENTS
        if isinstance(value, list) and value and is_repository:
            return _NO_LIST
        try:
            if argument.reading == "deep" or self._names_files(argument, value):
                return self._deeply(argument, value)
            outcome = self._read_argument(argument, value)
        except _UNREADABLE:
            return _CANNOT_BE_READ
        if isinstance(outcome, Refusal):
            return outcome
        values, spelled = outcome
        return (ArgumentFact(argument.name, argument.roles, values),), spelled

    def _names_files(self, argument: PlannedArgument, value: Json) -> bool:
        """Return whether an argument for URLs names files of this machine."""
        texts = value if isinstance(value, list) else [value]
        return argument.reading == "url" and self._plain_urls_only and any(map(is_file_url, texts))

    def _deeply(
        self, argument: PlannedArgument, value: Json
    ) -> tuple[tuple[ArgumentFact, ...], Json] | Refusal:
        """Read an argument whose texts may have different roles."""
        deep = DeepReading(argument.name, self._text)
        strings = strings_of(value, "url") if argument.reading == "url" else ()
        sent = strings if isinstance(strings, Refusal) else deep.take(value, argument.spec)
        if isinstance(sent, Refusal):
            return sent
        # No value is left for the role of URLs where all were files.
        every = argument.reading == "deep"
        return tuple([fact for fact in deep.facts() if every or fact.values]), sent

    def _text(self, text: str, roles: Roles) -> tuple[tuple[Value, ...], str] | Refusal:
        """Return the values of one text inside an argument, and the text to send."""
        reading = reading_of(roles)
        if reading == "path":
            return self._path(text, roles)
        values = self._values((text,), "url" if reading == "git-remote" else reading, roles)
        return values if isinstance(values, Refusal) else (values, text)

    def _path(self, text: str, roles: Roles) -> tuple[tuple[Value, ...], str] | Refusal:
        found = self._paths.read(text)
        if isinstance(found, Refusal):
            return found
        # To delete a link deletes the link, not its target: both must be allowed.
        link = () if found.link is None or "delete-path" not in roles else (found.link,)
        return (found.value, *link), found.spelled

    def _read_argument(
        self, argument: PlannedArgument, value: Json
    ) -> tuple[tuple[Value, ...], Json] | Refusal:
        """Return an argument's values, and its new spelling or None if it is sent unchanged."""
        is_odd = self._plain_urls_only and is_no_text(value, argument.reading)
        strings = NOT_A_STRING if is_odd else strings_of(value, argument.reading)
        if isinstance(strings, Refusal):
            return strings
        if len(strings) > _MAX_STRINGS and argument.reading in {"path", "url"}:
            return _TOO_MANY
        if argument.reading != "path":
            values = self._values(strings, argument.reading, argument.roles)
            return values if isinstance(values, Refusal) else (values, None)
        paths: list[Value] = []
        spelled: list[Json] = []
        for text in strings:
            found = self._path(text, argument.roles)
            if isinstance(found, Refusal):
                return found
            paths += found[0]
            spelled.append(found[1])
        if isinstance(value, str):
            return tuple(paths), spelled[0]
        return tuple(paths), spelled if isinstance(value, list) else None

    def _values(
        self, strings: tuple[str, ...], reading: ArgumentReading, roles: Roles
    ) -> tuple[Value, ...] | Refusal:
        if reading == "identifier" and not IGNORES_CASE.isdisjoint(roles):
            # IDNA takes the Kelvin sign for a `k`.
            lower = str.lower if "proxy-domain" in roles else in_one_case
            return tuple(map(TextValue, map(lower, strings)))
        if reading == "sql":
            # The parser of SQL, which only calls with SQL need.
            from ironcurtain_proxy.facts.sql import sql_value  # noqa: PLC0415

            return tuple([sql_value(text) for text in strings])
        if reading != "url":
            return tuple(map(TextValue, strings))
        if self._plain_urls_only and not all(map(is_unambiguous, strings)):
            return _NO_HOST if any(map(_WITHOUT_HOST.match, strings)) else _UNCLEAR_URL
        urls = map(canonical_url, strings)
        return tuple([UrlValue(spelled, (host,), is_ordinary(spelled)) for spelled, host in urls])

    def _with_repository(
        self,
        plan: ToolPlan,
        facts: list[ArgumentFact],
        awaiting: list[int],
        sent: Arguments,
        remotes: GitRemotes,
    ) -> Gathered:
        """Add the facts of the repository: the hosts of remotes, and the protected branch."""
        of_git, annotation = plan.is_git, plan.annotation
        named = _repository(facts) if of_git or awaiting else None
        repository = None if named is None else named[1]
        if named is not None and _is_too_long(named[1]):
            return unresolvable(_about(named[0], _TOO_LONG))
        for index in awaiting:
            fact = facts[index]
            values = self._remote(plan, sent.get(fact.name), repository, remotes)
            if isinstance(values, Refusal):
                return unresolvable(_about(fact.name, values))
            if values:
                facts[index] = ArgumentFact(fact.name, fact.roles, values)
        root = repository_root(repository) if of_git and repository is not None else None
        if isinstance(root, Refusal):
            return unresolvable(f"The repository path {root.reason}.")
        if root is not None and self._leaves_workspace(root, repository):
            facts = [_with_root(fact, repository, root) for fact in facts]
        pushes = bool(awaiting) and operation_of(annotation.tool) != "fetch"
        at, may_push = root if of_git else _working_root(facts), pushes or _may_push(sent)
        return Facts(
            request=_request(annotation, facts, sent, root),
            arguments=sent,
            repository=None if root is None else shared_directory(root),
            branch=_branch_of(at, remotes, pushes=may_push),
            head=current_commit(at) if may_push and at is not None else None,
            pushes=pushes,
        )


def _request(
    annotation: ToolAnnotation,
    facts: list[ArgumentFact],
    sent: Arguments,
    repository: RealPath | None = None,
) -> AccessRequest:
    # A tool that reads, and is told to save what it read, changes that file.
    saves = annotation.effect == "reads" and any(
        fact.values and not CHANGES.isdisjoint(fact.roles) for fact in facts
    )
    return AccessRequest(
        server=annotation.server,
        tool=annotation.tool,
        annotated=True,
        has_arguments=bool(sent),
        arguments=tuple(facts),
        repository=repository,
        effect="writes" if saves else annotation.effect,
        method=annotation.method,
    )


def _with_root(fact: ArgumentFact, repository: RealPath | None, root: RealPath) -> ArgumentFact:
    """Return the facts with the whole repository for the argument that names it."""
    if not any(isinstance(v, PathValue) and v.path == repository for v in fact.values):
        return fact
    return ArgumentFact(fact.name, fact.roles, (*fact.values, PathValue(str(root), root)))


def _repository(facts: list[ArgumentFact]) -> tuple[str, RealPath] | None:
    """Return the argument and the directory that the call works in, if it names exactly one."""
    for name in _REPOSITORY_ARGUMENTS:
        for fact in facts:
            match fact.values:
                case (PathValue(path=path),) if fact.name == name:
                    return name, path
    return None


def _is_too_long(path: RealPath) -> bool:
    """Return whether the name is too long for any directory."""
    return any(len(os.fsencode(part)) > NAME_MAX for part in path.parts)


def _working_root(facts: list[ArgumentFact]) -> RealPath | None:
    """Return the repository around the directory of a command."""
    said = [fact for fact in facts if fact.name in WORKING_DIRECTORY_ARGUMENTS and fact.values]
    values = [value for fact in said for value in fact.values]
    if len(values) != 1 or not isinstance(values[0], PathValue):
        return None
    root = repository_root(values[0].path)
    return None if isinstance(root, Refusal) else root


def _may_push(arguments: Arguments) -> bool:
    """Return whether the tool may run a command that pushes."""
    return not _DIRECTORIES.isdisjoint(arguments) and any(
        isinstance(value, str) and "push" in value for value in arguments.values()
    )


def _branch_of(root: RealPath | None, remotes: GitRemotes, *, pushes: bool) -> str | None:
    """Return the branch that the call changes, or pushes by default, or None if it is unknown."""
    branch = None if root is None else current_branch(root)
    return None if pushes and branch and remotes.renames_pushes(str(root)) else branch


def _about(name: str, refusal: Refusal) -> str:
    return f'Argument "{name[:100]}" {refusal.reason}.'
