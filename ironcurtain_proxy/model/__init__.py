"""The nouns that all folders share, frozen.

- An operation: `operation`, also who asks for it; `request`, with the commands in it, and who named
  its targets; `case`, also how a question is settled, in the words of the record; `reply`, also the
  record of a call, and the changes of the workspace. What crosses: `crossing`.
- A decision: `policy`, `conditions`, `condition_reading`, `annotation`, `decision`, `authorized`.
- A question: `escalation`, also what a push would publish; `grant`; `signing`, answers that are
  signed.
- A server: `server`.
- `values`: JSON, paths, statements for a database, moments, lists of words, and patterns.
"""
