"""Migration of configuration files of older versions.

- `legacy_switch`: what an old switch means. `migration`: what changes.
- `json_insertion`, `rewriting`: how the file keeps its layout.
"""
