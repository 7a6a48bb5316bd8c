"""Migration of configuration files of older versions.

- `legacy_switch`: what an old switch means. `migration`: what changes, where it is inserted, and
  how a file is replaced.
"""
