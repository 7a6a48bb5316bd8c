"""The LLM approver, off by default: approves what the user's last message asked for.

- `reviewer`: asks the model, checks its answer, and approves or passes the question on; and what
  switches the approver off.
- `intent`: the question to the model and the reading of its answer.
- `target_check`: whether a message names what a call or a command does, and to what. Its parts are
  `target_call`, `target_command` and `target_message`, whose words are in `vocabulary`.
- `evaluation`: labelled scenarios, and how well the approver does on them.
"""
