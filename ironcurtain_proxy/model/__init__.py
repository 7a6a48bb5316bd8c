"""The nouns that all folders share, frozen.

- An operation: `operation`, also who asks for it; `request`, with the commands in it; `case`;
  `reply`, also the record of a call. What crosses: `crossing`.
- A decision: `policy`, `conditions`, `condition_reading`, `annotation`, `decision`, `authorized`.
- A question: `escalation`, `grant`; `signing`, answers that are signed.
- `origin`: who named the target of a call.
- A server: `server`. The workspace: `timeline`.
- `values`: JSON, paths, statements for a database, moments, and lists of words.
- `conventions`: OpenTelemetry's names for what a record tells of.
"""
