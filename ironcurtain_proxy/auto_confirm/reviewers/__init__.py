"""The kinds of reviewers that the engine can ask.

- `process`, `process_start`: a process, and its starts. `given_up`: those that are not asked any
  more.
- `json_lines`, `mcp_calls`: the two protocols of such a process, and the queue of its questions.
- `session`: another session with a mailbox. `model`: a language model.
"""
