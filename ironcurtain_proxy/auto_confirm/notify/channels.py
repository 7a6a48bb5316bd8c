"""The transports of notices: a command, a webhook, a file, a tmux status line.

`tmux send-keys` is not used: it types text into whatever runs in the terminal, possibly a model or
a shell.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from subprocess import DEVNULL
from typing import Final, assert_never

import anyio
import anyio.to_thread
import orjson

from ironcurtain_proxy.auto_confirm.notice_channels import (
    CommandChannel,
    FileChannel,
    NoticeChannel,
    TmuxChannel,
    WebhookChannel,
)
from ironcurtain_proxy.auto_confirm.notify.notices import EngineNotice
from ironcurtain_proxy.auto_confirm.reviewers.process_start import BASE
from ironcurtain_proxy.private_files import append_line
from ironcurtain_proxy.review.notices import post_once

MAX_FILE: Final = 16 << 20
"""The most bytes of the file."""

_DISPLAY_MILLISECONDS: Final = "5000"
_JSON: Final = {"Content-Type": "application/json"}
_TMUX_VARIABLES: Final = ("TMUX", "TMUX_TMPDIR")


class NoticeSender:
    """Sends notices. May raise anything; leaves nothing running."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Take the proxy's own environment: commands get the base of it."""
        self._environ = environ

    async def carry(self, channel: NoticeChannel, notice: EngineNotice) -> None:
        """Send one notice."""
        match channel:
            case CommandChannel():
                argv = (*channel.argv, *notice.as_arguments())
                await _run(argv, self._base())
            case WebhookChannel():
                await post_once(channel.url, orjson.dumps(notice.as_json()), _JSON)
            case FileChannel():
                line = orjson.dumps(notice.as_json(), option=orjson.OPT_APPEND_NEWLINE)
                # Abandoned where a disk hangs.
                append = partial(append_line, channel.path, line, MAX_FILE)
                await anyio.to_thread.run_sync(append, abandon_on_cancel=True)
            case TmuxChannel():
                await _run(_tmux(channel, notice), self._base(*_TMUX_VARIABLES))
            case _:
                assert_never(channel)

    def _base(self, *further: str) -> dict[str, str]:
        wanted = BASE.union(further)
        return {
            name: value
            for name, value in self._environ.items()
            if name in wanted or name.startswith("LC_")
        }


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
