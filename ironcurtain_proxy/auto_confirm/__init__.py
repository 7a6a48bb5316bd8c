"""The auto-confirm engine, off by default: approves routine calls, and chooses reviewers.

- `reviewer`: the engine as a reviewer. `engine`: its decision, pure. `engine_tables`: what it
  knows.
- `reviewer_chain`, `reviewers`, `briefing`: the target and the fallback of a question, and how
  each kind of reviewer is asked.
- `engine_memory`, `engine_knowledge`, `store`: the engine while it runs, its memory in SQL, who
  owns a row, and the removal of rows.
- `notifier`: notices, in fixed words, and how they are sent. `notice_channels`: where to.
- `session_files`: windows that the operator announces, reviewers that were given up, and writes
  that wait for a store that is missing.
"""
