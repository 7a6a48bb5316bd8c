"""`serve`: MCP on standard input and output.

Theory of operation. A start has four steps, and a mistake in one leaves nothing behind:

    read everything ──▶ join the parts ──▶ start the servers ──▶ answer the agent ──▶ take leave
    settings, policy     `proxy.assemble`    their processes       an event loop        notes, log

`serve` reads settings and policy, looks for a sandbox and claims standard input and output before
it opens the log, so that a wrong file is said without a trace. It starts the servers before the
event loop, because they take longer than all the rest; the agent's `initialize` waits for their
instructions for 3 s at most. From then on the agent is served, and beside it the hooks of its
client where the kernel has both doors: the process ends with the last of both, or on a signal.

`check`, `status` and `doctor` ask the first half of this file for all obstacles at once, without
starting or leaving anything, where `serve` stops at the first. `tests/e2e/test_check_agrees.py`
holds the two against each other.
"""

import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from ironcurtain_proxy.agent.asking import ElicitationReviewer, Introduction
from ironcurtain_proxy.agent.operations import UPDATED
from ironcurtain_proxy.agent.requests import RequestCapacity
from ironcurtain_proxy.agent.sealing import Sealing
from ironcurtain_proxy.agent.server import AgentServer
from ironcurtain_proxy.agent.transport import AgentTransport
from ironcurtain_proxy.audit.recovery import nearest_existing, refuse_unusable, try_writing
from ironcurtain_proxy.config.extras import lacks
from ironcurtain_proxy.config.policy.policy_loading import LoadedPolicy, load_policy
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.reading.layers import CONFIG_NAME, PRINCIPAL_VARIABLE
from ironcurtain_proxy.config.servers.servers_file import SERVERS_NAME
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.downstream.process import hide_from_debuggers, raise_limit, too_few
from ironcurtain_proxy.downstream.starting import tidy
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.grants.book import BudgetBook, GrantBook
from ironcurtain_proxy.grants.grant_settlement import Approvals
from ironcurtain_proxy.jsonrpc.codec import MirroredPaths, mirrored_arguments
from ironcurtain_proxy.jsonrpc.pipes import STREAM_ENDED, claim_stdio, open_reader, open_writer
from ironcurtain_proxy.mediation.operations import note_unserved
from ironcurtain_proxy.model.decision import Ground
from ironcurtain_proxy.model.operation import Caller, ProgressListener
from ironcurtain_proxy.model.reply import Reply
from ironcurtain_proxy.model.values import Json, RealPath
from ironcurtain_proxy.own_process import (
    LOGGER,
    MemoryTrimmer,
    SystemClock,
    configure_logging,
    say,
    telling,
)
from ironcurtain_proxy.private_directory import MailboxDirectory
from ironcurtain_proxy.private_files import shared_with
from ironcurtain_proxy.review.terminal import Channel, LateChannel, TerminalReviewer
from ironcurtain_proxy.sessions import (
    forget_session,
    note_session,
    remove_old_sessions_later,
)
from ironcurtain_proxy.wiring.call_facts import say_what_holds
from ironcurtain_proxy.wiring.confinement import find_sandbox, say_what_root_means
from ironcurtain_proxy.wiring.proxy import (
    Proxy,
    assemble,
    refuse_closed_hosts,
    settled,
    unused_proxies,
)
from ironcurtain_proxy.wiring.reviewers import AddedChannels, assemble_reviewers
from ironcurtain_proxy.wiring.shared import LISTED_ANEW, pinned_introductions

# --- readiness


NO_SERVERS: Final = (
    "no server is configured: run `ironcurtain-proxy init`, or write one with a command or a url "
    "into this file, into mcpServers of the configuration file, or into MCP_SERVERS_CONFIG"
)
"""The message that nothing is served."""

NO_WORKSPACE: Final = (
    "no workspace is set: run `ironcurtain-proxy init`, or write allowedDirectory into this file "
    "(a client that sets ALLOWED_DIRECTORY sets it for its own proxy alone)"
)
"""The message that every file is asked about."""


