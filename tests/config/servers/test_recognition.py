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
        ("uv --directory /x run mcp-server-git", "git"),
        ("uvx --with mcp<2 mcp-server-git", "git"),
        ("uvx --index https://r/simple --prerelease allow mcp-server-git", "git"),
        ("uvx --with mcp-server-time --from mcp-server-git>=1 mcp-server-git", "git"),
        ("uv run --with mcp<2 --with mcp-server-git mcp-server-git", "git"),
        ("uv run --with mcp-server-git python -m mcp_server_git", "git"),
        ("uv run --with mcp-server-git -m mcp_server_git", "git"),
        ("npx --registry https://r/ -y @modelcontextprotocol/server-memory", "memory"),
        (
            "npx -y -p @modelcontextprotocol/server-memory@^2026.1 -p zod mcp-server-memory",
            "memory",
        ),
        ("npm exec -y -- @modelcontextprotocol/server-memory@2026.1.1", "memory"),
        ("pnpx @modelcontextprotocol/server-memory", "memory"),
        ("yarn dlx @modelcontextprotocol/server-memory", "memory"),
        ("bun /x/node_modules/@modelcontextprotocol/server-memory/dist/index.js", "memory"),
        ("pipx run --spec mcp-server-time==2026.1 mcp-server-time", "time"),
        ("docker run -i --rm mcp/time", "time"),
        ("docker run -i --rm -e A=b docker.io/mcp/fetch:latest --ignore-robots-txt", "fetch"),
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
        # A path in a container is another file than the one of that name here.
        ("docker run -i mcp/git", None),
        ("docker run -i --name mcp/time evil/server", None),
        ("docker run -i evil/mcp/time", None),
        ("uvx --with mcp-server-git other", None),
        ("uvx --from git+https://h/evil/mcp-server-git mcp-server-git", None),
        ("uv run --with mcp-server-git /srv/server.py", None),
        ("uv run --with mcp-server-git python /srv/server.py", None),
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
