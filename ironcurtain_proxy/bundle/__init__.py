"""Bundles of a fleet's policy: signed by several persons, fetched by each machine.

- `contents`: the files of a bundle, into one archive and out of it.
- `repository`: the signed metadata and the archives, before they are published.
- `update`: the change to a newer bundle on one machine.

Only the command `bundle` imports this folder: The Update Framework (TUF) is an extra, and takes
longer to import than all of `serve`.
"""
