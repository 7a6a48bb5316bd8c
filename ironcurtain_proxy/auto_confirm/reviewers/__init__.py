"""The kinds of reviewers that the engine can ask.

- `process`, `process_start`, `turns`: a process, its start, and its queue.
- `dialect`, `json_lines`, `mcp_calls`: the two protocols of such a process.
- `session`: another session with a mailbox. `model`: a language model.
- `lives`, `given_up`: how often a process is started, and when that ends.
"""
