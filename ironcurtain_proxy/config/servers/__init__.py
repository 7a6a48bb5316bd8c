"""The servers behind the proxy, as the operator configured them.

- `servers_file`: which servers exist, which of them run, and in which workspace.
- `remote_entry`: those that are reached over HTTP.
- `recognition`: well-known servers, and their packs in the folder `packs`.
"""
