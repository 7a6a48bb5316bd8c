"""Points in time of a workspace, one before each call that may change it, and rollbacks.

The workspace is hostile: a call can leave any names, links, modes and times there.

- `history`, `planning`: states, changes, and plans of rollbacks. Pure.
- `opening`, `reading`, `scanning`: the workspace as it is, and where a file is made before it gets
  its name. `known`: as it was seen. `cached`: what the scanner leaves alone.
- `log`: copies, and the history.
- `keeper`: makes points. `workspace_timeline`: the port.
- `rewinding`, `applying`: rollbacks.
"""
