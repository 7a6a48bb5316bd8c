"""The configurations of MCP clients: found, read, and changed so that the proxy starts the servers.

A client's file belongs to its user. Only the entries of the moved servers are changed, and each
change is verified by reading the new text.

- `finding`: which of the known clients exist here.
- `entries`: the clients, their files, how they start this proxy, and one server of a client in the
  proxy's own form, with what the client fills in.
- `plan`: the servers of all clients together, the changes of each file, and undoing them.
- `text_format`: changing one part of a text: JSON and YAML; `toml_text`: TOML.
"""
