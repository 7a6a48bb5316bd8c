#!/usr/bin/env python3
"""The main job on real input: the npm filesystem server behind the proxy, asked by a real client.

Works in a temporary directory with a home of its own, which is gone afterwards.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio
import orjson
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

ROOT: Final = Path(__file__).resolve().parents[1]
PROXY: Final = Path(sys.executable).with_name("ironcurtain-proxy")
SERVER: Final = ROOT / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"

Outcome: TypeAlias = Literal["ALLOWED", "DENIED", "REFUSED"]

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
        arguments={"path": "~/.bashrc", "content": "echo hello"},
        expected="REFUSED",
        why="The policy wants a person to agree. Nobody can be asked here, so the answer is no.",
    ),
)


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


def furnish(root: Path) -> dict[str, str]:
    """Make a home with a workspace and a key. Returns the environment for the proxy."""
    home = root / "home"
    workspace = home / "project"
    (home / ".ssh").mkdir(parents=True)
    workspace.mkdir()
    (home / ".ssh/id_ed25519").write_text("not a real key\n")
    (workspace / "notes.txt").write_text("Remember the milk.\n")
    node = shutil.which("node")
    if node is None or not SERVER.exists():
        raise SystemExit("quickstart: the filesystem server is not installed: run scripts/setup")
    # `"sandbox": false`, so that it runs where no sandbox can be had, too. Never so for real work.
    server = {"command": node, "args": [str(SERVER), str(workspace)], "sandbox": False}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ALLOWED_DIRECTORY": str(workspace),
        "MCP_SERVERS_CONFIG": orjson.dumps({"filesystem": server}).decode(),
        "AUDIT_LOG_PATH": str(home / ".ironcurtain/audit.jsonl"),
        "SESSION_LOG_PATH": str(home / ".ironcurtain/session.log"),
    }


def outcome_of(result: CallToolResult) -> Outcome:
    """What became of a call, by the first words of its answer."""
    if not result.is_error:
        return "ALLOWED"
    return "DENIED" if texts(result)[0].startswith("DENIED") else "REFUSED"


def texts(result: CallToolResult) -> list[str]:
    """The texts of an answer."""
    return [block.text.strip() for block in result.content if isinstance(block, TextContent)]


async def ask(environment: Mapping[str, str]) -> bool:
    """Carry out all steps. Returns whether each ended as it must."""
    as_expected = True
    parameters = StdioServerParameters(command=str(PROXY), env=dict(environment))
    async with Client(parameters) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        say(f"The client sees {len(tools)} tools of the server: {', '.join(tools[:3])}, …")
        for number, step in enumerate(STEPS, start=1):
            result = await client.call_tool(step.tool, dict(step.arguments))
            if not isinstance(result, CallToolResult):
                raise SystemExit("quickstart: the proxy answered something else than a result")
            outcome = outcome_of(result)
            as_expected &= outcome == step.expected
            given = ", ".join(f"{name} = {value}" for name, value in step.arguments.items())
            say(f"\n{coloured(f'{number}. {step.title}', 'title')}")
            tell("the client asks", f"{step.tool}: {given}")
            tell("the outcome", f"{coloured(outcome, outcome)}: {step.why}")
            for place, words in enumerate(texts(result)):
                tell("" if place else "the client hears", words)
    return as_expected


def audit(environment: Mapping[str, str], *arguments: str) -> bool:
    """Run one of the audit commands. Returns whether it was content."""
    command = [PROXY, "audit", *arguments]
    done = subprocess.run(command, env=environment, check=False)
    return done.returncode == 0


def main() -> int:
    """Run the whole. Returns the exit code: 0 if everything went as it must."""
    with tempfile.TemporaryDirectory(prefix="try-") as directory:
        environment = furnish(Path(directory).resolve())
        say(coloured("IronCurtain Proxy, in front of the npm filesystem server", "title"))
        say(f"home       {environment['HOME']}   (made for this, gone afterwards)")
        say(f"workspace  {environment['ALLOWED_DIRECTORY']}\n")
        as_expected = anyio.run(ask, environment)
        say(f"\n{coloured('4. What an auditor sees', 'title')}   (ironcurtain-proxy audit tail)")
        as_expected &= audit(environment, "tail")
        say(f"\n{coloured('5. Whether anybody changed it', 'title')}   (… audit verify)")
        as_expected &= audit(environment, "verify")
    if not as_expected:
        say("\nquickstart: something did not end as it must: see above")
        return 1
    say(f"\n{coloured('Next: your own servers', 'title')}")
    say("Save the configuration of your MCP client, the file with mcpServers, as")
    say("~/.ironcurtain/mcp-servers.json, and put this in its place:")
    entry = {"command": str(PROXY), "env": {"ALLOWED_DIRECTORY": "/path/to/your/project"}}
    say(orjson.dumps({"mcpServers": {"ironcurtain": entry}}).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
