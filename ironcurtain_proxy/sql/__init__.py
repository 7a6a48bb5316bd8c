"""The effects of SQL statements.

- `effects`: the effect of a text in every possible dialect.
- `harmless`: functions and pragmas that only read.
"""
