"""Grants: remembered approvals.

- `book`, `patterns`: the grants of a session and the budgets of plans, and the calls that they are
  about.
- `families`: grants of shell commands, and where else these hold.
- `grant_settlement`: the reasons that plans and grants settle.
- `session_grants`: all grants of one session.
- `kept`, `format`: grants that outlive their session, and their file.
"""
