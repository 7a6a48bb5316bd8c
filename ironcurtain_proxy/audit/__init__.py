"""The record of what was decided and done: redacted, chained, append-only.

- `log`, `writer`, `syncing`, `recovery`: how lines are written, made to last, and taken up again.
- `records`, `bounding`, `redaction`, `secrets`, `numbers`, `chain`: how a line is made and sealed.
- `files`, `reading`, `verify`, `display`, `statistics`: how a log is read and checked.
- `answers`: secrets in what servers answer. `arguments`: secrets in what they are sent.
- `hanging`: ends the process when a write does not return.
- `settings`: how a log is written.
- `keys`: where keys of providers stand in a text. `commands`: secrets in command lines.
  `secret_names`: names whose values are secrets. `denials`: how many denied calls are recorded one
  by one.
- `family`, `known_logs`: all logs of a user. `finding`, `tailing`, `rows`: one call, the last ones,
  and how they are shown. `history`: both, for a reviewer's screen.
- `calls`, `selection`: calls one by one, and a choice of them.
- `export`: calls in the formats of other programs.
"""
