"""A configuration of each known client, as its documentation shows it, with one server of each kind
that the client has."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    client: str
    file: str
    """Below the home directory."""
    text: str
    taken: frozenset[str]
    left: dict[str, str] = field(default_factory=dict)
    """With a part of the reason."""


SAMPLES: Final = (
    Sample(
        client="claude-desktop",
        file=".config/Claude/claude_desktop_config.json",
        text="""{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/project"]
    },
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789" }
    }
  }
}
""",
        taken=frozenset({"filesystem", "github"}),
    ),
    Sample(
        client="claude-code",
        file=".claude.json",
        text="""{
  "numStartups": 42,
  "mcpServers": {
    "context7": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@upstash/context7-mcp"],
      "env": {"KEY": "${CONTEXT7_KEY:-none}"}
    },
    "sentry": {"type": "http", "url": "https://mcp.sentry.dev/mcp"}
  },
  "projects": {
    "@WORKSPACE@": {
      "allowedTools": [],
      "mcpServers": {
        "db": {"type": "stdio", "command": "uvx", "args": ["mcp-server-sqlite"], "env": {}}
      }
    },
    "/somewhere/else": {"mcpServers": {"other": {"command": "x"}}}
  }
}
""",
        taken=frozenset({"context7", "db", "sentry"}),
    ),
    Sample(
        client="cursor",
        file=".cursor/mcp.json",
        text="""{
    // servers of all projects
    "mcpServers": {
        "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", "${workspaceFolder}"]},
        "secret": {"command": "x", "envFile": ".env"}, // from a file
        "linear": {"url": "https://mcp.linear.app/mcp", "headers": {"A": "${env:TOKEN}"}},
        "asks": {"command": "x", "env": {"TOKEN": "${env:TOKEN}"}},
    },
}
""",
        taken=frozenset({"git", "asks", "linear"}),
        left={"secret": "envFile"},
    ),
    Sample(
        client="vscode",
        file=".config/Code/User/mcp.json",
        text="""{
\t"inputs": [
\t\t{"type": "promptString", "id": "key", "description": "Key", "password": true}
\t],
\t"servers": {
\t\t"perplexity": {
\t\t\t"type": "stdio",
\t\t\t"command": "npx",
\t\t\t"args": ["-y", "server-perplexity-ask"],
\t\t\t"env": {"API_KEY": "${input:key}", "HOME_DIR": "${userHome}"}
\t\t},
\t\t"github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/"},
\t\t"asks": {"type": "stdio", "command": "x", "args": ["--key", "${input:key}"]}
\t}
}
""",
        taken=frozenset({"perplexity", "github"}),
        left={"asks": "fill in ${input:key}"},
    ),
    Sample(
        client="windsurf",
        file=".codeium/windsurf/mcp_config.json",
        text="""{
  "mcpServers": {
    "time": {"command": "uvx", "args": ["mcp-server-time"], "disabled": false},
    "off": {"command": "x", "disabled": true},
    "some": {"command": "x", "disabledTools": ["drop_table"]},
    "figma": {"serverUrl": "https://mcp.figma.com/mcp"}
  }
}
""",
        taken=frozenset({"time", "figma"}),
        left={"off": "switched off", "some": "limits its tools"},
    ),
    Sample(
        client="zed",
        file=".config/zed/settings.json",
        text="""// Zed settings
{
  "theme": {"mode": "system"}, /* light
  and dark */
  "context_servers": {
    "local": {"source": "custom", "command": "uvx", "args": ["mcp-server-fetch"], "env": {}},
    "older": {"command": {"path": "/usr/bin/env", "args": ["x"], "env": {"A": "1"}}},
    "mcp-server-github": {"source": "extension", "settings": {"token": "x"}},
    "off": {"enabled": false, "command": "x", "args": []},
  },
}
""",
        taken=frozenset({"local", "older"}),
        left={"mcp-server-github": "an extension", "off": "switched off"},
    ),
    Sample(
        client="codex",
        file=".codex/config.toml",
        text='''model = "gpt-5"   # the model

[mcp_servers.docs] # first
command = "npx"
args = ["-y", "docs-mcp"]
startup_timeout_sec = 20

[mcp_servers.docs.env]
KEY = "v]a#lue"

# how much it asks
[profiles.careful]
approval_policy = "untrusted"
note = """
[mcp_servers.not_one]
command = "x"
"""

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"

[mcp_servers."my server"]
command = 'uvx'
args = [
  "mcp-server-time", # a comment
]

[mcp_servers.off]
command = "x"
enabled = false

[mcp_servers.inherits]
command = "x"
env_vars = ["TOKEN"]

[tui]
notifications = true
''',
        taken=frozenset({"docs", "figma", "my server"}),
        left={"off": "switched off", "inherits": "env_vars"},
    ),
    Sample(
        client="gemini",
        file=".gemini/settings.json",
        text="""{
  "theme": "GitHub",
  "mcpServers": {
    "python": {"command": "python", "args": ["-m", "x"], "cwd": "$HOME/x", "env": {"K": "$KEY"}},
    "http": {"httpUrl": "http://localhost:3000/mcp", "timeout": 5000},
    "some": {"command": "x", "includeTools": ["safe"]}
  }
}
""",
        taken=frozenset({"python", "http"}),
        left={"some": "limits its tools"},
    ),
    Sample(
        client="cline",
        file=".cline/data/settings/cline_mcp_settings.json",
        text="""{
  "mcpServers": {
    "local-server": {
      "command": "node",
      "args": ["/path/to/server.js"],
      "env": {"API_KEY": "your_api_key"},
      "autoApprove": ["tool1"],
      "disabled": false
    },
    "off": {"command": "x", "disabled": true}
  }
}
""",
        taken=frozenset({"local-server"}),
        left={"off": "switched off"},
    ),
    Sample(
        client="goose",
        file=".config/goose/config.yaml",
        text="""# written by goose configure
GOOSE_PROVIDER: "anthropic"
extensions:
  developer:
    enabled: true
    type: builtin
    name: developer
  # mine
  github:
    name: GitHub
    cmd: npx
    args: [-y "x", '@modelcontextprotocol/server-github']
    enabled: true
    envs: { "GITHUB_TOKEN": "ghp_0123456789" }
    type: stdio
    timeout: 300

  keyed:
    type: stdio
    cmd: npx
    args:
    - -y
    - keyed-mcp
    env_keys:
    - TOKEN
    enabled: true
  notes:
    type: stdio
    enabled: true
    cmd: uvx
    args:
    - notes
    description: |
      keeps notes

      of mine
  remote: {type: sse, uri: "http://localhost:8000", enabled: true}
GOOSE_MODE: approve # ask
""".replace('-y "x"', '"-y"'),
        taken=frozenset({"github", "notes", "remote"}),
        left={"developer": "a part of Goose", "keyed": "env_keys"},
    ),
)


def install(home: Path, workspace: Path, sample: Sample) -> Path:
    """Write a sample. Returns its file."""
    file = home / sample.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(sample.text.replace("@WORKSPACE@", str(workspace)), "utf-8")
    return file
