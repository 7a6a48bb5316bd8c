"""Recorded calls through four doors: what is decided, by which rule, asked, and remembered.

    .venv/bin/python -m tests.hooks.agreement FILE...      every call of recorded sessions

The doors are the proxy for servers, over its pipes; the kernel in a program; a client's hook; and
`rehearse`. Nobody approves anything, and nothing is contained, so that each escalation is a
question. Lines of a file are `{"session", "cwd", "branch", "tool", "input"}`.
"""

import gzip
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias, cast
from unittest.mock import patch

import anyio
import orjson
from anyio.abc import TaskGroup
from msgspec.structs import fields, replace

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.settings import Settings, load_settings
from ironcurtain_proxy.facts.client_tools import SHELL_TOOL, TOOLS, ServerCall, as_server_call
from ironcurtain_proxy.hooks import kernel
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.door import Door
from ironcurtain_proxy.mediation.question import question_about
from ironcurtain_proxy.model.decision import Allow, Escalate
from ironcurtain_proxy.model.escalation import Declined, Escalation, Ruling
from ironcurtain_proxy.model.grant import Pattern
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.server import SHELL
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.rehearsal import memory
from ironcurtain_proxy.rehearsal.playing import Scenes
from ironcurtain_proxy.rehearsal.transcripts import as_tool_call
from ironcurtain_proxy.review.terminal import Channel, LateChannel
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.trusted_process import TrustedProcess
from ironcurtain_proxy.wiring import serving
from ironcurtain_proxy.wiring.proxy import assemble
from ironcurtain_proxy.wiring.reviewers import AddedChannels
from tests.hooks.hooked import SERVED, HookedHome

Row: TypeAlias = Mapping[str, Json]
Found: TypeAlias = tuple[object, ...]
"""Decision, rule, and what is asked of the person and offered to remember."""
DOORS: Final = ("servers", "program", "hook", "rehearsal")
_SERVER: Final = """
import contextlib, json, sys
tools = json.loads(sys.argv[1])
for line in sys.stdin:
    one = json.loads(line)
    result = {"content": [{"type": "text", "text": "ok"}]}
    if one.get("method") == "initialize":
        version = one["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": "x", "version": "1"}}
    elif one.get("method") == "tools/list":
        result = {"tools": tools}
    if "content" in one.get("params", {}).get("arguments", {}):
        with contextlib.suppress(OSError), open(one["params"]["arguments"]["path"], "w") as file:
            file.write(one["params"]["arguments"]["content"])
    if "id" in one and "method" in one:
        print(json.dumps({"jsonrpc": "2.0", "id": one["id"], "result": result}), flush=True)
"""


def stand_ins(state: Path) -> str:
    """Return the configuration of servers with the tools that clients' own are judged as."""
    script = state / "server.py"
    script.write_text(_SERVER)
    listed = {server: [_definition(server, name) for name in TOOLS[server]] for server in TOOLS}
    servers: Json = {
        server: {
            "command": sys.executable,
            "args": [str(script), orjson.dumps(tools).decode()],
            "sandbox": False,
        }
        for server, tools in listed.items()
    }
    return orjson.dumps(servers).decode()


class Asked:
    """A reviewer that declines, and keeps the question."""

    def __init__(self) -> None:
        self.last: Escalation | None = None
        self.channel = Channel(self, lambda: True)

    async def ask(self, escalation: Escalation) -> Ruling:
        """Keep the question."""
        self.last = escalation
        return Declined()


def seen(asked: Escalation) -> Found:
    """Return what a person would be asked, and what an answer could remember.

    That of a command are its families. Of other calls it is what is offered, less the words and
    the tool's definition, which a rehearsal does not have.
    """
    if asked.command is not None:
        offered: object = families_of(asked.command, asked.place)
    else:
        offered = [_bare(one) for one in asked.candidates]
    return ("escalate", asked.ground.rule, asked.reasons, asked.told, offered)


def _bare(offered: Pattern) -> object:
    words = {"description", "definition", "digest"}
    named = [one.name for one in fields(offered) if one.name not in words]
    given = {name: getattr(offered, name) for name in named}
    return [type(offered), {**given, "parts": [_bare(one) for one in given.get("parts", ())]}]


class _Program(TrustedProcess):
    """The kernel in a program, whose questions are kept."""

    def __init__(self, settings: Settings, asked: Asked) -> None:
        super().__init__(settings)
        self._asked = asked

    def _callback(self) -> Channel:
        return self._asked.channel


