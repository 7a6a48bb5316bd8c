"""Pins: servers' descriptions of themselves when they were trusted, and later differences.

- `pinned`: the parts of a server that are pinned. `difference`: what changed, was added or renamed,
  in words.
- `store`: their files in the state directory.
- `book`: those of one session: what is trusted at first sight, and what waits for a person.
- `scan`: signs of an attack in what servers say of themselves.
"""
