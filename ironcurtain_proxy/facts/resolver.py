"""The facts of a call in a live session: a call gives facts or a refusal.

Theory of operation:

    call ── lookup ─┬─ trusted server ───────────────────────────────▶ facts, arguments unread
                    └─ annotation ── working directory ── schema ── FactReader ──▶ facts
                             a step that fails refuses the call

The tool comes from the catalogue as it is now; its arguments are validated against the schema that
the server lists now. A git server's missing working directory is filled in from its earlier calls.
`FactReader` then follows paths, parses URLs and asks git for remotes.

Work that takes microseconds is done on the event loop. Work that can be slow runs in a thread with
a deadline: git, many paths, and any path while a file system is mounted that can hang (NFS, FUSE).
A thread that hangs is abandoned and the call refused. This module does not know the policy.
"""

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.facts.arguments import (
    NO_WORKING_DIRECTORY,
    SETS_DIRECTORY,
    OperationSource,
    ServerContexts,
    ToolPlan,
    ViewFinder,
    lacks_path,
    no_view,
    plan_for,
)
from ironcurtain_proxy.facts.commands import CommandContext, with_command
from ironcurtain_proxy.facts.facts import FactReader, unresolvable
from ironcurtain_proxy.facts.git import GitRemotes
from ironcurtain_proxy.facts.live_catalogue import (
    CataloguedTool,
    as_unknown,
    canonical,
    fingerprint,
    guessed,
    widened,
)
from ironcurtain_proxy.facts.paths import MountTable
from ironcurtain_proxy.facts.repositories import Repositories
from ironcurtain_proxy.facts.schema import SchemaChecker
from ironcurtain_proxy.model.annotation import CHANGES, Annotations, ToolAnnotation
from ironcurtain_proxy.model.crossing import meta_of
from ironcurtain_proxy.model.decision import HELD_ADVICE, HELD_RULE
from ironcurtain_proxy.model.operation import QUESTION_METHODS, TOOL_CALL, Operation
from ironcurtain_proxy.model.request import (
    AccessRequest,
    Facts,
    FoundSecret,
    Gathered,
    PathValue,
    Target,
    Unresolvable,
)
from ironcurtain_proxy.model.values import Arguments, Json, RealPath

# --- grant facts


_DEADLINE: Final = 5.0
"""Seconds, as for all facts of a call."""

_MAX_DIRECTORY_THREADS: Final = 4
"""The most lookups at once. One that hangs keeps its thread."""

_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class DirectoryFinder:
    """Finds the directories among the paths of a call. One for each session."""

    def __init__(self, deadline: float = _DEADLINE) -> None:
        """Set the deadline of one call in seconds."""
        self._deadline = deadline
        self._limiter = anyio.CapacityLimiter(_MAX_DIRECTORY_THREADS)

    async def find(self, request: AccessRequest) -> frozenset[RealPath] | None:
        """Return the directories of `directories_of`, or None if the deadline has passed.

        In a thread, because a network file system can hang. The call waits for a reviewer anyway,
        so the cost of a thread does not matter.
        """
        if not any(True for _ in _paths(request)):
            return frozenset()
        with anyio.move_on_after(self._deadline):
            return await anyio.to_thread.run_sync(
                directories_of, request, abandon_on_cancel=True, limiter=self._limiter
            )
        return None


def directories_of(request: AccessRequest) -> frozenset[RealPath]:
    """Return the paths of a call that are, or may be, directories.

    Too many directories make the remembered pattern narrower, never wider.
    """
    return frozenset(path for path in _paths(request) if _may_be_directory(path))


def directories_to_open(
    request: AccessRequest, directories: frozenset[RealPath]
) -> tuple[str, ...]:
    """Return the directories that a server needs among its roots for a call, each once.

    Args:
        request: the call.
        directories: its paths that are directories.
    """
    found = (path if path in directories else RealPath(path.parts[:-1]) for path in _paths(request))
    return tuple(dict.fromkeys(map(str, found)))


def _paths(request: AccessRequest) -> Iterator[RealPath]:
    return (
        value.path
        for fact in request.arguments
        for value in fact.values
        if isinstance(value, PathValue)
    )


def _may_be_directory(path: RealPath) -> bool:
    try:
        return stat.S_ISDIR(os.stat(str(path)).st_mode)  # noqa: PTH116  microseconds
    except OSError as error:
        return error.errno not in _NOTHING_THERE
    except ValueError:
        return True


# --- resolver


T = TypeVar("T")

_MAX_PATHS_AT_ONCE: Final = 64
"""The most paths of one call that are resolved on the event loop; more need a thread."""

