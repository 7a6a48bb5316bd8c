"""Grants: remembered approvals.

- `book`, `patterns`, `matching`: the grants of a session, and the calls that they are about.
- `families`: grants of shell commands; `worktrees`: where else these hold.
- `whole_calls`: grants of calls without a pattern.
- `budget`, `claims`, `grant_settlement`: the reasons that plans and grants settle.
- `session_grants`: all grants of one session.
- `kept`, `file`, `format`, `entry`: grants that outlive their session, and their file.
"""
