"""The door of clients' own tools: their hooks ask the kernel before each call.

Off unless `init` installs the hooks; `serve` imports nothing of it. The same facts, policy,
approvals, timeline and audit log hold as at the MCP door.

- `stub`: what a client starts at each event, and for each command of its shell; a script by itself,
  which imports nothing of ours.
- `launching`: the command lines that start it, and deny where it cannot start.
- `installing`: the hooks in clients' files, and the way back.
- `places`: where a client's own files lie, also where a variable of its user moves them.
- `health`: whether the hooks of a client work, and what is refused where they do not come.
- `kernel`: the start of a client's kernel, its socket, and its end with the client.
- `sharing`: the proxy for servers as that kernel.
- `paths`: what clients make of the paths of their calls.
- `door`: the events of a client, and its calls under way.
- `runs`: the start of a client's commands, which our own shell holds.
- `client_end`: the client as a server of the kernel.
- `events`: the words that all dialects share, and what one declares. `dialects`: the table of them.
- `claude`, `codex`, `gemini`, `cursor`, `copilot`, `opencode`: one client's dialect each. How an
  entry looks and its answers stand there, its events, tools and places in `clients.toml`, and
  nowhere else.
"""
