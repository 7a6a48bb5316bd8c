"""Configuration files of older versions, brought up to date.

- `migration`: what changes. `json_insertion`, `rewriting`: how the file keeps its layout.
"""
