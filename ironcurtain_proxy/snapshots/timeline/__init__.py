"""Points in time of a workspace, one before each call that may change it, and the way back.

The workspace is hostile: names, links, modes and times are whatever a call left there.

- `entry`, `history`, `planning`: what was seen, what changed, what a rollback comes to. Pure.
- `opening`, `events`, `reading`, `caches`, `scanning`: the workspace as it is. `known`: as it was
  seen.
- `blobs`, `log`, `rows`, `places`: copies, the past, and where they lie.
- `bounds`: how much is held. `keeper`: makes points. `workspace_timeline`: the same as a port.
- `rewinding`, `applying`: takes calls back.
"""
