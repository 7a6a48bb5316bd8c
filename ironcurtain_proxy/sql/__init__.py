"""What a text of SQL statements does.

- `effects`: the effect of a text, in every dialect that may be meant.
- `harmless`: functions and pragmas that only read.
"""
