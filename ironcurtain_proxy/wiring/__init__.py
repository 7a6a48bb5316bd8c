"""Joins the folders to a running proxy.

- `serving`: `serve`, and what stops the start. `proxy`: one proxy put together from its settings.
- `shared`: what the doors of one kernel have in common, and what servers are held to by pins.
- `confinement`, `reviewers`, `auto_confirm`: one part each. `containment`: also the timeline.
- `confining`: how each server is confined, for sessions with a sandbox.
- `suggesting`: recorded calls judged again, and rules that would have spared questions.
- `call_facts`: the overlay, and what reads calls.
- `reloading`: a changed policy in a running session.
- `rehearsal`: for `explain`, the servers' tools for `check --live`, and the servers whose calls can
  be contained.
- `views`: where the commands of our own shell have their views, and their commits.
"""
