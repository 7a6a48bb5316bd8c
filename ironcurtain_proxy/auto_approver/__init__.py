"""The LLM approver, off by default: approves what the user's last message asked for.

- `reviewer`: asks the model, checks its answer, and approves or passes the question on.
- `intent`: the question to the model and the reading of its answer.
- `target_check`: whether a message names what a call does, and to what. Its parts are
  `target_call`, `target_command` for shells, and `target_message`.
- `breakers`: what switches the approver off.
- `scenarios`, `evaluation`: labelled scenarios, and how well the approver does on them.
"""
