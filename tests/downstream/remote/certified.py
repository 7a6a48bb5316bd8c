"""The certified authorization server of npm, `oidc-provider`, and a site that wants its tokens."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
from starlette.responses import JSONResponse, Response

from tests.downstream.remote.authorization import METADATA
from tests.downstream.remote.site import Heard, Site
from tests.e2e.real_servers import MODULES, NODE_22, missing
from tests.fakes import NO_TLS
from tests.program import PATIENCE, ROOT

SCRIPT = ROOT / "tests/downstream/remote/authorization_server.mjs"


@dataclass
class Certified:
    """A running authorization server."""

    port: int

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def scopes_of(self, token: str) -> set[str] | None:
        """What a token is good for; None: nothing."""
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, verify=NO_TLS) as client:
            found = (await client.get(f"{self.issuer}/check/{token or 'none'}")).json()
        return None if found is None else set(found["scope"].split())

    def site(self) -> Site:
        """A site where calls of `write` need more than those of `read`."""

        async def handler(heard: Heard) -> Response | None:
            here = f"http://{heard.headers['host']}"
            if heard.path.startswith(METADATA):
                servers = [self.issuer]
                return JSONResponse({"resource": f"{here}/mcp", "authorization_servers": servers})
            scopes = await self.scopes_of(
                heard.headers.get("authorization", "").removeprefix("Bearer ")
            )
            where = f'resource_metadata="{here}{METADATA}/mcp"'
            if scopes is None:
                said = f'Bearer scope="notes:read", {where}'
                return Response(status_code=401, headers={"WWW-Authenticate": said})
            params = heard.body.get("params")
            tool = params.get("name") if isinstance(params, dict) else None
            if tool == "write" and "notes:write" not in scopes:
                said = f'Bearer error="insufficient_scope", scope="notes:write", {where}'
                return JSONResponse({}, 403, headers={"WWW-Authenticate": said})
            return None

        return Site(handler=handler, tools=["read", "write"])


@contextmanager
def a_certified_authority() -> Iterator[Certified]:
    """A running authorization server."""
    node = str(NODE_22) if NODE_22.exists() else shutil.which("node")
    if node is None or not (MODULES / "oidc-provider").exists():
        missing("oidc-provider")
    with subprocess.Popen(
        [str(node), str(SCRIPT), str(ROOT / "package.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield Certified(int(process.stdout.readline()))
        finally:
            process.kill()
