"""`serve --http`: the front from its start to its end.

Everything is read once before it listens, so that a mistake in a file stops the start; each session
reads it again, because it is a proxy of its own.
"""

import logging
import signal
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET, socket
from typing import Final

import anyio
import uvicorn

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.reading.layers import (
    PRINCIPAL_VARIABLE,
    SESSION_VARIABLE,
    STATE_DIRECTORY,
)
from ironcurtain_proxy.config.settings import Settings, home_directory, load_settings
from ironcurtain_proxy.downstream.process import hide_from_debuggers, raise_limit
from ironcurtain_proxy.front.app import PATH, Front
from ironcurtain_proxy.front.connections import FrontConnection
from ironcurtain_proxy.front.guard import LOOPBACK, RequestGuard, hosts_of, listening, port_of
from ironcurtain_proxy.front.sessions import ProxyProcess, Sessions, command_of
from ironcurtain_proxy.front.settings import FrontSettings, take_settings
from ironcurtain_proxy.own_process.operator_log import configure_logging, say
from ironcurtain_proxy.wiring.serving import refuse_what_is_not_there

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KEEP_ALIVE: Final = 60
"""Seconds for which a connection without a request stays open."""
_MARGIN: Final = 10.0
"""Seconds for a proxy to end its servers, besides the time for open calls."""


def serve_http(
    environ: MutableMapping[str, str], config: Path | None, public_names: Sequence[str]
) -> int:
    """Serve until a signal comes.

    Returns:
        The exit code: 128 + N after signal N.

    Raises:
        ConfigurationError: something cannot be used; nothing was started.
    """
    hide_from_debuggers()
    raise_limit()
    front = take_settings(environ, home_directory(environ) / STATE_DIRECTORY, public_names)
    # With the secrets, which `load_settings` takes away: each session needs them.
    inherited = dict(environ)
    settings = load_settings(environ, config)
    for problem in (*settings.warnings, *load_policy(settings).warnings):
        say(str(problem))
    refuse_what_is_not_there(settings)
    finish_logging = configure_logging(settings.session_log)
    # It warns about requests of strangers, about which nobody can do anything.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        with listening(front) as sockets:
            for line in _told(front, sockets):
                say(line)
            return anyio.run(_live, front, settings, inherited, config, sockets)
    finally:
        finish_logging()


def _told(front: FrontSettings, sockets: Sequence[socket]) -> Iterator[str]:
    for one in sockets:
        if one.family == AF_INET:
            yield f"MCP is served at http://{LOOPBACK}:{port_of(one)}{PATH}"
    if front.socket is not None:
        yield f"MCP is served at {PATH} of the socket {front.socket}"
    if front.tokens_file is not None:
        yield f"the tokens are in {front.tokens_file}: Authorization: Bearer TOKEN"


async def _live(
    front: FrontSettings,
    settings: Settings,
    inherited: Mapping[str, str],
    config: Path | None,
    sockets: Sequence[socket],
) -> int:
    limit = settings.max_message_bytes
    command = command_of(config)

    async def start(name: str, principal: str) -> ProxyProcess:
        # Twice the limit: an answer has a few words around what a server sent.
        environ = {**inherited, SESSION_VARIABLE: name, PRINCIPAL_VARIABLE: principal}
        return await ProxyProcess.start(command, environ, 2 * limit)

    sessions = Sessions(
        start, max_waiting=limit + limit // 2, patience=settings.drain_seconds + _MARGIN
    )
    guard = RequestGuard(front.principals, hosts_of(sockets, front.public_names))
    server = _Server(
        uvicorn.Config(
            Front(guard, sessions, limit),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=FrontConnection,
            ws="none",
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=1,
        )
    )
    ended_by: list[int] = []
    async with anyio.create_task_group() as tasks:
        await tasks.start(sessions.run)
        tasks.start_soon(_end_on_signal, server, sessions, ended_by)
        await server.serve(sockets=[*sockets])
        tasks.cancel_scope.cancel()
    return 128 + ended_by[0] if ended_by else 0


class _Server(uvicorn.Server):
    """A server that leaves signals to `serve_http`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal."""
        yield


async def _end_on_signal(server: uvicorn.Server, sessions: Sessions, ended_by: list[int]) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as received:
        async for number in received:
            ended_by.append(number)
            server.should_exit = True
            sessions.stop()  # which ends their streams: no connection is left to wait for
