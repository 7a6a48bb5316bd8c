"""The transports of notices: a command, a webhook, a file, a tmux status line.

`tmux send-keys` is not used: it types text into whatever runs in the terminal, possibly a model or
a shell.
"""

import logging
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import orjson

from ironcurtain_proxy.auto_confirm.notify.notices import EngineNotice
from ironcurtain_proxy.auto_confirm.reviewers.process_start import BASE
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.private_files import append_line

if TYPE_CHECKING:
    import httpx

MAX_FILE: Final = 16 << 20
"""The most bytes of the file."""

_DISPLAY_MILLISECONDS: Final = "5000"
_TMUX_VARIABLES: Final = ("TMUX", "TMUX_TMPDIR")
_TMUX_TARGET: Final = re.compile(r"[A-Za-z0-9_%@$:.=][A-Za-z0-9_%@$:./=-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandChannel:
    """Runs a program, with the notice as its last arguments.

    A review: the id and the operation. A summary: `permission_summary`, the number of calls, each
    operation as `edit=30,read=12`, the highest risk, and since when.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    targets: frozenset[str] = frozenset()
    """The reviewers whose questions are announced; empty: all reviewers."""
    kind: Literal["command"] = field(default="command", init=False)

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0] or "\0" in "".join(self.argv):
            raise ConfigurationError("a notification has no command")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel:
    """Posts JSON."""

    url: str = field(repr=False)
    """Never logged: to know the address is often enough to post there."""
    targets: frozenset[str] = frozenset()
    kind: Literal["webhook"] = field(default="webhook", init=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("a notification's webhook is not an http or https address")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChannel:
    """Appends a JSON line."""

    path: Path
    targets: frozenset[str] = frozenset()
    kind: Literal["file"] = field(default="file", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TmuxChannel:
    """Shows a message in a status line."""

    target: str
    """The pane, by its name in tmux."""
    socket: Path | None = None
    """The socket of the tmux server; None: its default."""
    targets: frozenset[str] = frozenset()
    kind: Literal["tmux"] = field(default="tmux", init=False)

    def __post_init__(self) -> None:
        if _TMUX_TARGET.fullmatch(self.target) is None:
            raise ConfigurationError("a notification's tmux target is not a pane's name")


NoticeChannel: TypeAlias = CommandChannel | WebhookChannel | FileChannel | TmuxChannel


class NoticeSender:
    """Sends notices. May raise anything; leaves nothing running."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Take the proxy's own environment: commands get the base of it."""
        self._environ = environ
        self._client: httpx.AsyncClient | None = None
        self._loading = anyio.Lock()

    async def carry(self, channel: NoticeChannel, notice: EngineNotice) -> None:
        """Send one notice."""
        match channel:
            case CommandChannel():
                argv = (*channel.argv, *notice.as_arguments())
                await _run(argv, {**self._base(), **channel.env})
            case WebhookChannel():
                client = await self._loaded()
                response = await client.post(channel.url, json=notice.as_json())
                response.raise_for_status()
            case FileChannel():
                line = orjson.dumps(notice.as_json(), option=orjson.OPT_APPEND_NEWLINE)
                # Abandoned where a disk hangs.
                append = partial(append_line, channel.path, line, MAX_FILE)
                await anyio.to_thread.run_sync(append, abandon_on_cancel=True)
            case TmuxChannel():
                await _run(_tmux(channel, notice), self._base(*_TMUX_VARIABLES))
            case _:
                assert_never(channel)

    async def aclose(self) -> None:
        """Close the webhook's connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _base(self, *further: str) -> dict[str, str]:
        wanted = BASE.union(further)
        return {
            name: value
            for name, value in self._environ.items()
            if name in wanted or name.startswith("LC_")
        }

    async def _loaded(self) -> "httpx.AsyncClient":
        async with self._loading:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(_client, abandon_on_cancel=True)
            return self._client


def _client() -> "httpx.AsyncClient":
    """Load the library, which takes a while: in a thread, and only where there is a webhook."""
    from ironcurtain_proxy.llm.http import plain_client  # noqa: PLC0415

    # It logs every address that it requests.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return plain_client()


def _tmux(channel: TmuxChannel, notice: EngineNotice) -> tuple[str, ...]:
    server = () if channel.socket is None else ("-S", str(channel.socket))
    return (
        *("tmux", *server, "display-message", "-d", _DISPLAY_MILLISECONDS),
        *("-t", channel.target, "--", notice.as_text()),
    )


async def _run(argv: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Run a program to its end. When cancelled, kill it and its process group."""
    process = await anyio.open_process(
        argv,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        status = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()
    if status != 0:
        raise OSError(f"it ended with status {status}")
