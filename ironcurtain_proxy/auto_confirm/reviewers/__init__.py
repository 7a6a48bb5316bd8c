"""The kinds of reviewers that the engine can ask.

- `process`, `process_start`, `turns`: a process, its starts, and its queue. `given_up`: those that
  are not asked any more.
- `json_lines`, `mcp_calls`: the two protocols of such a process.
- `session`: another session with a mailbox. `model`: a language model.
"""
