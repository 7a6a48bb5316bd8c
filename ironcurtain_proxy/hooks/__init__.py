"""The door of clients' own tools: their hooks ask the kernel before each call.

Off unless `init` installs the hooks; `serve` imports nothing of it. The same facts, policy,
approvals, timeline and audit log hold as at the MCP door.

- `stub`: what a client starts at each event; a script by itself, which imports nothing of ours.
- `launching`: the command line that starts the stub, and denies where it cannot start.
- `installing`: the hooks in clients' files, and the way back.
- `health`: whether the hooks of a client work, and what is refused where they do not come.
- `kernel`: the start of a client's kernel, its socket, and its end with the client.
- `door`: the events of a client, and its calls under way.
- `client_end`: the client as a server of the kernel.
- `events`: the words that all dialects share. `dialects`: the table of them.
- `claude`, `codex`, `gemini`: one client's dialect each.
"""
