"""Pins: servers' descriptions of themselves when they were trusted, and later differences.

- `pinned`: the parts of a server that are pinned, what changed in them, and signs of an attack in
  what servers say of themselves.
- `book`: those of one session: what is trusted at first sight, what waits for a person, and their
  files.
"""
