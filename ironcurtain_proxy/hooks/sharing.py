"""One kernel for both doors of a client: its proxy for servers serves its hooks, too.

Theory of operation:

    client ── starts ──▶ proxy for servers ── holds the door of the client ──▶ its hooks come here
       └───── starts ──▶ hook, which finds no door ──▶ kernel of its own, until that proxy asks

Both start at once, so the kernel that a hook has started leaves the door to the proxy as long as it
has judged no call. Then grants, reviewers, budgets, records and timeline are the same at both
doors, and the process ends with the last of both.

A proxy can be started by a project's own file, with variables and files of that project. So it
serves hooks only if what it was told is what a kernel of the hooks would be told. Where it is not,
the hooks have a kernel of their own as if there were no proxy, and the status says why.
"""

import logging
import os
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from msgspec.structs import replace

from ironcurtain_proxy.config.reading.reading import read_text
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.events import HookClient
from ironcurtain_proxy.hooks.kernel import (
    SHARED,
    YIELD,
    client_settings,
    listener_of,
    observed_in,
    variables_in,
)
from ironcurtain_proxy.hooks.launching import STUB
from ironcurtain_proxy.hooks.places import client_directory, file_in, kept_file
from ironcurtain_proxy.hooks.runs import HeldDoor, short_path
from ironcurtain_proxy.mailbox.mailboxes import start_of
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.mailbox.session_state import FILE_NAME
from ironcurtain_proxy.private_files import write_whole
from ironcurtain_proxy.wiring.proxy import Proxy

_SECONDS: Final = 40.0
"""Seconds for taking over the door from a kernel that is about to start, or to end."""
_PAUSE: Final = 0.02
_OWN: Final = frozenset({
    *("session", "is_session_named", "session_log", "mailbox_dir", "servers", "servers_file"),
    *("pins", "secrets", "inherited", "said_in", "warnings", "drain_seconds", "forward_meta"),
    *("max_message_bytes", "server_in_names", "show_denied_tools"),
})  # fmt: skip
"""The settings that are each session's own, or are about servers and the agent's pipes alone."""
_log: Final = logging.getLogger(__name__)


async def serve_beside(client: HookClient, pid: int, proxy: Proxy) -> None:
    """Serve the hooks of the client that started a proxy, by its kernel, until they end.

    Returns at once where that cannot be.

    Args:
        client: which one.
        pid: its process.
        proxy: the proxy, which is running.
    """
    note = proxy.settings.session_dir / SHARED
    try:
        with ExitStack() as exits:
            place = HeldDoor.of(Owner(pid, start_of(pid)), proxy.settings.state_dir)
            settings = await anyio.to_thread.run_sync(_settings, client, pid, proxy.settings)
            await _take(place, client, proxy.settings, exits)
            listener = await anyio.to_thread.run_sync(
                partial(listener_of, settings, DIALECTS[client], place, exits, beside=proxy.shared)
            )
            listener.proxy.catalogue.beside = proxy.catalogue
            listener.proxy.servers.start_processes()
            write_whole(note, client.encode())
            await listener.run()
        return
    except (ConfigurationError, OSError) as error:
        why = str(error)
    except Exception:  # noqa: BLE001  the agent is served all the same
        _log.exception("the hooks of %s cannot be served", client)
        why = "it met a defect"
    _log.warning("the hooks of %s have a kernel of their own: %s", client, why)
    with suppress(OSError):
        write_whole(note, f"{client}\n{why}".encode())


def _settings(client: HookClient, pid: int, known: Settings) -> Settings:
    """Return the settings of the hooks' door.

    Raises:
        ConfigurationError: the kernel of a proxy cannot serve them; it says why.
    """
    if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
        raise ConfigurationError("the client is another user's")
    state = known.state_dir
    if client in observed_in(state):
        raise ConfigurationError("its hooks only record")
    hooks = file_in(client, client_directory(client, known.home, state))
    if kept_file(state, client).exists() and str(STUB) not in read_text(hooks):
        raise ConfigurationError(f"{hooks} has hooks of another installation")
    environ = {"HOME": str(known.home), **variables_in(state)}
    settings = client_settings(environ, pid, DIALECTS[client].patience)
    if other := _differences(settings, known):
        raise ConfigurationError(f"it has another configuration ({', '.join(other)})")
    if known.auto_confirm is not None and known.auto_confirm.engine.enabled:
        raise ConfigurationError("the auto-confirm engine judges the calls of one kernel")
    return replace(settings, mailbox_dir=known.mailbox_dir)


def _differences(one: Settings, other: Settings) -> list[str]:
    """Return the names of settings in which two kernels differ."""
    same = [
        replace(
            each,
            escalation=replace(each.escalation, hold_after_seconds=0),
            auto_approve=replace(each.auto_approve, llm_log=None),
        )
        for each in (one, other)
    ]
    names = [name for name in Settings.__struct_fields__ if name not in _OWN]
    return [name for name in names if getattr(same[0], name) != getattr(same[1], name)]


async def _take(place: HeldDoor, client: HookClient, known: Settings, exits: ExitStack) -> None:
    """Hold the door, from which a kernel that has judged no call goes away.

    Raises:
        ConfigurationError: one has, or none of the two comes in time.
    """
    has_come = False
    with anyio.move_on_after(_SECONDS):
        while not place.hold(exits):
            answer = await _asked_to_yield(place.path, client)
            if answer and not answer.startswith(b"yes"):
                raise ConfigurationError(answer.decode())
            # Another kernel was there because an event had come.
            has_come = has_come or bool(answer)
            if words := answer.removeprefix(b"yes"):
                with suppress(OSError):
                    write_whole(known.mailbox_dir / FILE_NAME, words)
            await anyio.sleep(_PAUSE)
        if has_come:
            place.note_event()
        return
    raise ConfigurationError("the kernel that serves them does not answer")


async def _asked_to_yield(place: Path, client: HookClient) -> bytes:
    """Return what the kernel at a door says; empty if none is there, or it says nothing now."""
    answer = b""
    with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream), short_path(place) as path:
        async with await anyio.connect_unix(path) as kernel:
            await kernel.send(f"{client} {YIELD} \n".encode())
            await kernel.send_eof()
            while not answer.endswith(b"\0"):
                answer += await kernel.receive()
    whole = answer.removesuffix(b"\0")
    return b"" if whole in {answer, b"later"} else whole
