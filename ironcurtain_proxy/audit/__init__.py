"""The record of what was decided and done: redacted, chained, append-only.

- `log`, `writer`, `syncing`, `recovery`: how lines are written, made to last, and taken up again.
- `records`, `bounding`, `chain`: how a line is made and sealed, and which denied calls are recorded
  one by one.
- `redaction`: secrets in a record, in a server's answer, and in what a server is sent. `secrets`,
  `keys`, `numbers`, `commands`, `credential_files`: where they stand, by their formats, in command
  lines, by names, and in what is written into files of credentials.
- `files`, `known_logs`: the files of a log and their lines, and all logs of a user.
- `display`, `selection`, `calls`: what a record says to people, a choice of calls, and calls found.
- `verify`, `export`: the check of a log, and calls in the formats of other programs.
- `shipping`, `heads`: records on their way to other machines, and what shows a log rewritten.
"""
