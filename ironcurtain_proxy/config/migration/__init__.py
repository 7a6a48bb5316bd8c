"""Migration of configuration files of older versions.

- `migration`: what changes. `json_insertion`, `rewriting`: how the file keeps its layout.
"""
