"""What one proxy does with a login, when it is told to: `python -m … URL DIRECTORY`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from ironcurtain_proxy.downstream.servers import DownstreamServers
from tests.downstream.remote.site import HERE, remote
from tests.downstream.scripted_servers import OPTIONS, running, text_of


@asynccontextmanager
async def using(url: str, path: Path) -> AsyncIterator[DownstreamServers]:
    """The server at the address, with the logins of a directory."""
    spec = remote(url, addresses=HERE)
    async with running(spec, options=replace(OPTIONS, logins=path)) as servers:
        yield servers


async def read_once(url: str, path: Path) -> None:
    """Start, and call."""
    async with using(url, path) as servers:
        assert await text_of(servers, "read") == "done"


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    anyio.run(read_once, sys.argv[1], Path(sys.argv[2]))
