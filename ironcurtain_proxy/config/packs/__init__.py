"""Annotations of well-known servers, made from the `tools/list` of each.

`shipped` has one file for each server, in the format of `tool-annotations.json`, and `index.json`,
which says by which package a server is recognised. Only the packs of configured servers are read.
`scripts/packs` makes them. `elsewhere.json` has the packages that images and repositories hold.

- `pack`: the packs by name and by package.
"""