def look_at_the_start(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], report: Report
) -> None:
    """Note the obstacles to the start of `serve`, and warnings for its operator.

    Args:
        settings: what could be read of the operator's words.
        loaded: what could be read of the policy.
        environ: ours.
        report: holds what was wrong with these words already. Where that are errors, what may only
            follow from them is not said.
    """
    look_at_servers(settings, report, is_hooked=is_hooked(settings))
    if not report.has_errors:
        _look_at_sandboxes(settings, loaded, environ, report)
        _try(partial(refuse_closed_hosts, settings, loaded.policy), report)
        for warning in unused_proxies(settings, environ):
            report.warning(servers_source(settings), (), warning)
    look_at_places(settings, report)
    look_at_reviewers(settings, loaded, environ, report)


def is_hooked(settings: Settings) -> bool:
    """Return whether a client's file has our hooks, which need no server."""
    return any((settings.state_dir / "clients").glob("hooks-*.json"))


def look_at_servers(settings: Settings, report: Report, *, is_hooked: bool = False) -> None:
    """Note that there is nothing to serve, no workspace, or what others could change."""
    if problem := shared_with(settings.state_dir):
        report.error(settings.state_dir, (), problem)
    if report.has_errors:
        return
    if not settings.servers and not is_hooked:
        report.error(servers_source(settings), (), NO_SERVERS)
    if settings.workspace is None:
        report.warning(settings.config_file or settings.state_dir / CONFIG_NAME, (), NO_WORKSPACE)
    elif any(spec.sandbox is not False for spec in settings.servers):
        outside = outer_repository(settings.workspace, settings.home)
        if outside is not None:
            report.warning("workspace", (), outside)


def servers_source(settings: Settings) -> str:
    """Return the file in which the servers are, or should be, configured."""
    return str(settings.servers_file or settings.config_file or settings.state_dir / SERVERS_NAME)


def look_at_places(settings: Settings, report: Report) -> None:
    """Note places that cannot be written to."""
    _try(partial(refuse_unusable, settings.audit.path), report)
    _try(partial(refuse_unmakeable, settings.session_dir), report)
    for mailbox in settings.mailboxes:
        _try(partial(refuse_mailbox, mailbox), report)


def look_at_reviewers(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], report: Report
) -> None:
    """Note reviewers that cannot be joined, and their missing libraries."""
    for lack in lacks(settings):
        (report.error if lack.stops else report.warning)("configuration", (), str(lack))
    if not report.has_errors:
        approvals = Approvals(GrantBook(), BudgetBook())
        joined = partial(assemble_reviewers, settings, approvals, SystemClock(), environ, loaded)
        _try(joined, report)


def refuse_mailbox(directory: Path) -> None:
    """Refuse a mailbox that could not be used.

    Raises:
        ConfigurationError: it cannot.
    """
    try:
        MailboxDirectory.open(directory, create=False).close()
    except FileNotFoundError:
        refuse_unmakeable(directory)


def refuse_unmakeable(directory: Path) -> None:
    """Refuse a directory that is not there and could not be made.

    Raises:
        ConfigurationError: it could not.
    """
    there = nearest_existing(directory)
    if not there.is_dir():
        raise ConfigurationError(f"{directory} cannot be made: {there} is not a directory")
    try:
        try_writing(there)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{directory} cannot be made: {there}: {why}") from None


def _look_at_sandboxes(
    settings: Settings, loaded: LoadedPolicy, environ: Mapping[str, str], report: Report
) -> None:
    from ironcurtain_proxy.wiring.confining import confinements  # noqa: PLC0415  for `check`

    said: list[str] = []
    try:
        sandbox = find_sandbox(settings, environ, said.append)
        specs = settled(settings, environ, make=False)
        confinements(sandbox, specs, settings, loaded.policy, make=False)
    except ConfigurationError as error:
        report.error("sandbox", (), "; ".join(str(error).replace(":\n", ": ").splitlines()))
    for text in said:
        report.warning("sandbox", (), text.removeprefix("warning: "))


def _try(attempt: Callable[[], object], report: Report) -> None:
    try:
        attempt()
    except ConfigurationError as error:
        report.error("configuration", (), str(error))


_MOST: Final = 4096
"""The most bytes of a `.git` file; a longer file is something else."""
_PREFIX: Final = "gitdir:"


