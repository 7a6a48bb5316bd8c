"""Recorded sessions of agents, run through the policy without any server.

A simulation reads transcripts, judges their calls as `serve` would, and counts the questions. It
carries out no call.

- `recorded`: a recorded call, and the result of reading transcripts.
- `transcripts`: files and lines. `corpus`, `claude_code`, `codex`, `gemini`: one format each.
- `client_tools`: a client's own tools as calls of servers.
- `scene`: the policy and settings of a preset at the place of a recorded session.
- `playing`: the calls of a recording, judged. `memory`: the grants of simulated approvals.
- `tally`, `text`: the questions, as numbers and as text.
"""
