"""Joins the folders to a running proxy.

- `serving`, `proxy`: `serve`, and one proxy put together from its settings.
- `overlay`, `confinement`, `containment`, `timeline`, `persistence`, `reviewers`, `auto_confirm`:
  one part each.
- `live`: the servers' tools for `check --live`. `rehearsal`: for `explain`.
- `readiness`: what stops the start. `holding`: whose calls can be contained.
"""
