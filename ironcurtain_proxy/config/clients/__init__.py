"""The configurations of MCP clients: found, read, and changed so that the proxy starts the servers.

A client's file belongs to its user. It is changed at the exact places of the servers that moved,
never written anew, and each change is read back before it counts.

- `known`: the clients, their files and the form of an entry. `finding`: which of them exist here.
- `entries`: one server of a client in the proxy's own form. `variables`: what clients fill in.
- `plan`: the servers of all clients together, and the changes of each file.
- `text_format`, `json_text`, `toml_text`, `yaml_text`: changing a text and nothing around it.
- `journal`: the record of changed files, and undoing them.
- `own_command`: how a client starts this proxy.
"""