def outer_repository(workspace: RealPath, home: Path) -> str | None:
    """Return the limits of git in a sandbox of this workspace, with the remedy.

    It is None if git can do all.

    A worktree keeps its index and branches in the repository that it was made of, and a directory
    of a larger repository keeps them in the directory above. A sandbox writes in the workspace
    alone, and the timeline holds nothing else: git can read there, and cannot commit.
    """
    place = Path(str(workspace))
    data = _data(place)
    if data is None or RealPath.from_text(str(data)).is_within(workspace):
        return None
    around = data.parent if _is_above(data.parent, place) else None
    if around is not None:
        what, then = f"lies in a larger one, {around}", f"make {around} the workspace"
    else:
        what = f"keeps its data outside, in {data}"
        both = _above_both(place, data)
        joined = f"make {both} the workspace, which holds both" if both not in (home, None) else ""
        apart = "make the worktree inside the repository that it belongs to, and that the workspace"
        then = joined or apart
    return (
        f"the git repository of the workspace {what}: in a sandbox git reads it, and cannot add, "
        f"commit or fetch; {then} (allowedDirectory)"
    )


def _data(place: Path) -> Path | None:
    """Return the directory with branches and objects of the repository that a directory is in."""
    for directory in (place, *place.parents):
        found = directory / ".git"
        try:
            if found.is_dir():
                return found.resolve()
            if found.is_file() and found.stat().st_size <= _MOST:
                text = found.read_text(encoding="utf-8", errors="surrogateescape").strip()
                if text.startswith(_PREFIX):
                    return _common((directory / text.removeprefix(_PREFIX).strip()).resolve())
        except (OSError, RuntimeError, ValueError):
            return None
    return None


def _common(data: Path) -> Path:
    """Return the directory that all worktrees of a repository share."""
    pointer = data / "commondir"
    if not pointer.is_file() or pointer.stat().st_size > _MOST:
        return data
    text = pointer.read_text(encoding="utf-8", errors="surrogateescape").strip()
    return (data / text).resolve()


def _above_both(one: Path, other: Path) -> Path | None:
    """Return the nearest directory around both, or None if the root."""
    above = next(path for path in one.parents if _is_above(path, other))
    return None if above == above.parent else above


def _is_above(path: Path, below: Path) -> bool:
    return below.is_relative_to(path)


# --- serving


_PATIENCE: Final = 3.0
"""Seconds for which servers' instructions are waited for. An agent that is answered later lists
tools later by as much less: the list waits for the same servers."""

_COLLECT_AFTER: Final = 5_000
"""New objects after which garbage in cycles is looked for. Calls in flight make some thousands, and
none is garbage: Python looks through them at every 700, which took a twentieth of their time.
"""

_log: Final = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve(
    environ: MutableMapping[str, str],
    config: Path | None = None,
    unhooked: Callable[[], str] | None = None,
    beside: Callable[[Proxy], Coroutine[None, None, None]] | None = None,
) -> int:
    """Serve MCP on standard input and output until the agent leaves or a signal comes.

    Args:
        environ: ours.
        config: the file of settings that was named.
        unhooked: says why calls are refused because the agent's client runs without the hooks that
            it should have, or empty if it has them, or None if no client has hooks.
        beside: serves another door of the same kernel, which ends with the last of both; None:
            there is none.

    Returns:
        The exit code: 0, or 128 + N after signal N.

    Raises:
        ConfigurationError: something cannot be used; nothing was started.
    """
    hide_from_debuggers()
    settings = load_settings(environ, config)
    loaded = load_policy(settings)
    for problem in (*settings.warnings, *loaded.warnings):
        say(str(problem))
    refuse_what_is_not_there(settings)
    raise_limit()
    if (warning := too_few(len(settings.servers))) is not None:
        say(warning)
    sandbox = find_sandbox(settings, environ, say)
    say_what_root_means(sandbox, say)
    read, write = claim_stdio()
    client = LateChannel()
    proxy = assemble(settings, loaded, environ, sandbox=sandbox, ways=_ways(client))
    for notice in proxy.audit.notices:
        say(notice)
    say_what_holds(proxy.overlay, say)
    finish_logging = configure_logging(settings.session_log)
    try:
        _start(proxy)
        return anyio.run(_live, proxy, client, read, write, unhooked, beside)
    except ExceptionGroup as group:
        raise _what_cannot_be_used(group) or group from None
    finally:
        finish_logging()
        if proxy.audit.latched is not None:
            say(f"records could not be written: {proxy.audit.latched}")
        proxy.audit.close()
        proxy.note_log()
        _leave(settings)


