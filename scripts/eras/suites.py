"""What the suites of others need to run with the proxy between their clients and servers."""

import functools
import json  # noqa: TID251  read by other programs
import os
import socket
import sys
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import pytest
import uvicorn

HERE = Path(__file__).parent
FORWARDED = ["example.com/trace", "example.com/vendor"]
"""Keys of `_meta` that the suites send."""


def variables(directory: Path, url: str) -> dict[str, str]:
    """Write a policy that allows everything; return the variables of the proxy."""
    generated = directory / "generated"
    generated.mkdir()
    (directory / "workspace").mkdir()
    why = {"then": "allow", "reason": "A suite runs"}
    rules = [
        {"name": "all", "if": {}, **why},
        {"name": "operations", "if": {"operations": ["resources/read", "prompts/get"]}, **why},
    ]
    (generated / "compiled-policy.json").write_text(json.dumps({"rules": rules}), "utf-8")
    (generated / "tool-annotations.json").write_text('{"servers": {}}', "utf-8")
    entry = {"url": url, "ask": ["form", "url", "sampling", "sampling-tools"]}
    entry["allowedDomains"] = ["example.com", "*.example.com"]
    (directory / "config.json").write_text(json.dumps({"forwardMeta": FORWARDED}), "utf-8")
    return {
        "IRONCURTAIN_CONFIG": str(directory / "config.json"),
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "MCP_SERVERS_CONFIG": json.dumps({"s": entry}),
        "ALLOWED_DIRECTORY": str(directory / "workspace"),
        "GENERATED_DIR": str(generated),
        "ESCALATION_DIR": str(directory / "questions"),
        "PINS": "off",
    }


@asynccontextmanager
async def listening(server: object) -> AsyncIterator[str]:
    """Serve a server over HTTP in this process; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    make = getattr(server, "streamable_http_app", None) or server.http_app
    running = uvicorn.Server(uvicorn.Config(make(), log_level="critical", lifespan="on"))
    running.install_signal_handlers = lambda: None
    running.capture_signals = nullcontext
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(functools.partial(running.serve, [listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            running.should_exit = running.force_exit = True
    listener.close()


def without_names(options: dict[str, object]) -> None:
    """Take the server's name off each question, so that the rest of it is compared, too."""
    show = options.get("elicitation_callback")
    if show is None:
        return

    async def shown(context: object, params: object) -> object:
        message = params.message.removeprefix("[s] ")
        return await show(context, params.model_copy(update={"message": message}))

    options["elicitation_callback"] = shown


def without_names_in_errors(client: object) -> None:
    """Take the server's name off each page in an error, too."""
    call = client.call_tool

    async def called(*given: object, **options: object) -> object:
        try:
            return await call(*given, **options)
        except Exception as error:
            data = getattr(getattr(error, "error", None), "data", None)
            for page in data.get("elicitations", ()) if isinstance(data, dict) else ():
                page["message"] = page["message"].removeprefix("[s] ")
            raise

    client.call_tool = called


class Results:
    """The plugin of pytest that notes how each test ended."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended."""
        if report.failed:
            self.passed.discard(report.nodeid)
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def tell(self, suite: str, groups: Sequence[str]) -> int:
        """Print how many tests of each group pass. Return 1 if one fails that is not meant to."""
        meant = {
            name: one["reason"]
            for one in tomllib.loads((HERE / "meant.toml").read_text("utf-8"))[suite]
            for name in one["tests"]
        }
        is_other = False
        for group in groups:
            failed = {_short(name) for name in self.failed if group in name}
            passed = {_short(name) for name in self.passed if group in name}
            total = len(failed) + len(passed)
            sys.stdout.write(f"\n{group}: {len(passed)} of {total} pass\n")
            for why, count in Counter(meant[one] for one in failed & meant.keys()).items():
                sys.stdout.write(f"  {count} meant: {why}\n")
            sys.stdout.writelines(
                f"  NOT MEANT: {name}\n" for name in sorted(failed - meant.keys())
            )
            sys.stdout.writelines(f"  passes: {name}\n" for name in sorted(passed & meant.keys()))
            is_other = is_other or not failed <= meant.keys()
        return int(is_other)


def _short(name: str) -> str:
    """Return the name of a test as `meant.toml` has it."""
    short = name.removeprefix("tests/").removeprefix("interaction/")
    return short.replace("[in-memory-", "[")
