"""The servers behind the proxy, as the operator configured them.

- `servers_file`, `server_choice`: which servers exist, and which of them run. `remote_entry`: those
  that are reached over HTTP.
- `client_file`: the servers of a client, for `init`.
- `recognition`, `tool_names`: well-known servers, and the names of tools.
- `roots`, `workspace`: directories that servers are told about, and the agent's own directory.
"""