def _ways(client: LateChannel) -> AddedChannels:
    terminal = TerminalReviewer(SystemClock())
    return AddedChannels(
        more={
            "elicitation": Channel(client, client.is_reachable),
            "terminal": Channel(terminal, terminal.is_reachable),
        }
    )


def _start(proxy: Proxy) -> None:
    """Start the parts that need no event loop: the servers start while it is made."""
    note_session(proxy.settings, policy=proxy.loaded.version)
    proxy.note_log()
    proxy.servers.start_processes()
    remove_old_sessions_later(proxy.settings)
    gc.freeze()  # what was imported and read stays: no collection looks at it again
    gc.set_threshold(_COLLECT_AFTER)


def _leave(settings: Settings) -> None:
    forget_session(settings)
    tidy(settings.session_dir)


async def _live(
    proxy: Proxy,
    client: LateChannel,
    read: int,
    write: int,
    unhooked: Callable[[], str] | None,
    beside: Callable[[Proxy], Coroutine[None, None, None]] | None,
) -> int:
    def note_client(name: str) -> None:
        proxy.note_client(name)
        proxy.client.introduced.set()
        proxy.reloading.tell(proxy.reloading.in_force.policy.version, proxy.reloading.problem)

    limit = proxy.settings.max_message_bytes
    batch = proxy.servers.hooks.batch
    out = await open_writer(write, batch=batch)
    proxy.servers.hooks.capacity.unread = lambda: out.backlog
    proxy.servers.hooks.capacity.limit = largest = limit + limit // 2
    trimming = MemoryTrimmer(proxy.servers.hooks.capacity.used)
    proxy.servers.hooks.capacity.on_large = trimming.note_large
    agent = AgentServer(
        handle_call=proxy.calls.handle if unhooked is None else partial(_held, proxy, unhooked),
        list_tools=proxy.list_tools,
        handle_operation=proxy.operations.handle,
        list_others=proxy.operations.listing,
        set_log_level=proxy.servers.set_log_level,
        transport=AgentTransport(
            await open_reader(read, max_line=limit, batch=batch),
            out,
            drain_seconds=proxy.settings.drain_seconds,
        ),
        turn_away=proxy.calls.turn_away,
        note_unserved=partial(note_unserved, proxy.calls.journal),
        capacity=RequestCapacity(largest, on_large=trimming.note_large),
        on_abandon=proxy.reviewers.questions.leave,
        instructions=partial(_instructions, proxy),
        on_client=note_client,
        in_headers=partial(_in_headers, proxy),
        lists_last=proxy.servers.last,
        sealing=Sealing(proxy.settings.state_dir, _principal(proxy.settings)),
        is_behind_front=PRINCIPAL_VARIABLE in proxy.settings.inherited,
    )

    proxy.client.client = agent.rounds
    elicitation = ElicitationReviewer(agent.rounds, SystemClock())
    client.open(elicitation, elicitation.is_reachable)

    async def logged(server: str, params: Mapping[str, Json]) -> None:
        await agent.log_message(_named(server, params, several=len(proxy.settings.servers) > 1))

    proxy.reloading.tell = partial(_note_policy, proxy)
    proxy.on_tools_changed = agent.tools_changed
    proxy.on_policy_changed = partial(_notice_lists, agent)
    proxy.servers.hooks.on_notice = _noticing(proxy, agent)
    proxy.calls.journal.unattended.tell = telling(proxy.settings, agent.log_own_message)
    proxy.servers.hooks.on_log = logged
    ended_by: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, tasks.cancel_scope, agent, ended_by)
        tasks.start_soon(trimming.run)
        await tasks.start(proxy.run)
        await _serve_doors(agent, proxy, beside)
        tasks.cancel_scope.cancel()
    return 128 + ended_by[0] if ended_by else 0


async def _serve_doors(
    agent: AgentServer, proxy: Proxy, beside: Callable[[Proxy], Coroutine[None, None, None]] | None
) -> None:
    """Serve the agent, and the other door of the same kernel, until both have ended."""
    async with anyio.create_task_group() as doors:
        if beside is not None:
            doors.start_soon(beside, proxy)
        await agent.serve()


