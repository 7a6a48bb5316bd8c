"""The configurations of MCP clients: found, read, and changed so that the proxy starts the servers.

A client's file belongs to its user. Only the entries of the moved servers are changed, and each
change is verified by reading the new text.

- `known`: the clients, their files, the form of an entry, and how a client starts this proxy.
- `finding`: which of them exist here.
- `entries`: one server of a client in the proxy's own form, and what clients fill in.
- `plan`: the servers of all clients together, and the changes of each file.
- `text_format`, `toml_text`, `yaml_text`: changing one part of a text; JSON is in `text_format`.
- `undo_record`: the record of changed files, and undoing them.
"""
