#!/usr/bin/env python3
"""The main job on real input: the npm filesystem server behind the proxy, asked by a small client.

Works in a temporary directory with a home of its own, which is gone afterwards. Needs nothing but
the proxy, Node.js and that server.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import termios
import textwrap
import time
import tty
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import orjson

ROOT: Final = Path(__file__).resolve().parents[1]
PROXY: Final = Path(sys.executable).with_name("ironcurtain-proxy")
PACKAGE: Final = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
SERVERS: Final = (ROOT / PACKAGE, ROOT / ".quickstart" / PACKAGE)
PATIENCE: Final = 60.0
"""Seconds until the question must be there."""

Outcome: TypeAlias = Literal["ALLOWED", "DENIED", "REFUSED"]
Key: TypeAlias = Literal["a", "r", "d"]
Message: TypeAlias = dict[str, object]

COLOURS: Final[Mapping[str, str]] = {
    "title": "1",
    "ALLOWED": "32;1",
    "DENIED": "31;1",
    "REFUSED": "33;1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing the client asks for, and what must become of it."""

    title: str
    tool: str
    arguments: Mapping[str, str]
    expected: Outcome
    why: str


STEPS: Final = (
    Step(
        title="Reading a file in the workspace",
        tool="read_text_file",
        arguments={"path": "notes.txt"},
        expected="ALLOWED",
        why="The workspace is the agent's own. The server got the call and answered it.",
    ),
    Step(
        title="Reading a private key",
        tool="read_text_file",
        arguments={"path": "~/.ssh/id_ed25519"},
        expected="DENIED",
        why="Keys are protected whatever the policy says. The server never heard of the call.",
    ),
    Step(
        title="Writing outside the workspace",
        tool="write_file",
        arguments={"path": "~/lists/todo.txt", "content": "Buy milk."},
        expected="REFUSED",
        why="The policy wants a person to agree. Nobody reviews yet, so the answer is no.",
    ),
)
AGAIN: Final = {"path": "~/lists/more.txt", "content": "Buy bread."}


def say(line: str = "") -> None:
    """Print a line at once, so that it stands before what a subprocess prints."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tell(what: str, words: str) -> None:
    """Print a labelled paragraph, wrapped to the width of the terminal."""
    label = f"   {what:18}"
    width = min(110, shutil.get_terminal_size().columns)
    say(
        textwrap.fill(
            words,
            width,
            initial_indent=label,
            subsequent_indent=" " * len(label),
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def coloured(text: str, kind: str) -> str:
    """The text in its colour, on a terminal that wants colours."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{COLOURS[kind]}m{text}\x1b[0m"


