"""Points in time of a workspace, one before each call that may change it, and rollbacks.

The workspace is hostile: a call can leave any names, links, modes and times there.

- `entry`, `history`, `planning`: states, changes, and plans of rollbacks. Pure.
- `opening`, `events`, `reading`, `scanning`: the workspace as it is. `known`: as it was
  seen.
- `cached`: what the scanner leaves alone, where a caller names it.
- `blobs`, `log`, `rows`, `places`: copies, the history, and their directories.
- `bounds`: the limits of a timeline. `keeper`: makes points. `workspace_timeline`: the port.
- `rewinding`, `applying`, `staging`: rollbacks.
"""
