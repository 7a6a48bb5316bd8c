"""fastmcp's own tests of clients and proxies with the proxy between client and server.

    .venv/bin/python scripts/eras/fastmcp_suite.py [PYTEST ARGUMENT …]

Its in-memory connections go through the proxy: the server listens in the test's process, and the
client starts a proxy, which is given a policy that allows everything. The tests run in an
environment of their own, which is made at the first run. `meant.toml` names those that
fail, and why; the exit status is 1 if others do.
"""

import asyncio  # noqa: TID251  the suite's own tests use it, too
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VERSION = "4.2.3"
HOME = Path.home() / ".cache/ironcurtain-conformance" / f"fastmcp-{VERSION}"
LIBRARIES = (
    *("pytest", "pytest-asyncio", "pytest-env", "pytest-timeout", "pytest-flakefinder"),
    *("pytest-retry", "inline-snapshot", "dirty-equals", "opentelemetry-sdk", "fastapi", "psutil"),
    "pydocket",
)
_PROXIES = "tests/server/providers/proxy"
TESTS = (
    *[
        f"{_PROXIES}/test_{name}.py"
        for name in (
            *("proxy_client", "proxy_server", "non_object_outputs", "stateful_proxy_client"),
            *("proxy_request_meta", "server_metadata"),
        )
    ],
    *[f"tests/client/client/test_{name}.py" for name in ("client", "initialize", "error_handling")],
    *[
        f"tests/client/test_{name}.py"
        for name in (
            *("elicitation", "elicitation_enums", "logs", "notifications", "progress", "roots"),
            "sampling",
        )
    ],
    "tests/server/mount/test_proxy.py",
    *[f"tests/server/test_{name}.py" for name in ("completions", "pagination", "icons")],
)


def main() -> int:
    """Make the environment, and run this file in it with the way to start a proxy."""
    sys.path.insert(0, str(ROOT))
    from tests import program  # noqa: PLC0415  the suite's own package has that name, too

    python = HOME / "venv/bin/python"
    if not (HOME / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        pip = [python, "-m", "pip", "-q"]
        subprocess.run([*pip, "install", f"fastmcp=={VERSION}", *LIBRARIES], check=True)
        source = ["download", "--no-deps", "--no-binary", ":all:", "-d", HOME]
        subprocess.run([*pip, *source, f"fastmcp=={VERSION}"], check=True)
        with tarfile.open(HOME / f"fastmcp-{VERSION}.tar.gz") as packed:
            packed.extractall(HOME, filter="data")
        (HOME / "done").touch()
    command = program.starting_with("ironcurtain_proxy.cli")
    inside = [python, __file__, "--inside", *sys.argv[1:]]
    environ = {**os.environ, "PROXY_COMMAND": "\n".join(command)}
    return subprocess.run(inside, env=environ, check=False).returncode


sys.path[:0] = [str(HERE), str(HERE.parent)]


async def proxied(
    server: object, streams: asyncio.Future[tuple[object, object]], over: asyncio.Event
) -> None:
    """Give the streams of a proxy before a server of this process, until it is over."""
    from conformance import approve  # noqa: PLC0415  of the other environment, as all that follows
    from mcp import StdioServerParameters, stdio_client  # noqa: PLC0415
    from suites import listening, variables  # noqa: PLC0415

    python, *args = os.environ["PROXY_COMMAND"].split("\n")
    args += ["allowing"]
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            async with listening(server) as url:
                environ = variables(Path(directory), url)
                threading.Thread(target=approve, args=[Path(directory)], daemon=True).start()
                command = StdioServerParameters(command=python, args=args, env=environ, cwd=HERE)
                async with stdio_client(command) as ends:
                    streams.set_result(ends)
                    await over.wait()
    except BaseException as error:
        if streams.done():
            raise
        streams.set_exception(error)


def through_the_proxy() -> Callable[..., AbstractAsyncContextManager[object]]:
    """Return what takes the place of a connection in memory."""
    from fastmcp.client.transports.base import TransportOptions  # noqa: PLC0415
    from suites import without_names  # noqa: PLC0415

    @asynccontextmanager
    async def connect(
        self: object, *, transport_options: object = None, **options: object
    ) -> AsyncIterator[object]:
        session = (transport_options or TransportOptions()).session_class
        without_names(options)
        streams: asyncio.Future[tuple[object, object]] = asyncio.Future()
        over = asyncio.Event()
        # In a task of its own: a test that cancels its client would cancel the end of the process,
        # too, and the SDK then waits for ever for the last of its output.
        task = asyncio.create_task(proxied(self.server, streams, over))
        try:
            reader, writer = await streams
            async with session(reader, writer, **options) as connected:
                yield connected
        finally:
            over.set()
            await asyncio.shield(task)

    return connect


def run_inside() -> int:
    """Run the tests. 1: one fails that is not meant to."""
    import pytest  # noqa: PLC0415
    from fastmcp.client.transports.memory import FastMCPTransport  # noqa: PLC0415
    from suites import Results  # noqa: PLC0415

    FastMCPTransport.connect_session = through_the_proxy()
    suite = HOME / f"fastmcp-{VERSION}"
    os.chdir(suite)
    sys.path.insert(0, str(suite))
    tests = Results()
    plain = ["-q", "-p", "no:cacheprovider", "--color=no", "--timeout=30", "-W", "ignore"]
    named = [word for word in sys.argv[2:] if word.startswith("tests")]
    pytest.main([*plain, "--tb=line", *sys.argv[2:], *([] if named else TESTS)], plugins=[tests])
    return tests.tell("fastmcp", ("tests/",))


if __name__ == "__main__":
    sys.exit(run_inside() if sys.argv[1:2] == ["--inside"] else main())