class Client:
    """An MCP client: one request at a time, a line for each message."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [PROXY], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._number = 0

    def __enter__(self) -> Self:
        info = {"name": "quickstart", "version": "1"}
        start = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self.answer(self.send("initialize", start))
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def send(self, method: str, params: Mapping[str, object]) -> int:
        """Send a request. Returns its number."""
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def call(self, tool: str, arguments: Mapping[str, str]) -> Message:
        """Call a tool."""
        return self.answer(self.start_call(tool, arguments))

    def start_call(self, tool: str, arguments: Mapping[str, str]) -> int:
        """Call a tool, and do not wait for the answer."""
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def answer(self, number: int) -> Message:
        """The result of a request."""
        for line in self._process.stdout or ():
            message = orjson.loads(line)
            if message.get("id") == number and "method" not in message:
                result: Message = message.get("result", {})
                return result
        raise SystemExit("quickstart: the proxy ended")

    def _write(self, message: Message) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(orjson.dumps(message) + b"\n")
            self._process.stdin.flush()


def furnish(root: Path) -> dict[str, str]:
    """Make a home with a workspace and a key. Returns the environment for the proxy."""
    home = root / "home"
    workspace = home / "project"
    for place in (home / ".ssh", home / "lists", workspace):
        place.mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("not a real key\n")
    (workspace / "notes.txt").write_text("Remember the milk.\n")
    node = shutil.which("node")
    server = next((place for place in SERVERS if place.exists()), None)
    if node is None or server is None:
        raise SystemExit("quickstart: the filesystem server is not installed: scripts/quickstart")
    # `"sandbox": false`, so that it runs where no sandbox can be had, too. Never so for real work.
    entry = {"command": node, "args": [str(server), str(home)], "sandbox": False}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ALLOWED_DIRECTORY": str(workspace),
        "MCP_SERVERS_CONFIG": orjson.dumps({"filesystem": entry}).decode(),
        "AUDIT_LOG_PATH": str(home / ".ironcurtain/audit.jsonl"),
        "SESSION_LOG_PATH": str(home / ".ironcurtain/session.log"),
    }


def outcome_of(result: Message) -> Outcome:
    """What became of a call, by the first words of its answer."""
    if not result.get("isError"):
        return "ALLOWED"
    return "DENIED" if texts(result)[0].startswith("DENIED") else "REFUSED"


def texts(result: Message) -> list[str]:
    """The texts of an answer."""
    blocks = result.get("content")
    listed = blocks if isinstance(blocks, list) else []
    return [str(block["text"]).strip() for block in listed if block.get("type") == "text"]


def show(result: Message, why: str) -> Outcome:
    """Print what became of a call."""
    outcome = outcome_of(result)
    tell("the outcome", f"{coloured(outcome, outcome)}: {why}")
    for place, words in enumerate(texts(result)):
        tell("" if place else "the client hears", words)
    return outcome


def asks(tool: str, arguments: Mapping[str, str]) -> None:
    """Print a call."""
    given = ", ".join(f"{name} = {value}" for name, value in arguments.items())
    tell("the client asks", f"{tool}: {given}")


def three_calls(environment: Mapping[str, str]) -> bool:
    """Carry out the first three acts. Returns whether each ended as it must."""
    as_expected = True
    with Client(environment) as client:
        listed = client.answer(client.send("tools/list", {})).get("tools")
        tools = [str(tool["name"]) for tool in (listed if isinstance(listed, list) else [])]
        say(f"The client sees {len(tools)} tools of the server: {', '.join(tools[:3])}, …")
        for number, step in enumerate(STEPS, start=1):
            say(f"\n{coloured(f'{number}. {step.title}', 'title')}")
            asks(step.tool, step.arguments)
            as_expected &= show(client.call(step.tool, step.arguments), step.why) == step.expected
    return as_expected


def a_question(environment: Mapping[str, str]) -> bool:
    """The fourth act: the last call again, and somebody to ask. Returns whether it went well."""
    say(f"\n{coloured('4. The same call, and you are asked', 'title')}")
    step = STEPS[-1]
    asks(step.tool, step.arguments)
    tell("the call waits", "This is what `ironcurtain-proxy pending` prints:")
    with Client(environment) as client:
        number = client.start_call(step.tool, step.arguments)
        reference = wait_for_question(environment)
        say()
        run(environment, "pending")
        say()
        key = pressed()
        words: dict[Key, tuple[str, ...]] = {
            "a": ("approve", reference),
            "r": ("approve", reference, "--remember"),
            "d": ("deny", reference, "--note", "not now"),
        }
        say(f"   $ ironcurtain-proxy {' '.join(words[key])}")
        well = run(environment, *words[key])
        why = "You said no, and the agent reads it." if key == "d" else "You approved it."
        well &= (show(client.answer(number), why) == "ALLOWED") == (key != "d")
        if key == "r":
            well &= remembered(client, environment)
    return well


def remembered(client: Client, environment: Mapping[str, str]) -> bool:
    """What an approval that is remembered is good for. Returns whether it was."""
    say(f"\n{coloured('   What is remembered', 'title')}   (ironcurtain-proxy grants list)")
    run(environment, "grants", "list")
    asks(STEPS[-1].tool, AGAIN)
    why = "The same directory: it is covered by what you approved, and nobody is asked."
    return show(client.call(STEPS[-1].tool, AGAIN), why) == "ALLOWED"


def wait_for_question(environment: Mapping[str, str]) -> str:
    """The id of the call that waits."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = subprocess.run(
            [PROXY, "pending", "--json"], env=environment, capture_output=True, check=False
        )
        waiting = orjson.loads(found.stdout or b"[]")
        if waiting:
            return str(waiting[0]["id"])[:8]
        time.sleep(0.2)
    raise SystemExit("quickstart: the call did not ask")


def pressed() -> Key:
    """The person's answer; without a terminal, an approval that is remembered."""
    question = "   Your answer?  [a] approve   [r] approve and remember   [d] deny  "
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(f"{question}\n   This is no terminal: quickstart answers r for you.")
        return "r"
    sys.stdout.write(coloured(question, "title"))
    sys.stdout.flush()
    before = termios.tcgetattr(sys.stdin)
    keys: dict[str, Key] = {"a": "a", "r": "r", "d": "d", "y": "a", "n": "d"}
    try:
        tty.setcbreak(sys.stdin)
        while (key := sys.stdin.read(1).lower()) not in keys:
            if not key:
                raise SystemExit("quickstart: the input ended")
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    say(key)
    return keys[key]


def run(environment: Mapping[str, str], *arguments: str) -> bool:
    """Run a command of the proxy. Returns whether it was content."""
    done = subprocess.run([PROXY, *arguments], env=environment, check=False)
    return done.returncode == 0


def main() -> int:
    """Run the whole. Returns the exit code: 0 if everything went as it must."""
    with tempfile.TemporaryDirectory(prefix="try-") as directory:
        environment = furnish(Path(directory).resolve())
        say(coloured("IronCurtain Proxy, in front of the npm filesystem server", "title"))
        say(f"home       {environment['HOME']}   (made for this, gone afterwards)")
        say(f"workspace  {environment['ALLOWED_DIRECTORY']}")
        say("sandbox    none, so that this runs everywhere; your own servers get one\n")
        as_expected = three_calls(environment)
        mailbox = f"{environment['HOME']}/.ironcurtain/questions"
        as_expected &= a_question({**environment, "ESCALATION_DIR": mailbox})
        say(f"\n{coloured('5. What an auditor sees', 'title')}   (ironcurtain-proxy audit tail)")
        as_expected &= run(environment, "audit", "tail")
        say(f"\n{coloured('6. Whether anybody changed it', 'title')}   (… audit verify)")
        as_expected &= run(environment, "audit", "verify")
    if not as_expected:
        say("\nquickstart: something did not end as it must: see above")
        return 1
    say(f"\n{coloured('Next: your own servers', 'title')}, found and put behind the proxy, with")
    say(f"  {command()} init")
    return 0


def command() -> str:
    """The proxy as this person can start it."""
    found = shutil.which("ironcurtain-proxy")
    return "ironcurtain-proxy" if found else os.path.relpath(PROXY)


if __name__ == "__main__":
    sys.exit(main())
