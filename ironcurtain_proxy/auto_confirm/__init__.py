"""The auto-confirm engine, off by default: approves what a person would, or chooses a reviewer.

- `reviewer`: the engine as a reviewer. `engine`: its decision, pure. `running_engine`: its tasks.
- `reviewer_chain`, `reviewers`, `briefing`: the target and the fallback of a question, and how
  each kind of reviewer is asked.
- `engine_memory`, `engine_memory_rows`, `store`: what the engine remembers, in SQL.
- `revocable_calls`: which calls the timeline can take back.
- `notify`, `approval_tally`: who is told.
- `windows`: testing windows and deployments that the operator announces.
- `lazy_store`, `owed`: the store when it is not there, and what is still to be written into it.
- `owner`, `upkeep`: the process that a row belongs to, and what is removed.
"""
