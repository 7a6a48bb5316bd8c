"""The kinds of reviewers that the engine can ask.

- `process`, `process_start`, `launching`, `turns`: a process, how it is started, and its queue.
- `dialect`, `json_lines`, `mcp_calls`: the two protocols of such a process.
- `session`: another session with a mailbox. `model`: a language model.
- Also: `given_up`, `lives`.
"""
