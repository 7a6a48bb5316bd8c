"""Our own shell server: `run_command`, each command in a view of its own.

An MCP server like others, in a process of its own, decided by the same kernel. It runs a command
and prepares what it changed; the proxy commits that, or discards it (`transactions`).

- `program`: the process, the conversation, and a command of a client's own shell. `tools`: the
  tools, and their arguments.
- `running`: one command, what confines it, from its start to its prepared changes.
"""
