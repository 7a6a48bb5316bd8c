"""The process of our own shell: an MCP server on standard input and output.

    python -I -m ironcurtain_proxy.own_shell.program [DESCRIPTOR]

DESCRIPTOR holds the setup; without it commands run as this process does. The process ends when its
input does. Commands that still run are killed, and what they changed is discarded.

A command of a client's own shell: it runs on the client's descriptors, in a view like others.

    kernel ── call ──▶ fetch: text, variables, descriptors ──▶ run ──▶ tell the kernel how it ended

The text and the variables come from the client, and only shells inside the sandbox read them:
nothing of them stands in the environment or the arguments of a program outside.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup, UNIXSocketStream
from msgspec import Struct

from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, encode
from ironcurtain_proxy.jsonrpc.pipes import MAX_LINE, LineSink, LineSource, open_wire
from ironcurtain_proxy.jsonrpc.sending import Batch
from ironcurtain_proxy.model.values import Json, object_of
from ironcurtain_proxy.own_shell.running import CommandRestrictions, Runner, ShellCommand
from ironcurtain_proxy.own_shell.tools import (
    TOOLS,
    WrongArgumentError,
    run_arguments,
    text_of,
    whole,
)
from ironcurtain_proxy.private_files import closed_after
from ironcurtain_proxy.sandbox.private_tmp import STEADY, PrivateTmp
from ironcurtain_proxy.sandbox.shell_setup import (
    META,
    ClientCommand,
    ClientCommandEnd,
    ShellSetup,
    ViewReport,
    call_digest,
    plain,
    read_setup,
)
from ironcurtain_proxy.version import VERSION

# --- attached


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
        *STEADY,
        *("TMPDIR", "GIT_SSH_COMMAND", "NODE_OPTIONS", "NODE_USE_ENV_PROXY", "PWD", "OLDPWD", "_"),
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
    """Return the connection to the kernel.

    The address of a socket holds 108 bytes, so a short path is used that leads to the same place.
    """
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
            is_bubblewrap = Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"
            if not is_bubblewrap and _namespace(pid) != outside:
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


# --- program


_PROTOCOL: Final = "2025-11-25"
_MOST_JOBS: Final = 16
_BEGINNING: Final = 1.0
"""Seconds that the answer about a new job waits for its first words, or its early end."""
_PROGRESS: Final = 5.0
_HOLDER: Final = ("/bin/sh", "-c", "echo ready; exec sleep infinity")
"""Lives in the restrictions of every command, so that the proxy can look at them from outside."""
_START: Final = 20.0
"""Seconds for the first restrictions to stand; a call before that could not be contained."""
_INVALID_PARAMS, _NO_METHOD, _FAILED = -32602, -32601, -32603


class Shell:
    """The conversation with the proxy."""

    def __init__(self, setup: ShellSetup, sink: LineSink, tasks: TaskGroup) -> None:
        self._setup = setup
        self._restrictions = CommandRestrictions(setup)
        self._runner = Runner(setup, self._restrictions)
        self._sink = sink
        self._tasks = tasks
        self._calls: dict[Json, anyio.CancelScope] = {}
        self._jobs: dict[int, ShellCommand] = {}
        self._started = 0

    async def serve(self, source: LineSource) -> None:
        """Answer until the input ends."""
        if self._restrictions.gate is not None:
            self._tasks.start_soon(self._restrictions.gate.run)
        if self._setup.views.directory:
            self._tasks.start_soon(self._runner.keep_leads)
        if self._setup.views.directory and not self._setup.profile.allowed_domains:
            holder = ShellCommand(
                words=_HOLDER, directory=self._setup.views.workspace, reads_ours=True
            )
            self._tasks.start_soon(self._runner.run, holder)
            with anyio.move_on_after(_START):
                await holder.speaks.wait()
        while (line := await source.receive()) is not None:
            message = decode(line) if isinstance(line, bytes) else Malformed("too long")
            if not isinstance(message, Malformed):
                self._take(message)
        self._tasks.cancel_scope.cancel()

    def close(self) -> None:
        """End every command."""
        self._runner.close()

    def _take(self, message: Mapping[str, Json]) -> None:
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            scope = self._calls.get(_key(params.get("requestId")))
            if scope is not None:
                scope.cancel()
        elif number is not None and isinstance(method, str):
            self._tasks.start_soon(self._answer, number, method, params)

    async def _answer(self, number: Json, method: str, params: Mapping[str, Json]) -> None:
        match method:
            case "initialize":
                result: Mapping[str, Json] = {
                    "protocolVersion": _PROTOCOL,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "ironcurtain-shell", "version": VERSION},
                }
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": [dict(tool) for tool in TOOLS]}
            case "tools/call":
                await self._call(number, params)
                return
            case _:
                self._fail(number, _NO_METHOD, "there is no such method")
                return
        self._send({"jsonrpc": "2.0", "id": number, "result": result})

    async def _call(self, number: Json, params: Mapping[str, Json]) -> None:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = arguments if isinstance(arguments, dict) else {}
        with anyio.CancelScope() as scope:
            self._calls[_key(number)] = scope
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._tell_progress, params)
                    result = await self._result(str(name), arguments)
                    tasks.cancel_scope.cancel()
                self._send({"jsonrpc": "2.0", "id": number, "result": result})
            except* WrongArgumentError as errors:
                self._fail(number, _INVALID_PARAMS, str(errors.exceptions[0]))
            finally:
                del self._calls[_key(number)]

    async def _tell_progress(self, params: Mapping[str, Json]) -> None:
        token = object_of(params.get("_meta")).get("progressToken")
        seconds = 0.0
        while token is not None:
            await anyio.sleep(_PROGRESS)
            seconds += _PROGRESS
            progress: dict[str, Json] = {"progressToken": token, "progress": seconds}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
            self._send(note)

    async def _result(self, name: str, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        match name:
            case "run_command":
                return await self._run(arguments)
            case "job_status":
                number, job = self._job(arguments)
                with anyio.move_on_after(whole(arguments, "waitSeconds", 0, 0)):
                    await job.stopped.wait()
                return await self._about_job(number, job)
            case "stop_job":
                number, job = self._job(arguments)
                job.kill("it was stopped")
                await job.stopped.wait()
                return await self._about_job(number, job)
            case _:
                raise WrongArgumentError("there is no such tool")

    async def _run(self, arguments: Mapping[str, Json]) -> Mapping[str, Json]:
        if self._setup.views.wire:
            return _result_of(await run_attached(self._runner, self._setup, arguments))
        asked = run_arguments(arguments, self._setup.views.workspace)
        command = ShellCommand(words=asked.words, directory=asked.directory, input=asked.input)
        if asked.is_job:
            return await self._begin_job(command)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._limit, command, asked.seconds)
            await self._runner.run(command)
            tasks.cancel_scope.cancel()
        return _result_of(command)

    async def _limit(self, command: ShellCommand, seconds: int) -> None:
        await anyio.sleep(seconds)
        command.kill(f"it took longer than {seconds} s, and was ended")

    async def _begin_job(self, command: ShellCommand) -> Mapping[str, Json]:
        if len(self._jobs) >= _MOST_JOBS:
            raise WrongArgumentError(f"{_MOST_JOBS} jobs are there already: stop one")
        self._started += 1
        number = self._started
        command.fetched = anyio.Event()
        self._jobs[number] = command
        self._tasks.start_soon(self._runner.run, command)
        with anyio.move_on_after(_BEGINNING):
            await command.stopped.wait()
        return await self._about_job(number, command)

    def _job(self, arguments: Mapping[str, Json]) -> tuple[int, ShellCommand]:
        number = arguments.get("job")
        found = self._jobs.get(number) if isinstance(number, int) else None
        if found is None or not isinstance(number, int):
            raise WrongArgumentError(f"there is no job {number}")
        return number, found

    async def _about_job(self, number: int, job: ShellCommand) -> Mapping[str, Json]:
        if not job.stopped.is_set() or job.fetched is None:
            text = job.output.take()
            return _texts(f"{text}\n[job {number} is running]".lstrip("\n"))
        job.fetched.set()
        await job.done.wait()
        if self._jobs.pop(number, None) is None:
            raise WrongArgumentError(f"there is no job {number}")
        return _result_of(job, f"\n[job {number} has ended]")

    def _fail(self, number: Json, code: int, why: str) -> None:
        self._send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": why}})

    def _send(self, message: Mapping[str, object]) -> None:
        self._sink.write(encode(message))


def _result_of(command: ShellCommand, more: str = "") -> Mapping[str, Json]:
    ended = command.ended
    assert ended is not None  # noqa: S101  it ran to its end
    found: dict[str, Json] = dict(_texts(text_of(command.output.take(), ended) + more))
    if ended.status != 0 or ended.why:
        found["isError"] = True
    report = ViewReport(view=ended.view, refused_host=command.host)
    if report != ViewReport():
        found["_meta"] = {META: msgspec.to_builtins(report)}
    return found


def _texts(text: str) -> Mapping[str, Json]:
    return {"content": [{"type": "text", "text": text}]}


def _key(number: Json) -> Json:
    """Return an id as a key: a number is no text."""
    return number if isinstance(number, int | str) else repr(number)


async def run(setup: ShellSetup) -> None:
    """Serve on standard input and output."""
    source, sink = await open_wire(os.dup(0), os.dup(1), max_line=MAX_LINE, batch=Batch())
    async with anyio.create_task_group() as tasks:
        shell = Shell(setup, sink, tasks)
        try:
            await shell.serve(source)
        finally:
            shell.close()


def main(arguments: list[str]) -> int:
    """Run the process until its input ends."""
    try:
        setup = read_setup(int(arguments[0])) if arguments else plain(None)
        anyio.run(partial(run, setup))
    except (OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"the shell cannot run commands: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
