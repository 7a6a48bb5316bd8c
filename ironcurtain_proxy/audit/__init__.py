"""The record of what was decided and done: redacted, chained, append-only.

`records` and `redaction` make a line, `chain` seals it, `log` writes it; `reading` and `verify`
look at what was written. Nothing here knows why a call was decided as it was.
"""
