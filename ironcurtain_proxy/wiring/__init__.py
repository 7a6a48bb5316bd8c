"""Joins the folders to a running proxy.

- `serving`, `proxy`: `serve`, and one proxy put together from its settings.
- `overlay`, `confinement`, `persistence`, `reviewers`, `reviewer_processes`, `auto_confirm`: one
  part each.
- `live`: the servers' tools for `check --live`. `clocks`, `memory`: time, ids, the allocator.
- Also: `lookout`, `operator_log`, `readiness`, `rehearsal`, `running_sessions`,
  `session_directories`, `timeline`, `unattended`.
"""