_MAX_THREADS: Final = 32
"""The most calls read at once. A hanging call keeps its thread: if all hang, calls with paths are
denied after the deadline, and all others continue."""


SecretSearch: TypeAlias = Callable[[Mapping[str, Json]], tuple[FoundSecret, ...]]
"""Finds the secrets in arguments."""


OriginFinder: TypeAlias = Callable[[AccessRequest], Awaitable[tuple[Target, ...]] | None]
"""Gives the targets of a call with their origins, or None where nothing asks for them."""


def no_origins(_request: AccessRequest) -> None:
    """Find nothing, where nothing asks for origins."""


class ToolSource(Struct, frozen=True, kw_only=True):
    """The knowledge about the servers."""

    lookup: Callable[[str, str], CataloguedTool | None]
    """Finds a tool in the present catalogue, by the operator's server name and the server's tool
    name."""
    remotes: Callable[[str], GitRemotes]
    """Gives git as a server would run it, by the operator's name."""
    command_argument: Callable[[str, str], str | None] | None = None
    """Gives the argument that holds a shell command, if the operator names one. None: for no tool.
    """
    grounds: CommandContext = field(default_factory=CommandContext)
    """The environment of commands."""
    asks_about_unknown: bool = False
    """Whether calls of tools without an annotation are read by the form of their arguments."""
    trusted: frozenset[str] = frozenset()
    """Servers, by the policy's names, whose calls are passed on unread."""
    operations: OperationSource = field(default_factory=OperationSource)
    """The knowledge about prompts and resources."""
    left_out: Callable[[str, tuple[str, ...]], None] = lambda _tool, _left_out: None
    """Gets a tool, and what is left out of the check of its arguments."""


_WORKTREES: Final = (".claude", "worktrees")
"""The place in a project where a client keeps copies of the project itself, each by a name."""


def _acting_by_itself(
    request: AccessRequest, workspace: str | None, leads: Callable[[str], bool]
) -> str:
    """Return the control place of the workspace that a call names as what it changes, or empty.

    What lies in a repository's own directory is closed by policy. A hidden name that nobody knows
    is no reason to ask: unlike a program in a view, the call says what it changes.
    """
    changed: list[RealPath] = []
    for fact in request.arguments:
        if not CHANGES.isdisjoint(fact.roles):
            changed += [value.path for value in fact.values if isinstance(value, PathValue)]
    if not changed or workspace is None:
        return ""
    base = RealPath.from_text(workspace)
    for path in changed:
        parts = path.parts[len(base.parts) :] if path.is_within(base) else ()
        inner = parts[len(_WORKTREES) + 1 :] if parts[: len(_WORKTREES)] == _WORKTREES else parts
        if inner and (_is_run_by_name(inner) or _is_acted_on(inner) or leads(str(path))):
            return "/".join(parts)
    return ""


def _is_run_by_name(path: tuple[str, ...]) -> bool:
    """Return whether a prompt runs a file by its name, once a shell has its directory in PATH."""
    from ironcurtain_proxy.control_places.rules import (  # noqa: PLC0415  only for what changes files
        may_be_control,
        read_names,
    )

    above, name = path[-2:-1], path[-1]
    return name.lower() in read_names().acted_on.programs and may_be_control("".join(above), name)


def _is_acted_on(path: tuple[str, ...]) -> bool:
    from ironcurtain_proxy.control_places.rules import control_of  # noqa: PLC0415  as above

    found = control_of(
        path,
        is_directory=False,
        is_link=False,
        is_repository=lambda _path: False,
        is_settled=lambda _path: True,
    )
    return found is not None and found.kind == "acted-on"


