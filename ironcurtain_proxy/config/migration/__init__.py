"""Migration of configuration files of older versions.

- `legacy_switch`: what an old switch means. `migration`: what changes, and where it is inserted.
- `rewriting`: how a file is replaced.
"""
