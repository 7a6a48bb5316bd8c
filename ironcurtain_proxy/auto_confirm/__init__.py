"""The auto-confirm engine, off by default: approves routine calls, and chooses reviewers.

- `reviewer`: the engine as a reviewer. `engine`: its decision, pure. `engine_tables`: what it
  knows. `running_engine`: its tasks, and what the timeline can take back.
- `reviewer_chain`, `reviewers`, `briefing`: the target and the fallback of a question, and how
  each kind of reviewer is asked.
- `engine_memory`, `engine_knowledge`, `store`: the memory of the engine, in SQL.
- `owed`, `upkeep`: writes that wait for a store that is missing, who owns a row, and the removal of
  rows.
- `notify`: notices. `notice_channels`: where they go to.
- `windows`: testing windows and deployments that the operator announces.
"""