async def _held(
    proxy: Proxy,
    unhooked: Callable[[], str],
    exposed_name: str,
    params: Mapping[str, Json],
    on_progress: ProgressListener | None = None,
    *,
    caller: Caller | None = None,
) -> Reply:
    """Carry a call, unless the agent's client runs without the hooks that it should have."""
    why = unhooked()
    if not why:
        return await proxy.calls.handle(exposed_name, params, on_progress, caller=caller)
    _log.warning("%s", why)
    return await proxy.calls.refuse(exposed_name, params, Ground("client-without-hooks", why))


def _principal(settings: Settings) -> str:
    """Return the principal whose session the front over HTTP has named, or empty if the user."""
    return settings.session.rpartition("-")[0] if settings.is_session_named else ""


def _in_headers(proxy: Proxy, name: str) -> MirroredPaths:
    """Return the arguments of a tool that stand in headers; none if its marks are wrong."""
    found = proxy.catalogue.find(name)
    tool = None if found is None else proxy.catalogue.lookup(*found)
    paths = {} if tool is None else mirrored_arguments(tool.definition)
    return {} if isinstance(paths, str) else paths


async def _instructions(proxy: Proxy) -> Introduction:
    """Return the instructions for the agent.

    The proxy's guidance, then each server's under its name.
    """
    said = await proxy.servers.introductions(_PATIENCE)
    started = {name: one for name, one in said.items() if one.info or one.capabilities}
    are_all = len(started) == len(proxy.servers.names)
    return pinned_introductions(started, proxy.pins, proxy.servers.missing(), are_all=are_all)


async def _notice_lists(agent: AgentServer) -> None:
    """Tell the agent that a changed policy shows other tools, prompts and resources."""
    agent.subscriptions.end()
    for what in ("tools", "prompts", "resources"):
        await agent.notice(f"notifications/{what}/list_changed", None)


def _noticing(
    proxy: Proxy, agent: AgentServer
) -> Callable[[str, str, Mapping[str, Json]], Awaitable[None]]:
    """Return what passes on servers' notifications of subscribed resources and lists."""
    proxy.operations.tell = partial(agent.notice, UPDATED)

    async def noticed(server: str, method: str, params: Mapping[str, Json]) -> None:
        if method == UPDATED:
            if (news := proxy.operations.updated(server, params)) is not None:
                await agent.notice(method, news)
        elif method.endswith("/list_changed"):
            for section in LISTED_ANEW.get(method, ()):
                proxy.pins.forget(server, section)
            await agent.notice(method, None)
        elif method == STREAM_ENDED:
            await agent.stream_ended()
        elif method.endswith("/complete") and proxy.client.is_done(server, params):
            await agent.notice(method, params)

    return noticed


def _note_policy(proxy: Proxy, version: str, problem: str) -> None:
    note_session(proxy.settings, proxy.calls.journal.client.name, version, problem)


def _what_cannot_be_used(group: ExceptionGroup) -> ConfigurationError | None:
    """Return the error that the operator can mend, such as another user's mailbox.

    It is None if a defect.
    """
    found: Exception = group
    while isinstance(found, ExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found if isinstance(found, ConfigurationError) else None


def _named(server: str, params: Mapping[str, Json], *, several: bool) -> Mapping[str, Json]:
    """Return a log message under its server's name: no server speaks for another."""
    logger = params.get("logger")
    if not several and logger != LOGGER:
        return params
    name = f"{server}/{logger}" if isinstance(logger, str) else server
    # A server must not log under the proxy's own name.
    return {**params, "logger": f"{name}/log" if name == LOGGER else name}


async def _end_on_signal(scope: anyio.CancelScope, agent: AgentServer, ended_by: list[int]) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as received:
        async for number in received:
            ended_by.append(number)
            agent.abandon()
            scope.cancel()


def refuse_what_is_not_there(settings: Settings) -> None:
    """Refuse to start with nothing to serve, and warn of surprises.

    Raises:
        ConfigurationError: no servers, or others could change the state directory.
    """
    report = Report()
    look_at_servers(settings, report)
    report.raise_errors()
    for problem in report.problems:
        say(str(problem))