class Doors:
    """The four doors of one workspace."""

    def __init__(self, home: HookedHome, workspace: Path, scenes: Scenes) -> None:
        """Hold where the calls are made."""
        self._home, self._workspace = home, workspace
        self._asked = {door: Asked() for door in DOORS[:3]}
        self._logs = {door: home.state / f"{door}.jsonl" for door in DOORS[:3]}
        self._read = dict.fromkeys(DOORS[:3], 0)
        self._scene = scenes.scene(str(home.home), str(workspace))
        self._number = 0

    def _settings(self, door: str, settings: Settings) -> Settings:
        audit = replace(settings.audit, path=self._logs[door])
        return replace(settings, audit=audit, pins="off")

    def _of_servers(self, door: str) -> Settings:
        told = {**self._environment, "MCP_SERVERS_CONFIG": stand_ins(self._home.state)}
        return self._settings(door, load_settings(told))

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self._home.home),
            "PATH": os.environ["PATH"],
            "ALLOWED_DIRECTORY": str(self._workspace),
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open all doors."""
        async with AsyncExitStack() as exits:
            tasks = await exits.enter_async_context(anyio.create_task_group())
            exits.callback(tasks.cancel_scope.cancel)
            self._program = _Program(self._of_servers("program"), self._asked["program"])
            await exits.enter_async_context(self._program)
            await self._open_servers(tasks, exits)
            await self._open_hook(tasks, exits)
            yield

    async def _open_servers(self, tasks: TaskGroup, exits: AsyncExitStack) -> None:
        settings = self._of_servers("servers")
        proxy = assemble(
            settings,
            load_policy(settings),
            settings.inherited,
            sandbox=None,
            ways=AddedChannels(only=self._asked["servers"].channel),
            in_process=True,
        )
        exits.callback(proxy.audit.close)
        proxy.servers.start_processes()
        (read, agent_out), (agent_in, write) = os.pipe(), os.pipe()
        tasks.start_soon(serving._live, proxy, LateChannel(), read, write, None, None)
        self._agent = os.fdopen(agent_in, "rb", 0), os.fdopen(agent_out, "wb", 0)
        for file in self._agent:
            exits.callback(file.close)
        greeting: Json = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        await self._request("initialize", greeting)
        await self._request("tools/list", {})

    async def _request(self, method: str, params: Json) -> None:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        read, write = self._agent
        await anyio.to_thread.run_sync(write.write, orjson.dumps(request) + b"\n")
        while True:
            line = await anyio.to_thread.run_sync(_line, read)
            if orjson.loads(line).get("id") == self._number:
                return

    async def _open_hook(self, tasks: TaskGroup, exits: AsyncExitStack) -> None:
        dialect = DIALECTS["claude"]
        settings = kernel.client_settings(self._environment, None, dialect.patience)
        only = partial(AddedChannels, only=self._asked["hook"].channel)
        with (
            patch.object(kernel, "AddedChannels", lambda **_given: only()),
            # Without its own places, which are those of a hook alone.
            patch.object(kernel, "_with_own_places", lambda loaded, *_given: loaded.policy),
        ):
            wire = self._home.state / "none"
            settings = self._settings("hook", settings)
            proxy = kernel.client_proxy(settings, dialect, wire, asks=False)
        exits.callback(proxy.audit.close)
        await tasks.start(proxy.run)
        await proxy.catalogue.listing()
        self._door = Door(
            dialect=dialect,
            path=os.environ["PATH"],
            entry=proxy.calls,
            tasks=tasks,
            asks=False,
            on_prompt=lambda _text: None,
            on_end=lambda: None,
        )

    async def found(self, tool: str, given: Json, directory: str) -> dict[str, Found] | None:
        """Return what each door makes of a call; None: it is no call of a tool that is known."""
        assert isinstance(given, dict)
        call = as_server_call(tool, given, directory)
        if not isinstance(call, ServerCall):
            return None
        _make_searched(call, self._home.home.parent)
        await self._program.call_tool(call.server, call.tool, call.arguments)
        name = f"{call.server}__{call.tool}"
        await self._request("tools/call", {"name": name, "arguments": {**call.arguments}})
        event: dict[str, Json] = {"tool_name": tool, "tool_input": given, "cwd": directory}
        event["tool_use_id"] = f"t{self._number}"
        await self._door.answer("PreToolUse", orjson.dumps(event), lambda: True)
        after = orjson.dumps({**event, "tool_response": {}})
        await self._door.answer("PostToolUse", after, lambda: True)
        found = {door: self._kept(door) for door in DOORS[:3]}
        return {**found, "rehearsal": await self._rehearsed(call)}

    def _kept(self, door: str) -> Found:
        with self._logs[door].open("rb") as log:
            log.seek(self._read[door])
            records = [orjson.loads(line) for line in log]
            self._read[door] = log.tell()
        (ended,) = [one for one in records if "result" in one]
        decision, question = ended["policyDecision"], self._asked[door].last
        self._asked[door].last = None
        if question is not None:
            return seen(question)
        return (decision["status"], decision["rule"])

    async def _rehearsed(self, call: ServerCall) -> Found:
        # Without what a rehearsal assumes of a machine on which it is not.
        gathered = await self._scene.resolver.gather(as_tool_call(call))
        judged = self._scene.judged("coding", call, gathered)
        decision = judged.decision
        if not isinstance(decision, Escalate) or not isinstance(gathered, Facts):
            return ("allow" if isinstance(decision, Allow) else "deny", decision.ground.rule)
        step = memory.EscalatedStep(
            session="s",
            call=call,
            facts=gathered,
            judged=judged,
            policy=self._scene.judges["coding"].policy,
            home=self._scene.home,
            workspace=self._scene.workspace,
            alike=self._scene.alike(call),
        )
        posed = memory.Memory()._posed(step, step.escalated())
        return seen(question_about(posed, memory._frame(step)))


def _line(file: object) -> bytes:
    return cast("bytes", file.readline())  # type: ignore[attr-defined]


def _definition(server: str, name: str) -> Json:
    if server == SHELL:
        return {**SHELL_TOOL}
    return {"name": name, "inputSchema": {**SERVED[server][name].schema}}


def differences(rows: Iterable[Row], root: Path) -> tuple[int, list[tuple[Row, dict[str, Found]]]]:
    """Return how many calls were made, and those of which not all doors make the same."""
    made, found = 0, list[tuple[Row, dict[str, Found]]]()
    (root / "scenes").mkdir()
    scenes = Scenes(root / "scenes", {"PATH": os.environ["PATH"]})
    scenes.set_up()

    def place(row: Row) -> tuple[str, str]:
        directory = str(row.get("cwd") or "/home/dev0/project")
        return (directory, str(row.get("branch") or "main"))

    for number, ((directory, branch), group) in enumerate(groupby(sorted(rows, key=place), place)):
        at = root / str(number)
        at.mkdir()
        home = HookedHome(at)
        config = orjson.loads((home.state / "config.json").read_bytes())
        home.write("config.json", {**config, "containment": {"undo": False}})
        # What was below the recorded home is below this one; other homes lie elsewhere.
        said = re.match(r"/(?:home|Users)/[\w.-]+(?=/.)", directory)
        moved = [(said[0] if said else directory, str(home.home if said else home.workspace))]
        moved += [(one, f"{at}/elsewhere/") for one in ("/home/", "/Users/", "/private/")]
        workspace = Path(_moved(directory, moved))
        _repository(workspace, branch)
        made += anyio.run(_play, home, workspace, scenes, moved, list(group), found)
    return made, found


async def _play(
    home: HookedHome,
    workspace: Path,
    scenes: Scenes,
    places: list[tuple[str, str]],
    rows: list[Row],
    found: list[tuple[Row, dict[str, Found]]],
) -> int:
    made, doors, done = 0, Doors(home, workspace, scenes), set[str]()
    async with doors.opened():
        for row in rows:
            moved = _moved(orjson.dumps([row["tool"], row["input"]]).decode(), places)
            # The same call again and again would open the circuit.
            if moved in done:
                continue
            done.add(moved)
            tool, given = orjson.loads(moved)
            answers = await doors.found(tool, given, str(workspace))
            if answers is None:
                continue
            made += 1
            if len({repr(one) for one in answers.values()}) > 1:
                found.append((row, answers))
    return made


def _moved(text: str, places: list[tuple[str, str]]) -> str:
    """Return a text with its places moved, each once."""
    new = dict(places)
    return re.sub("|".join(map(re.escape, new)), lambda found: new[found[0]], text)


def _make_searched(call: ServerCall, root: Path) -> None:
    """Make what a search names: that it is a directory decides what may be remembered."""
    place = Path(str(call.arguments.get("path")))
    if call.tool == "search_files" and place.is_relative_to(root) and ".." not in place.parts:
        (place.parent if place.suffix else place).mkdir(parents=True, exist_ok=True)
        if place.suffix:
            place.touch()


def _repository(place: Path, branch: str) -> None:
    place.mkdir(parents=True, exist_ok=True)

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", place, *words], check=True, capture_output=True)

    git("init", "-q", "-b", branch if re.fullmatch(r"[\w./-]+", branch) else "main")
    git("remote", "add", "origin", "https://github.com/example/project.git")


def read(file: Path) -> Iterable[Row]:
    """Yield the recorded calls of a file."""
    with gzip.open(file, "rb") as lines:
        for line in lines:
            row = orjson.loads(line)
            if isinstance(row.get("input"), dict):
                yield row


def main(files: list[str]) -> int:
    """Compare all calls of files; print the differences. Return 1 if there are any."""
    total = 0
    for file in files:
        with tempfile.TemporaryDirectory() as place:
            made, found = differences(read(Path(file)), Path(place))
        for row, answers in found:
            print(orjson.dumps([row["tool"], row["input"]]).decode()[:300])  # noqa: T201
            for door, answer in answers.items():
                print(f"    {door:10}", str(answer)[:1500])  # noqa: T201
        print(f"{file}: {made} calls, {len(found)} differences")  # noqa: T201
        total += len(found)
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