class _CarriedOut(Protocol):
    """A call that was sent and succeeded."""

    @property
    def server(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def arguments(self) -> Arguments: ...


class Resolver:
    """Implements `ports.FactGatherer` for one session."""

    def __init__(
        self, tools: ToolSource, facts: FactReader, mounts: MountTable, *, deadline: float = 5.0
    ) -> None:
        """Set up the resolver.

        Args:
            tools: the tools and their servers.
            facts: reads the arguments.
            mounts: whether access to a path may hang.
            deadline: seconds for one call; then it is denied.
        """
        self._tools = tools
        self._facts = facts
        self._mounts = mounts
        self._schemas = SchemaChecker(tools.left_out)
        self._deadline = deadline
        self._contexts = ServerContexts()
        self._repositories = Repositories()
        self._directories = DirectoryFinder()
        self.declares_view: ViewFinder = no_view
        """Whether a listed tool declares a `ui://` resource as its view."""
        self.leads: Callable[[str], bool] = lambda _path: False
        """Whether the user's own settings start the file at a path."""
        self.secrets: Mapping[str, SecretSearch] = {}
        """The search for secrets in what would be sent, by server, where the operator wants to be
        asked about them."""
        self.origins: OriginFinder = no_origins
        """Finds where targets come from, where the policy or the operator asks for it."""
        self._limiter = anyio.CapacityLimiter(_MAX_THREADS)

    async def gather(self, call: Operation) -> Gathered:
        """Gather the facts of a call."""
        gathered = await self._facts_of(call)
        if not isinstance(gathered, Facts) or call.method in QUESTION_METHODS:
            return gathered
        looked_up = self.origins(gathered.request)
        if looked_up is not None and (targets := await looked_up):
            gathered = replace(gathered, request=replace(gathered.request, targets=targets))
        seek = self.secrets.get(call.server)
        return gathered if seek is None else await self._with_secrets(gathered, call, seek)

    async def _with_secrets(self, facts: Facts, call: Operation, seek: SecretSearch) -> Gathered:
        sent: dict[str, Json] = {**facts.arguments, "_meta": dict(meta_of(call.params))}
        # It takes linear time; but megabytes must not stop the loop.
        found = await self._in_time(partial(seek, sent), "arguments could not be searched")
        if isinstance(found, Unresolvable):
            return found
        return replace(facts, secrets=found) if found else facts

    async def _facts_of(self, call: Operation) -> Gathered:
        if call.method != TOOL_CALL:
            return await self._gather_operation(call)
        tool = self._tools.lookup(call.server, call.tool)
        if tool is None:
            return unresolvable(f"Unknown tool: {call.exposed_name[:200]}", "unknown-tool")
        if tool.held:
            return unresolvable(f"The tool {tool.held}. {HELD_ADVICE}", HELD_RULE)
        plan = None if tool.annotation is None else self._facts.plan(tool.annotation)
        gathered = await self._gather(call, tool, plan)
        if not isinstance(gathered, Facts):
            return gathered
        hints = tool.definition.raw.get("annotations")
        facts = replace(gathered, hints=hints) if isinstance(hints, dict) else gathered
        declared = self._tools.command_argument
        name = None if declared is None else declared(tool.server, tool.definition.name)
        if name is None and plan is not None:
            name = plan.command
        if name is not None:
            return await self._with_command(facts, name, tool.server)
        acting = _acting_by_itself(facts.request, self._tools.grounds.workspace, self.leads)
        return replace(facts, acts_by_itself=acting) if acting else facts

    async def _gather_operation(self, operation: Operation) -> Gathered:
        from ironcurtain_proxy.facts.operations import (  # noqa: PLC0415  calls of tools do without
            as_sent,
            facts_of_question,
            named_by,
        )

        if operation.method in QUESTION_METHODS:
            return facts_of_question(operation, self._tools.operations.policy_server)
        named = named_by(operation, self._tools.operations, self.declares_view)
        if isinstance(named, Unresolvable):
            return named
        gathered = await self._read(operation, plan_for(named.annotation), named.arguments)
        return gathered if isinstance(gathered, Unresolvable) else as_sent(gathered, operation)

    async def _with_command(self, facts: Facts, name: str, server: str) -> Gathered:
        """Return the facts with the command in the argument `name`."""
        read = partial(with_command, facts, name, server, self._tools.grounds)
        # It may start git, and search a tree of packages.
        return await self._in_time(read, "directory of the command could not be looked up")

    async def _gather(
        self, call: Operation, tool: CataloguedTool, plan: ToolPlan | None
    ) -> Gathered:
        if tool.policy_server in self._tools.trusted:
            return _unread(tool, call.arguments)
        if plan is None and self._tools.asks_about_unknown:
            return await self._guess(call, tool)
        if plan is None:
            return unresolvable(
                f"Missing annotation for tool: {call.server}__{call.tool}. Nobody has said what "
                "its arguments name, so every call of it is denied. Tell the user: the operator "
                "has to annotate the tool.",
                "missing-annotation",
            )
        annotation, schema = plan.annotation, tool.definition.input_schema
        arguments = call.arguments
        is_lost = False
        if plan.is_git and lacks_path(annotation, arguments):
            completed = self._contexts.completed(call.server, arguments)
            is_lost = completed is None
            arguments, problem = self._schemas.fitted(annotation, schema, completed or arguments)
        else:
            base = partial(self._tools.grounds.base, call.server)
            arguments, problem = self._schemas.completed(annotation, schema, arguments, base)
        if problem is not None:
            return await self._gather_wider(call, annotation, tool) or unresolvable(problem)
        if is_lost:
            return unresolvable(NO_WORKING_DIRECTORY, "git-path-enrichment-failed")
        gathered = await self._read(call, plan, arguments)
        if self._contexts.directories and isinstance(gathered, Facts):
            gathered = replace(gathered, context=self._contexts.of(call.server))
        return gathered

    async def _gather_wider(
        self, call: Operation, annotation: ToolAnnotation, tool: CataloguedTool
    ) -> Gathered | None:
        """Return the facts of a call with arguments that nobody described.

        It is None if they are the fault.
        """
        wider = widened(annotation, call.arguments) if self._tools.asks_about_unknown else None
        schema = tool.definition.input_schema
        if wider is None or self._schemas.problem(wider, schema, call.arguments) is not None:
            return None
        gathered = await self._read(call, plan_for(wider), call.arguments)
        if not isinstance(gathered, Facts):
            return gathered
        lacking = [name for name in call.arguments if name not in annotation.arguments]
        return as_unknown(gathered, tuple(lacking))

    async def _guess(self, call: Operation, tool: CataloguedTool) -> Gathered:
        """Guess the facts of a tool without annotation, by the form of its arguments' texts."""
        schema = tool.definition.input_schema
        annotation = guessed(tool.policy_server, tool.definition.name, call.arguments, schema)
        arguments, problem = self._schemas.fitted(annotation, schema, call.arguments)
        if problem is not None:
            return unresolvable(problem)
        if arguments is not call.arguments:
            return await self._guess(replace(call, arguments=arguments), tool)
        gathered = await self._read(call, plan_for(annotation), arguments)
        return gathered if isinstance(gathered, Unresolvable) else as_unknown(gathered)

    def annotate_prompts(self, prompts: Annotations) -> None:
        """Replace the annotations of prompts for later calls."""
        known = replace(self._tools.operations, prompts=prompts)
        self._tools = replace(self._tools, operations=known)

    canonical = staticmethod(canonical)
    """Gives server, tool and arguments as one text: equal for equal calls."""

    def fingerprint(self, call: Operation, arguments: Arguments) -> str:
        """SHA-256 over server, tool and these arguments, in hexadecimal: equal for equal calls."""
        return fingerprint(call.server, call.tool, arguments)

    def undisturbed(self, facts: Facts) -> AbstractAsyncContextManager[bool] | None:
        """Lock the repository for the time of the call, exclusively if it pushes.

        Gives whether the call waited. It is None if the call works in no repository.
        """
        if facts.repository is None:
            return None
        return self._repositories.undisturbed(facts.repository, push=facts.pushes)

    async def directories(self, request: AccessRequest) -> frozenset[RealPath] | None:
        """Return the request's paths that are directories, or None if it is unknown."""
        return await self._directories.find(request)

    def roots(
        self, request: AccessRequest, directories: frozenset[RealPath] | None
    ) -> tuple[str, ...]:
        """Return the directories that a server needs among its roots for the approved call."""
        return () if directories is None else directories_to_open(request, directories)

    def succeeded(self, call: _CarriedOut) -> None:
        """Note that the call was carried out (it may have set a working directory)."""
        if call.tool in SETS_DIRECTORY:
            self._contexts.note(call.server, call.tool, call.arguments)
        branches = self._tools.grounds.branches
        if branches.tried:
            branches.succeeded(call.arguments)

    async def _read(self, call: Operation, plan: ToolPlan, arguments: Arguments) -> Gathered:
        """Read the arguments: at once, or in a thread if that may take long."""
        remotes = self._tools.remotes(call.server)
        paths = self._facts.looks_up(plan, arguments)
        is_quick = paths is not None and paths <= _MAX_PATHS_AT_ONCE
        if is_quick and not (paths and self._mounts.may_block()):
            return self._facts.read(plan, arguments, remotes)
        read = partial(self._facts.read, plan, arguments, remotes)
        return await self._in_time(read, "paths or remotes of the call could not be looked up")

    async def _in_time(self, work: Callable[[], T], what: str) -> T | Unresolvable:
        """Do what may hang in a thread, which is abandoned at the deadline."""
        with anyio.move_on_after(self._deadline):
            return await anyio.to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._limiter
            )
        return unresolvable(f"The {what} in time.", "facts-unavailable")


def _unread(tool: CataloguedTool, arguments: Arguments) -> Facts:
    return Facts(
        request=AccessRequest(
            server=tool.policy_server,
            tool=tool.definition.name,
            annotated=tool.annotation is not None,
            has_arguments=bool(arguments),
            arguments=(),
            effect=None if tool.annotation is None else tool.annotation.effect,
        ),
        arguments=arguments,
    )
