"""The process of our own shell: an MCP server on standard input and output.

    python -I -m ironcurtain_proxy.own_shell.program [DESCRIPTOR]

DESCRIPTOR holds the setup; without it commands run as this process does. The process ends when its
input does. Commands that still run are killed, and what they changed is discarded.
"""

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from ironcurtain_proxy.jsonrpc.batch import Batch
from ironcurtain_proxy.jsonrpc.codec import Malformed, decode, encode
from ironcurtain_proxy.jsonrpc.pipes import MAX_LINE, LineSink, LineSource, open_wire
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.own_shell.attached import run_attached
from ironcurtain_proxy.own_shell.restrictions import CommandRestrictions
from ironcurtain_proxy.own_shell.running import Runner, ShellCommand
from ironcurtain_proxy.own_shell.tools import (
    TOOLS,
    WrongArgumentError,
    run_arguments,
    text_of,
    whole,
)
from ironcurtain_proxy.sandbox.shell_setup import META, ShellSetup, ViewReport, plain, read_setup
from ironcurtain_proxy.version import VERSION

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
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
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
                    await job.done.wait()
                return self._about_job(number, job)
            case "stop_job":
                number, job = self._job(arguments)
                job.kill("it was stopped")
                await job.done.wait()
                return self._about_job(number, job)
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
        self._jobs[number] = command
        self._tasks.start_soon(self._runner.run, command)
        with anyio.move_on_after(_BEGINNING):
            await command.done.wait()
        return self._about_job(number, command)

    def _job(self, arguments: Mapping[str, Json]) -> tuple[int, ShellCommand]:
        number = arguments.get("job")
        found = self._jobs.get(number) if isinstance(number, int) else None
        if found is None or not isinstance(number, int):
            raise WrongArgumentError(f"there is no job {number}")
        return number, found

    def _about_job(self, number: int, job: ShellCommand) -> Mapping[str, Json]:
        if job.ended is None:
            text = job.output.take()
            return _texts(f"{text}\n[job {number} is running]".lstrip("\n"))
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
