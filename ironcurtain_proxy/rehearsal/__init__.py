"""Recorded sessions of agents, run through the policy without any server.

A simulation: transcripts are read, their calls judged as `serve` would judge them, and questions
counted. Nothing that a transcript says is carried out.

- `recorded`: a recorded call, and what a reading of transcripts gave.
- `transcripts`: files and lines. `corpus`, `claude_code`, `codex`, `gemini`: one format each.
- `client_tools`: a client's own tools as calls of servers.
- `scene`: the policy and settings of a preset at the place of a recorded session.
- `playing`: the calls of a recording, judged. `memory`: what an approval is remembered for.
  `containment`: what needs no approval.
- `tally`, `text`: what was asked, in numbers and in words.
"""
