"""Points in time of a workspace, one before each call that may change it, and rollbacks.

The workspace is hostile: a call can leave any names, links, modes and times there.

- `history`, `planning`: states, as it was seen, changes, and plans of rollbacks with their errors.
  Pure.
- `opening`, `reading`, `scanning`: the workspace as it is, what the scanner leaves alone, and where
  a file is made before it gets its name.
- `closed_places`: what is found where nobody could look.
- `log`: copies, and the history.
- `keeper`: makes points. `workspace_timeline`: the port.
- `rewinding`, `applying`: rollbacks.
"""
