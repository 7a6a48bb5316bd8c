"""Recorded sessions of agents, run through the policy without any server.

A simulation reads transcripts, judges their calls as `serve` would, and counts the questions. It
carries out no call.

- `transcripts`: files and lines, the format of each client, and a recorded call.
- `playing`: the calls of a recording, judged. `memory`: the grants of simulated approvals, and the
  questions, counted.
"""
