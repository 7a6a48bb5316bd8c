"""The proxy of one session: `ironcurtain-proxy serve` on pipes, in a process of its own.

Knows how it is started and ended; does not know what is said.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from ironcurtain_proxy.jsonrpc.line_writer import LineWriter
from ironcurtain_proxy.jsonrpc.pipes import LineReader, open_wire

# -P: a package of our name in the working directory, which servers write to, is not imported.
PROGRAM: Final = (sys.executable, "-P", "-m", "ironcurtain_proxy", "serve")

_TERM: Final = 10.0
"""Seconds from SIGTERM to SIGKILL, in which the proxy ends its servers."""


class ProxyProcess:
    """A running proxy with its pipes."""

    def __init__(self, process: Process, lines: LineReader, out: LineWriter) -> None:
        self._process = process
        self.lines = lines
        self.out = out

    @classmethod
    async def start(
        cls, command: Sequence[str], environ: Mapping[str, str], max_line: int
    ) -> "ProxyProcess":
        """Start a proxy without a terminal: nobody could tell which session asks there.

        Raises:
            OSError: it cannot be started.
        """
        their_in, our_out = os.pipe()
        try:
            our_in, their_out = os.pipe()
        except OSError:
            os.close(their_in)
            os.close(our_out)
            raise
        try:
            process = await anyio.open_process(
                list(command),
                stdin=their_in,
                stdout=their_out,
                stderr=None,
                env=dict(environ),
                start_new_session=True,
            )
        except BaseException:
            os.close(our_in)
            os.close(our_out)
            raise
        finally:
            os.close(their_in)
            os.close(their_out)
        lines, out = await open_wire(our_in, our_out, max_line=max_line)
        return cls(process, lines, out)

    def close_input(self) -> None:
        """Close the input of the proxy: it finishes open calls, and ends."""
        self.out.abort()

    async def end(self, patience: float) -> None:
        """Wait for the end of the process; after a time request it, after another enforce it."""
        self.close_input()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience):
                await self._process.wait()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.terminate()
                with anyio.move_on_after(_TERM):
                    await self._process.wait()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            self.lines.close()


def command_of(config: Path | None) -> list[str]:
    """The command of a session.

    Args:
        config: the configuration file that was named, if one was.
    """
    return [*PROGRAM, *([] if config is None else ["--config", str(config.absolute())])]
