"""The auto-confirm engine, off by default: approves routine calls, and chooses reviewers.

- `reviewer`: the engine as a reviewer. `engine`: its decision, pure. `running_engine`: its tasks.
- `reviewer_chain`, `reviewers`, `briefing`: the target and the fallback of a question, and how
  each kind of reviewer is asked.
- `engine_memory`, `engine_knowledge`, `engine_memory_rows`, `store`: the memory of the engine, in
  SQL.
- `revocable_calls`: calls that the timeline can undo. `session_files`: what a call's paths are.
- `notify`: notices. `notice_channels`: where they go to.
- `windows`: testing windows and deployments that the operator announces.
- `lazy_store`, `owed`: a store that is missing, and writes that wait for it.
- `upkeep`: the process that owns a row, and the removal of rows.
"""
