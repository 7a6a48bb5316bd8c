"""Files that hold credentials: one table for policy, shell, sandboxes, engine and audit.

- `table.txt`: names of such files at any place, their places in a home directory, and the programs
  that need them. `table`: the table, read, and whether a path has such a name.
"""
