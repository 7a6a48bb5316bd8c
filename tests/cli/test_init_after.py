"""The commands that `init` prints last, to be copied into a shell."""

from ironcurtain_proxy.cli.init_ending import joined


def test_one_command_installs_several_packages_where_its_program_takes_several() -> None:
    said = [
        "npm install -g @anthropic-ai/sandbox-runtime@0.0.83",
        "first install srt",
        "npm install -g @modelcontextprotocol/server-memory",
        "npm install -g @modelcontextprotocol/server-memory",
        "uv tool install mcp-server-git",
        "uv tool install excel-mcp-server",
        "pipx install mcp-server-time",
        "uv tool install x (and make the program that it installs the server's command)",
    ]
    assert joined(said) == [
        "npm install -g @anthropic-ai/sandbox-runtime@0.0.83 @modelcontextprotocol/server-memory",
        "uv tool install mcp-server-git",
        "uv tool install excel-mcp-server",
        "pipx install mcp-server-time",
        "uv tool install x  # and make the program that it installs the server's command",
    ]


def test_a_quoted_word_stays_quoted_in_a_command_of_its_own() -> None:
    odd = "npm install -g 'a; touch b'"
    assert joined(["npm install -g x", odd]) == ["npm install -g x", odd]
