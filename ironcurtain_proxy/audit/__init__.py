"""The record of what was decided and done: redacted, chained, append-only.

- `log`, `writer`, `recovery`: how lines are written, made to last, and taken up again.
- `records`, `bounding`: how a line is made, chained and sealed, and how long it may be.
- `redaction`: secrets in a record, in a server's answer, and in what a server is sent. `secrets`,
  `commands`: where they stand, by their formats and names, in command lines, and by the file that
  they are written to.
- `files`, `known_logs`: the files of a log and their lines, and all logs of a user.
- `display`, `calls`: what a record says to people, a choice of calls, and calls found.
- `verify`: the check of a log, and the heads and roots that show a log rewritten.
- `shipping`: records on their way to other machines and programs.
"""
