"""Which command starts which well-known server."""

import pytest

from ironcurtain_proxy.config.servers.recognition import recognised

NODE = "/opt/app/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npx -y @modelcontextprotocol/server-filesystem /data", "filesystem"),
        ("npx @modelcontextprotocol/server-filesystem@2026.8.31 /data", "filesystem"),
        ("npx -y -- @modelcontextprotocol/server-memory@latest", "memory"),
        ("npx --package=@modelcontextprotocol/server-memory mcp-server-memory", "memory"),
        ("npx -p @modelcontextprotocol/server-everything run-it", "everything"),
        ("/usr/local/bin/npx -y @modelcontextprotocol/server-everything stdio", "everything"),
        ("npm exec -- @modelcontextprotocol/server-filesystem /data", "filesystem"),
        ("pnpm dlx @modelcontextprotocol/server-memory", "memory"),
        ("bunx @modelcontextprotocol/server-memory", "memory"),
        ("bun x @modelcontextprotocol/server-memory", "memory"),
        (f"node {NODE} /data", "filesystem"),
        (f"node --require ./x.js --enable-source-maps {NODE}", "filesystem"),
        ("/app/node_modules/.bin/mcp-server-filesystem /data", "filesystem"),
        ("mcp-server-git --repository /r", "git"),
        ("/venv/bin/mcp-server-fetch", "fetch"),
        ("uvx mcp-server-git", "git"),
        ("uvx mcp-server-git@2026.10.19 --repository /r", "git"),
        ("uvx --from mcp-server-time==2026.1 mcp-server-time", "time"),
        ("uvx --python 3.12 mcp-server-fetch[extra]", "fetch"),
        ("uv tool run mcp-server-git", "git"),
        ("uv run --directory /x mcp-server-git", "git"),
        ("uv run python -m mcp_server_git", "git"),
        ("pipx run mcp-server-time", "time"),
        ("python -m mcp_server_git --repository /r", "git"),
        ("/usr/bin/python3.11 -X dev -m mcp_server_time", "time"),
        # Not one of them, or not for certain: the operator's own name stands.
        ("npx -y some-server /src/mcp-server-git", None),
        ("npx -y @evil/server-filesystem", None),
        ("npx -y @modelcontextprotocol/server-filesystem-evil", None),
        ("npx -y evil-mcp-server-filesystem", None),
        ("node /srv/index.js @modelcontextprotocol/server-filesystem", None),
        ("python -m other mcp_server_git", None),
        ("python server.py -m mcp_server_git", None),
        ("docker run -i mcp/git", None),
        ("bash -c mcp-server-git", None),
        ("my-server mcp-server-git", None),
        ("npx", None),
        ("mcp-server-postgres", None),
    ],
)
def test_a_server_is_recognised_by_the_program_that_runs(
    command: str, expected: str | None
) -> None:
    program, *args = command.split()
    assert recognised(program, args) == expected
