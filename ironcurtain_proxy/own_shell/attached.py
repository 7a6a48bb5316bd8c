"""A command of a client's own shell: it runs on the client's descriptors, in a view like others.

    kernel ── call ──▶ fetch: text, variables, descriptors ──▶ run ──▶ tell the kernel how it ended

The text and the variables come from the client, and only shells inside the sandbox read them:
nothing of them stands in the environment or the arguments of a program outside.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

import anyio
import msgspec
from anyio.abc import UNIXSocketStream
from msgspec import Struct

from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_shell.running import Runner, ShellCommand
from ironcurtain_proxy.own_shell.tools import WrongArgumentError
from ironcurtain_proxy.private_files import closed_after
from ironcurtain_proxy.sandbox.private_tmp import PrivateTmp
from ironcurtain_proxy.sandbox.shell_setup import (
    ClientCommand,
    ClientCommandEnd,
    ShellSetup,
    call_digest,
)

_SECONDS: Final = 30.0
_PAUSE: Final = 0.01
_HEAD: Final = 4
_MOST_PATH: Final = 4096
_GIVEN: Final = "IRONCURTAIN_V"
_LOADER: Final = (
    f"for __name in ${{!{_GIVEN}@}}; do "
    'export "${!__name}" 2>/dev/null; unset "$__name"; done; exec "$1" -c "$2"'
)
"""Takes the client's variables out of ours, and becomes the client's shell. No program outside the
restrictions heeds them under our names, and no other command can change them on the way."""
_KEPT: Final = frozenset(
    {
        *("TMPDIR", "GIT_SSH_COMMAND", "npm_config_cache", "npm_config_update_notifier"),
        *("NO_UPDATE_NOTIFIER", "NODE_OPTIONS", "NODE_USE_ENV_PROXY", "PWD", "OLDPWD", "_"),
    }
)
"""The variables that are the sandbox's to set."""


class _Fetched(Struct, eq=False):
    """A command of a client, and the wire to the kernel."""

    stream: UNIXSocketStream
    given: ClientCommand
    descriptors: list[int]
    private: PrivateTmp
    directory_file: str
    """Its name in the private directory."""

    def command(self, directory: str) -> ShellCommand:
        """Return the command, to run in a directory."""
        text, place = self.given.text, self.private.places[0]
        text = text.replace(self.given.directory_file, f"{place}/{self.directory_file}".encode())
        first, second, third = self.descriptors
        given = [os.fsdecode(one) for one in self.given.variables if not _is_kept(one)]
        return ShellCommand(
            words=("/bin/bash", "-c", _LOADER, "bash", self.given.shell, os.fsdecode(text)),
            directory=directory,
            stdio=(first, second, third),
            variables={f"{_GIVEN}{number}": one for number, one in enumerate(given)},
        )

    async def follow(self, command: ShellCommand) -> None:
        """Pass on the signals that the client sends, and end the command if the client is gone."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                for number in await self.stream.receive():
                    _deliver(command, number)
        while command.process is None and command.ended is None:  # noqa: ASYNC110  a moment
            await anyio.sleep(_PAUSE)
        command.kill("its client ended it")

    async def tell(self, status: int | None) -> None:
        """Tell the kernel how the command ended."""
        told = ClientCommandEnd(
            status=-1 if status is None else status, directory=self._last_directory()
        )
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.stream.send(msgspec.msgpack.encode(told))

    def _last_directory(self) -> bytes:
        """Return what the shell wrote, which is as little to be trusted as its output."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError):
            opened = os.open(f"{self.private.directory}/{self.directory_file}", flags)
            with os.fdopen(opened, "rb") as file:
                return file.read(_MOST_PATH)
        return b""

    def close(self) -> None:
        """Let go of the client's descriptors: the end of its output is when nobody has them."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def remove(self) -> None:
        """Remove what it had on the disk."""
        self.close()
        with suppress(OSError):
            Path(self.private.directory, self.directory_file).unlink()


async def run_attached(
    runner: Runner, setup: ShellSetup, arguments: Mapping[str, Json]
) -> ShellCommand:
    """Run the command of a call for the client that waits for it.

    Raises:
        WrongArgumentError: no client waits for it, or it cannot have its variables.
    """
    directory = _directory(arguments)
    try:
        async with await _connected(Path(setup.views.wire)) as stream:
            with anyio.fail_after(_SECONDS):
                fetched = await _fetch(stream, setup, call_digest(arguments))
            try:
                return await _run(runner, fetched, directory)
            finally:
                fetched.remove()
    except (OSError, TimeoutError, anyio.EndOfStream, msgspec.MsgspecError) as error:
        raise WrongArgumentError("no client waits for this command") from error


async def _connected(wire: Path) -> UNIXSocketStream:
    """Return the connection to the kernel. A long path is no address, so its directory is held."""
    with closed_after(os.open(wire.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        return await anyio.connect_unix(f"/proc/self/fd/{directory}/{wire.name}")


def _directory(arguments: Mapping[str, Json]) -> str:
    directory = os.path.realpath(str(arguments.get("cwd", "")))
    if not os.path.isdir(directory):  # noqa: PTH112  a string is wanted
        raise WrongArgumentError(f"there is no directory {directory}")
    return directory


async def _run(runner: Runner, fetched: _Fetched, directory: str) -> ShellCommand:
    command = fetched.command(directory)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fetched.follow, command)
        await runner.run(command)
        tasks.cancel_scope.cancel()
    fetched.close()
    assert command.ended is not None  # noqa: S101  it ran to its end
    await fetched.tell(command.ended.status)
    return command


async def _fetch(stream: UNIXSocketStream, setup: ShellSetup, digest: str) -> _Fetched:
    private = setup.private
    if private is None:
        raise WrongArgumentError("the sandbox has no /tmp of its own")
    await stream.send(f"shell {digest}".encode())
    content, descriptors = await stream.receive_fds(1 << 16, 3)
    fetched = _Fetched(stream, _NOTHING, list(descriptors), private, token_hex(16))
    try:
        whole = int.from_bytes(content[:_HEAD], "little")
        while len(content) - _HEAD < whole:
            content += await stream.receive()
        fetched.given = msgspec.msgpack.decode(content[_HEAD:], type=ClientCommand)
    except BaseException:
        fetched.close()
        raise
    return fetched


_NOTHING: Final = ClientCommand(shell="", text=b"", directory_file=b"", variables=[])


def _is_kept(variable: bytes) -> bool:
    name = os.fsdecode(variable.partition(b"=")[0])
    return name in _KEPT or name.upper().endswith("_PROXY") or name.startswith("IRONCURTAIN_")


def _deliver(command: ShellCommand, number: int) -> None:
    """Send a signal to what runs inside the sandbox, whose own process would end all at once."""
    if command.process is None or command.process.poll() is not None:
        return
    outside = _namespace(os.getpid())
    for pid in _below(command.process.pid):
        with suppress(OSError, ValueError):
            is_wall = Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"
            if not is_wall and _namespace(pid) != outside:
                os.kill(pid, signal.Signals(number))


def _namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115  a string is wanted


def _below(pid: int) -> Iterator[int]:
    """Yield all processes below one."""
    pending = [pid]
    while pending:
        with suppress(OSError):
            for task in Path(f"/proc/{pending.pop()}/task").iterdir():
                found = [int(one) for one in (task / "children").read_bytes().split()]
                yield from found
                pending += found
