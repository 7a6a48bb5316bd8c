"""Approvals that are remembered.

- `book`, `patterns`, `matching`: the grants of a session, and the calls that they are about.
- `families`: what is remembered of shell commands. `whole_calls`: of calls without a pattern.
- `budget`, `claims`, `grant_settlement`: what plans and grants settle of a call.
- `session_grants`: all that is remembered in one session.
- `kept`, `file`, `format`: grants that outlive their session, and their file.
- `family_format`, `fields`: parts of that file.
"""
